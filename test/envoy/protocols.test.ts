// The gateway leaves HTTP alone: over HTTP/1.1 and HTTP/2, however a request is cut up, the pod gets its bytes and the client gets the pod's,
// what is not held passes as in a plain Envoy beside it, and nothing that a client sends steers.

import { createHash, randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { KeyReader } from '../../control-plane/engine/keys.ts';
import { SECRET } from '../filter/control-plane.ts';
import { chat, words } from '../filter/gateway.ts';
import { client, protocols } from './clients.ts';
import type { Asked, Client } from './clients.ts';
import { startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';
import { envoyVersions, eventually } from './harness.ts';
import type { Gateway, Recorded } from './harness.ts';

const path = '/v1/chat/completions';
const destination = 'x-gateway-destination-endpoint';
const mib = 1 << 20;
const limitBytes = 22 * mib;
const json = { 'content-type': 'application/json' };

const body = (seed: string, bytes: number): Buffer => Buffer.from(JSON.stringify(chat(words(seed, bytes), 'x')));
const sha = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const bytewise = (bytes: Buffer): Buffer[] => Array.from(bytes, (byte) => Buffer.of(byte));
const cut = (bytes: Buffer, size: number): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size));

let reader: KeyReader;
beforeAll(async () => {
  reader = await KeyReader.create(SECRET);
});

describe.each([...envoyVersions])('Envoy %s', (version) => {
  let started: FilterGateway;
  let gateway: Gateway;

  beforeAll(async () => {
    started = await startFilter({
      version,
      pods: 3,
      concurrency: 2,
      listener: { requestBytesMax: limitBytes },
      beside: ['plain'],
    });
    gateway = started.gateway;
  });
  afterAll(() => started.close());

  const requests = (): Recorded[] => gateway.pods.flatMap((pod) => pod.requests);
  const only = (): Recorded => {
    expect(requests()).toHaveLength(1);
    return requests()[0]!;
  };
  const behave = (behaviour: (typeof gateway.pods)[0]['behaviour']): void => {
    for (const pod of gateway.pods) pod.behaviour = behaviour;
  };
  const forget = (): void => {
    for (const pod of gateway.pods) pod.requests.length = 0;
    started.plane.reports.length = 0;
  };
  const isPicked = ({ headers }: Recorded): boolean => headers[destination] !== undefined;
  const atRest = (): Promise<unknown> =>
    eventually('nothing in flight', () =>
      started.plane.reports.at(-1)?.load?.every((pod) => pod.inFlight === 0 && pod.prefillTokens === 0),
    );

  describe.each([...protocols])('over %s', (protocol) => {
    let through: Client;
    let plain: Client;
    beforeEach(() => {
      through = client(protocol, gateway.port);
      plain = client(protocol, gateway.envoy.ports['plain']!);
      behave({});
      forget();
    });
    afterEach(async () => {
      await through.close();
      await plain.close();
    });

    describe('a body reaches the pod and the reader whole', () => {
      const small = body('small', 1500);
      const huge = body('huge', 20 * mib);
      const cases: [string, () => { sent: Buffer; asked: Asked }][] = [
        ['of 1.5 KB byte by byte', () => ({ sent: small, asked: { body: bytewise(small) } })],
        [
          'of 1.5 KB byte by byte with trailers',
          () => ({ sent: small, asked: { body: bytewise(small), trailers: { 'x-check': '1' } } }),
        ],
        ['of 1.5 KB in one piece', () => ({ sent: small, asked: { body: small } })],
        ...[16 << 10, mib].flatMap((bytes) => {
          const sent = body(`of${bytes}`, bytes);
          return [
            [`of ${bytes >> 10} KB with its length`, () => ({ sent, asked: { body: sent } })],
            [`of ${bytes >> 10} KB in chunks`, () => ({ sent, asked: { body: cut(sent, bytes >> 6) } })],
            [
              `of ${bytes >> 10} KB with trailers`,
              () => ({ sent, asked: { body: sent, trailers: { 'x-check': '1' } } }),
            ],
          ] as [string, () => { sent: Buffer; asked: Asked }][];
        }),
        [
          'of 20 MB in chunks with trailers',
          () => ({ sent: huge, asked: { body: cut(huge, mib), trailers: { 'x-check': '1' } } }),
        ],
        ['of 20 MB with its length', () => ({ sent: huge, asked: { body: huge } })],
      ];
      test.each(cases)('%s', async (_what, make) => {
        const { sent, asked } = make();
        const answer = await through.ask({ path, headers: json, ...asked });
        expect(answer.status).toBe(200);
        expect(sha(answer.body)).toBe(sha(sent));
        expect(sha(only().body)).toBe(sha(sent));
        expect(isPicked(only())).toBe(true);
        const keys = reader.read(path, sent).keys.join();
        await eventually('its keys', () => started.plane.touched().some((touch) => [...touch.keys].join() === keys));
        await atRest();
      });
    });

    test('without a body, compressed, or by another method: forwarded as it is, and counted', async () => {
      const before = await gateway.envoy.stats('warmpath_fallbacks_total');
      const zipped = gzipSync(body('zip', 4000));
      const asked: [Asked, reason: string, isHeld: boolean][] = [
        [{ path, body: Buffer.alloc(0) }, 'no-body', true],
        [{ path, body: [], headers: json }, 'no-body', true],
        [{ path, body: [Buffer.alloc(0)], headers: json }, 'no-body', true],
        [{ path, headers: { ...json, 'content-encoding': 'gzip' }, body: zipped }, 'encoding', true],
        [{ path: '/v1/models', method: 'GET' }, 'method', false],
        [{ path, method: 'GET' }, 'method', false],
        [{ path: '/v1/unknown', body: Buffer.from('{}') }, 'path', false],
        [{ path: `${path}/`, body: Buffer.from('{}') }, 'path', false],
        [{ path: '/v1/embeddings', body: Buffer.from('{"input":"x"}') }, 'path', false],
      ];
      for (const [what, reason, isHeld] of asked) {
        forget();
        const answer = await through.ask(what);
        expect([answer.status, answer.body.equals(Buffer.isBuffer(what.body) ? what.body : Buffer.alloc(0))]).toEqual([
          200,
          true,
        ]);
        expect([reason, isPicked(only()), only().method, only().path]).toEqual([
          reason,
          isHeld,
          what.method ?? 'POST',
          what.path,
        ]);
      }
      const after = await gateway.envoy.stats('warmpath_fallbacks_total');
      const risen = Object.fromEntries(
        Object.keys(after)
          .map((name) => [name.split('.').at(-1)!, after[name]! - (before[name] ?? 0)] as const)
          .filter(([, by]) => by > 0),
      );
      expect(risen).toEqual({ 'no-body': 3, encoding: 1, method: 2, path: 3 });
      await atRest();
    });

    test('Expect: 100-continue is answered before the body, which then comes whole', async () => {
      const sent = body('expects', 100_000);
      const answer = await through.ask({ path, headers: json, body: sent, expects: true });
      expect([answer.status, answer.isContinued, answer.body.equals(sent)]).toEqual([200, true, true]);
      expect(isPicked(only())).toBe(true);
    });

    test.each(['with its length', 'in chunks'])(
      'a body over the limit, %s, is answered 413, and the next request is served',
      async (how) => {
        const over = Buffer.alloc(limitBytes + mib, 0x20);
        const answer = await through.ask({ path, headers: json, body: how === 'in chunks' ? cut(over, mib) : over });
        expect(answer.status).toBe(413);
        expect(requests()).toEqual([]);
        const sent = body('next', 2000);
        const next = await through.ask({ path, headers: json, body: sent });
        expect([next.status, next.body.equals(sent)]).toEqual([200, true]);
        // Over HTTP/1.1 Envoy says that it closes a connection whose request it has not read to the end; over HTTP/2 the connection lives on.
        if (protocol === 'HTTP/2') expect(through.connections).toBe(1);
        else expect([through.connections, answer.headers['connection']]).toEqual([2, 'close']);
        await atRest();
      },
    );

    test('an answer passes unchanged: event streams byte by byte, their usage learned, trailers', async () => {
      const events = [
        ...words('token', 600)
          .split(' ')
          .map((word) => `{"choices":[{"delta":{"content":"${word} \u00e9"}}]}`),
        '{"choices":[],"usage":{"prompt_tokens":400,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":320}}}',
        '[DONE]',
      ];
      const stream = Buffer.from(events.map((event) => `data: ${event}\r\n\r\n`).join(''));
      behave({ headers: { 'content-type': 'text/event-stream' }, body: bytewise(stream), trailers: { 'x-last': '1' } });
      const learned = async (): Promise<number> =>
        (await gateway.envoy.stats('warmpath_cached_tokens_total'))[
          'wasmcustom.warmpath_cached_tokens_total.pool.pool'
        ] ?? 0;
      const before = await learned();
      const sent = body('answer', 1600);
      const [answer, untouched] = await Promise.all([
        through.ask({ path, headers: json, body: bytewise(sent) }),
        plain.ask({ path, headers: json, body: bytewise(sent) }),
      ]);
      expect(sha(answer.body)).toBe(sha(stream));
      expect(answer.trailers).toEqual(untouched.trailers);
      expect(answer.pieces.length).toBeGreaterThan(1);
      for (const { body: got } of requests()) expect(sha(got)).toBe(sha(sent));
      expect((await learned()) - before).toBe(320);
      await atRest();
    });

    test('a binary answer of 20 MB passes unchanged', async () => {
      const noise = randomBytes(20 * mib);
      behave({ body: noise, headers: { 'content-type': 'application/octet-stream' } });
      const answer = await through.ask({ path, headers: json, body: body('noise', 1500) });
      expect(sha(answer.body)).toBe(sha(noise));
    });
  });
});
