// The filter chain in a real Envoy, around the probe: a pick reaches override_host, a client's own header does not, and
// routes that are not held go on as if the chain were not there.

import { once } from 'node:events';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { envoyVersions, eventually, startGateway } from './harness.ts';
import type { Gateway } from './harness.ts';

const destination = 'x-gateway-destination-endpoint';
const chat = '/v1/chat/completions';
const mib = 1 << 20;

describe.each([...envoyVersions])('Envoy %s', (version) => {
  let gateway: Gateway;

  beforeAll(async () => {
    gateway = await startGateway({
      version,
      pods: 3,
      wasm: 'probe',
      concurrency: 2,
      listener: { requestBytesMax: 24 * mib },
    });
  });

  afterAll(() => gateway.close());

  const endpoint = (pod: number): string => gateway.pods[pod]!.endpoint;
  /** Picks are obeyed only if the pod is the same each time: least request would spread eight requests. */
  const spread = async (times: number, what: Parameters<Gateway['send']>[0]): Promise<Set<string | undefined>> =>
    new Set((await Promise.all(Array.from({ length: times }, () => gateway.send(what)))).map(({ pod }) => pod));

  test.each([
    ['a whole body', { body: '{"messages":[]}' }],
    ['a body in chunks', { body: ['{"mess', 'ages":', '[]}'] }],
    ['a body with trailers', { body: '{"messages":[]}', trailers: { 'x-check': '1' } }],
    ['a body of one byte', { body: '{' }],
    ['no body', {}],
  ])('the pick is obeyed for %s', async (_what, body) => {
    for (const pod of [0, 1, 2]) {
      const headers = { 'x-probe-pick': endpoint(pod) };
      expect(await spread(8, { path: chat, headers, ...body })).toEqual(new Set([`pod-${pod}`]));
      const seen = gateway.pods[pod]!.requests.at(-1)!;
      expect(seen.headers[destination]).toBe(endpoint(pod));
    }
  });

  test('an answer names the pod that it came from, whatever the pod says itself; one that Envoy gave names none', async () => {
    const served = 'x-gateway-destination-endpoint-served';
    const pod = gateway.pods[1]!;
    const { behaviour } = pod;
    pod.behaviour = { headers: { [served]: endpoint(0) }, body: '{}' };
    const picked = await gateway.send({ path: chat, headers: { 'x-probe-pick': endpoint(1) }, body: '{}' });
    pod.behaviour = behaviour;
    expect([picked.status, picked.headers[served]]).toEqual([200, endpoint(1)]);
    const refused = await gateway.send({ path: chat, body: Buffer.alloc(25 * mib) });
    expect([refused.status, refused.headers[served]]).toEqual([413, undefined]);
  });

  test('20 MB pass unchanged and are picked', async () => {
    const body = Buffer.alloc(20_000_000, 'warmpath ');
    const answer = await gateway.send({ path: chat, headers: { 'x-probe-pick': endpoint(2) }, body });
    expect([answer.status, answer.pod]).toEqual([200, 'pod-2']);
    expect(answer.body.equals(body)).toBe(true);
  });

  test('a body over the limit of the hold is answered 413 and reaches no pod', async () => {
    const before = gateway.pods.map(({ requests }) => requests.length);
    const answer = await gateway.send({ path: chat, body: Buffer.alloc(25 * mib) });
    expect(answer.status).toBe(413);
    expect(gateway.pods.map(({ requests }) => requests.length)).toEqual(before);
  });

  test("a client's own destination header is removed, with and without a pick", async () => {
    const spoofed = { [destination]: endpoint(0) };
    await gateway.send({ path: chat, headers: { ...spoofed, 'x-probe-pick': endpoint(1) }, body: '{}' });
    expect(gateway.pods[1]!.requests.at(-1)!.headers[destination]).toBe(endpoint(1));
    for (const pod of gateway.pods) pod.requests.length = 0;
    const answers = await Promise.all(
      Array.from({ length: 24 }, () => gateway.send({ path: chat, headers: spoofed, body: '{}' })),
    );
    expect(new Set(answers.map(({ pod }) => pod)).size).toBeGreaterThan(1);
    for (const { headers } of gateway.pods.flatMap(({ requests }) => requests))
      expect(headers[destination]).toBeUndefined();
  });

  test('a list of picks: unknown hosts are skipped', async () => {
    const headers = { 'x-probe-pick': `192.0.2.1:1,${endpoint(1)},${endpoint(0)}` };
    expect(await spread(8, { path: chat, headers, body: '{}' })).toEqual(new Set(['pod-1']));
  });

  test('503 is retried at the next of the list', async () => {
    gateway.pods[0]!.behaviour = { status: 503 };
    const headers = { 'x-probe-pick': `${endpoint(0)},${endpoint(2)},${endpoint(1)}` };
    expect(await spread(8, { path: chat, headers, body: '{}' })).toEqual(new Set(['pod-2']));
    gateway.pods[0]!.behaviour = {};
  });

  test('without a list, a retry goes to a host not tried yet', async () => {
    gateway.pods[0]!.behaviour = { status: 503 };
    gateway.pods[1]!.behaviour = { status: 503 };
    const headers = { 'x-probe-pick': endpoint(0) };
    const answers = await Promise.all(
      Array.from({ length: 12 }, () => gateway.send({ path: chat, headers, body: '{}' })),
    );
    expect(answers.map(({ status, pod }) => `${status} ${pod}`)).toEqual(Array.from(answers, () => '200 pod-2'));
    gateway.pods[0]!.behaviour = {};
    gateway.pods[1]!.behaviour = {};
  });

  test.each([
    [chat, 'POST', 0],
    [chat, 'PUT', 1],
    ['/upload', 'POST', 1],
  ])('%s by %s while its body is open: %d request(s) have reached a pod', async (path, method, reached) => {
    const arrived = (): number => gateway.pods.reduce((sum, pod) => sum + pod.arrived, 0);
    const before = arrived();
    const outgoing = request({ host: '127.0.0.1', port: gateway.port, path, method, agent: false });
    const answered = once(outgoing, 'response');
    outgoing.write('first');
    await sleep(150);
    expect(arrived() - before).toBe(reached);
    outgoing.end('last');
    const [response] = (await answered) as [IncomingMessage];
    expect(Buffer.concat(await response.toArray()).toString()).toBe('firstlast');
    expect(arrived() - before).toBe(1);
  });

  test('a query string does not take a route out of the hold; GET and longer paths are out of it', async () => {
    const body = Buffer.alloc(25 * mib);
    expect((await gateway.send({ path: `${chat}?a=b`, body })).status).toBe(413);
    expect((await gateway.send({ path: `${chat}/more`, body })).status).toBe(200);
    expect((await gateway.send({ path: chat, method: 'PUT', body })).status).toBe(200);
    expect((await gateway.send({ path: '/v1/models', method: 'GET' })).status).toBe(200);
  });

  test('SSE events pass one by one, unchanged', async () => {
    const events = ['{"a":1}', '{"b":"\u00e9"}', '[DONE]'];
    gateway.pods[1]!.behaviour = { sse: { events, gapMs: 30 } };
    const chunks: string[] = [];
    const answer = await gateway.send({
      path: chat,
      headers: { 'x-probe-pick': endpoint(1) },
      body: '{}',
      onChunk: (chunk) => chunks.push(chunk.toString()),
    });
    expect(chunks).toEqual(events.map((event) => `data: ${event}\n\n`));
    expect(answer.body.toString()).toBe(events.map((event) => `data: ${event}\n\n`).join(''));
    gateway.pods[1]!.behaviour = {};
  });

  test('metrics of the filter come with labels', async () => {
    const line = await eventually('a labelled line', async () =>
      (await gateway.envoy.prometheus()).split('\n').find((one) => one.startsWith('warmpath_probe_requests_total{')),
    );
    expect(line).toMatch(/^warmpath_probe_requests_total\{(?=.*pool="p")(?=.*result="ok").*\} \d+$/);
    expect((await gateway.envoy.stats('warmpath_probe_open'))['wasmcustom.warmpath_probe_open']).toBe(0);
  });
});
