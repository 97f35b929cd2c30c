// Only the gateway steers: whatever a client sends in x-gateway-* headers, with a live filter, an idle one or a dead one, and wherever
// a request ends up, its body comes whole and its pod is counted once.

import { createHash } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { chat, words } from '../filter/gateway.ts';
import { client, protocols } from './clients.ts';
import type { Asked, Client } from './clients.ts';
import { startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';
import { envoyVersions, eventually, startGateway } from './harness.ts';
import type { Gateway, Recorded } from './harness.ts';

const path = '/v1/chat/completions';
const destination = 'x-gateway-destination-endpoint';
const mib = 1 << 20;

const body = (seed: string, bytes: number): Buffer => Buffer.from(JSON.stringify(chat(words(seed, bytes), 'x')));
const sha = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** What a client may try, to be sent to `target`. */
function attempts(target: string): Record<string, Pick<Asked, 'headers' | 'trailers'>> {
  return {
    'as it is': { headers: { [destination]: target } },
    'in mixed case': {
      headers: { 'X-Gateway-Destination-Endpoint': target, 'X-GATEWAY-DESTINATION-ENDPOINT-SUBSET': target },
    },
    repeated: { headers: { [destination]: [target, target, '', target] } },
    'as a list': { headers: { [destination]: `${target},${target}` } },
    empty: { headers: { [destination]: '' } },
    'in trailers': { trailers: { [destination]: target } },
    'in headers and trailers': { headers: { [destination]: target }, trailers: { [destination]: target } },
    'under names like it': {
      headers: {
        'x-gateway-destination-endpoint-subset': target,
        'x-gateway-destination-endpoint-served': target,
        'x-gateway-destination': target,
        'wasm.warmpath.pick': target,
        'warmpath.pick': target,
        'x-warmpath-upstream': target,
      },
    },
  };
}

const attemptNames = Object.keys(attempts(''));

/** Sends sixteen requests (eight fall on one pod of three by chance once in 2,000 times) with an attempt to reach the first pod, and tells what the pods saw. */
async function tryAll(
  gateway: Gateway,
  through: Client,
  name: string,
  asked: Asked,
): Promise<{ seen: Recorded[]; pods: Set<string> }> {
  for (const pod of gateway.pods) pod.requests.length = 0;
  const attempt = attempts(gateway.pods[0]!.endpoint)[name]!;
  const pods = new Set<string>();
  for (let i = 0; i < 16; i++) {
    const answer = await through.ask({ ...asked, ...attempt });
    expect(answer.status).toBe(200);
    pods.add(answer.pod!);
  }
  return { seen: gateway.pods.flatMap(({ requests }) => requests), pods };
}

describe.each([...envoyVersions])('Envoy %s', (version) => {
  describe('with a live filter', () => {
    let started: FilterGateway;
    let gateway: Gateway;
    beforeAll(async () => {
      started = await startFilter({
        version,
        pods: 3,
        concurrency: 2,
        listener: { requestBytesMax: 48 * mib, redirects: 1 },
      });
      gateway = started.gateway;
    });
    afterAll(() => started.close());

    describe.each([...protocols])('over %s', (protocol) => {
      let through: Client;
      let before: number;
      beforeEach(() => {
        through = client(protocol, gateway.port);
        before = started.plane.reports.length;
      });
      afterEach(async () => {
        for (const pod of gateway.pods) pod.behaviour = {};
        await through.close();
        await eventually('nothing in flight', () =>
          started.plane.reports
            .slice(before)
            .at(-1)
            ?.load?.every((pod) => pod.inFlight === 0 && pod.prefillTokens === 0),
        );
      });

      test.each(attemptNames)('a client that asks for a pod %s gets the pick', async (name) => {
        const sent = body(`${protocol}${name}`, 4000);
        // The pick's first is where this prompt is; a prompt that lives on the wanted pod would show nothing.
        let home = (await through.ask({ path, body: sent })).pod!;
        let prompt = sent;
        for (let i = 0; home === 'pod-0'; i++) {
          prompt = body(`${protocol}${name}${i}-`, 4000);
          home = (await through.ask({ path, body: prompt })).pod!;
        }
        const { seen, pods } = await tryAll(gateway, through, name, { path, body: prompt });
        expect(pods).toEqual(new Set([home]));
        const picked = gateway.pods.find((pod) => pod.name === home)!.endpoint;
        for (const { headers } of seen) expect(String(headers[destination]).split(',')[0]).toBe(picked);
      });

      test.each(attemptNames)('a client that asks for a pod %s where nothing is picked reaches any', async (name) => {
        for (const what of [
          { path: '/v1/models', method: 'GET' },
          { path: '/v1/embeddings', body: Buffer.from('{}') },
        ]) {
          if (what.method === 'GET' && name.includes('trailers')) continue;
          const { seen, pods } = await tryAll(gateway, through, name, what);
          expect(pods.size).toBeGreaterThan(1);
          expect(seen.map(({ headers }) => headers[destination])).toEqual(Array.from(seen, () => undefined));
        }
      });

      test.each([100_000, 20 * mib])('a retry sends the same %d bytes to the next of the pick', async (bytes) => {
        const sent = body(`retry${protocol}`, bytes);
        for (const pod of gateway.pods) pod.requests.length = 0;
        let refused: string | undefined;
        for (const pod of gateway.pods) {
          // Whichever pod is asked first refuses.
          pod.behaviour = () => {
            refused ??= pod.endpoint;
            return pod.endpoint === refused ? { status: 503 } : { body: 'served' };
          };
        }
        const answer = await through.ask({ path, body: sent });
        expect([answer.status, answer.body.toString()]).toEqual([200, 'served']);
        const seen = gateway.pods.flatMap((pod) => pod.requests.map((request) => ({ ...request, at: pod.endpoint })));
        expect(seen.map((request) => sha(request.body))).toEqual([sha(sent), sha(sent)]);
        const [first, second] = String(seen[0]!.headers[destination]).split(',');
        expect(refused).toBe(first);
        // A pod that has just failed in another test is left out of the list for a second.
        if (second !== undefined) expect(seen.find(({ at }) => at !== refused)!.at).toBe(second);
      });

      test('a redirect that Envoy follows keeps the body, and is picked for anew', async () => {
        const sent = body(`redirect${protocol}`, 100_000);
        for (const pod of gateway.pods) {
          pod.requests.length = 0;
          pod.behaviour = (request) =>
            request.path === path
              ? { status: 307, headers: { location: `http://127.0.0.1:${gateway.port}/v1/completions` }, body: '' }
              : {};
        }
        const answer = await through.ask({ path, headers: { [destination]: gateway.pods[0]!.endpoint }, body: sent });
        expect([answer.status, sha(answer.body)]).toEqual([200, sha(sent)]);
        const seen = gateway.pods.flatMap(({ requests }) => requests);
        expect(seen.map((request) => [request.path, sha(request.body)]).toSorted()).toEqual(
          [
            [path, sha(sent)],
            ['/v1/completions', sha(sent)],
          ].toSorted(),
        );
        for (const pod of gateway.pods) {
          for (const { headers } of pod.requests) expect(String(headers[destination]).split(',')[0]).toBe(pod.endpoint);
        }
      });
    });

    test.each(['shadow', 'off'] as const)('in mode %s nobody steers', async (mode) => {
      await started.change((plane) => (plane.mode = mode));
      for (const protocol of protocols) {
        const through = client(protocol, gateway.port);
        for (const name of attemptNames) {
          const { seen, pods } = await tryAll(gateway, through, name, { path, body: body(name, 2000) });
          expect(pods.size).toBeGreaterThan(1);
          expect(seen.map(({ headers }) => headers[destination])).toEqual(Array.from(seen, () => undefined));
        }
        await through.close();
      }
      await started.change((plane) => (plane.mode = 'active'));
    });
  });

  test('with a filter that knows no settings nobody steers', async () => {
    await using gateway = await startGateway({ version, pods: 3, pluginConfig: { pool: 'pool' } });
    for (const protocol of protocols) {
      const through = client(protocol, gateway.port);
      for (const name of attemptNames) {
        const { seen, pods } = await tryAll(gateway, through, name, { path, body: body(name, 2000) });
        expect(pods.size).toBeGreaterThan(1);
        expect(seen.map(({ headers }) => headers[destination])).toEqual(Array.from(seen, () => undefined));
      }
      await through.close();
    }
  });

  test.each(['open', 'reload'] as const)(
    'after the filter has trapped, with failure policy %s, nobody steers',
    async (failurePolicy) => {
      await using gateway = await startGateway({ version, pods: 3, wasm: 'probe', listener: { failurePolicy } });
      const trapped = await gateway.send({ path, headers: { 'x-probe-trap': 'yes' }, body: '{}' });
      expect(trapped.status).toBe(503);
      for (const protocol of protocols) {
        const through = client(protocol, gateway.port);
        await eventually('service', async () => (await through.ask({ path, body: Buffer.from('{}') })).status === 200);
        for (const name of attemptNames) {
          const { seen, pods } = await tryAll(gateway, through, name, { path, body: Buffer.from('{}') });
          expect(pods.size).toBeGreaterThan(1);
          expect(seen.map(({ headers }) => headers[destination])).toEqual(Array.from(seen, () => undefined));
        }
        await through.close();
      }
    },
  );
});
