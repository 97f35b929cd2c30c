// What is not held passes as in a plain Envoy beside the gateway: websockets, uploads and streams in both directions under the same host,
// also under the paths that are held for POST.

import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { words } from '../filter/gateway.ts';
import { mirrorPath } from './backend.ts';
import { client, protocols } from './clients.ts';
import type { Client } from './clients.ts';
import { startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';
import { envoyVersions, eventually } from './harness.ts';

const chatPath = '/v1/chat/completions';
const destination = 'x-gateway-destination-endpoint';
/** What is written at once must come back within this, while more is to be written. */
const promptMs = 2000;

/** Reads exactly `bytes` bytes; what comes beyond them is an error. */
async function take(readable: Readable, bytes: number): Promise<Buffer> {
  const deadline = AbortSignal.timeout(promptMs);
  const pieces: Buffer[] = [];
  let have = 0;
  while (have < bytes) {
    const piece = readable.read() as Buffer | null;
    if (piece === null) {
      await once(readable, 'readable', { signal: deadline });
      continue;
    }
    pieces.push(piece);
    have += piece.length;
  }
  expect(have).toBe(bytes);
  return Buffer.concat(pieces);
}

/** Sends message after message, each after the one before has come back. */
async function converse(writable: Writable, readable: Readable): Promise<void> {
  for (let i = 0; i < 20; i++) {
    const message = Buffer.from(i % 2 === 0 ? `${i % 10}` : words(`m${i}-`, 40_000));
    writable.write(message);
    expect((await take(readable, message.length)).equals(message)).toBe(true);
  }
}

describe.each([...envoyVersions])('Envoy %s', (version) => {
  let started: FilterGateway;
  beforeAll(async () => {
    started = await startFilter({
      version,
      pods: 2,
      concurrency: 2,
      listener: { requestBytesMax: 1 << 20 },
      beside: ['plain'],
    });
  });
  afterAll(() => started.close());

  const inFlight = async (): Promise<number> =>
    Object.values(await started.gateway.envoy.stats('warmpath_in_flight.')).reduce((sum, n) => sum + n, 0);

  describe.each([...protocols])('over %s', (protocol) => {
    let sides: Client[];
    beforeEach(() => {
      const { port, envoy } = started.gateway;
      sides = [client(protocol, port), client(protocol, envoy.ports['plain']!)];
    });
    afterEach(() => Promise.all(sides.map((side) => side.close())));
    afterAll(() => eventually('nothing in flight', async () => (await inFlight()) === 0));

    test.each(['/socket', chatPath, `${chatPath}/socket`])('a websocket at %s', async (path) => {
      for (const side of sides) {
        const { status, socket } = await side.upgrade(path);
        expect(status).toBe(protocol === 'HTTP/2' ? 200 : 101);
        await converse(socket!, socket!);
        socket!.end();
      }
    });

    test('a websocket is counted on its pod while it is open', async () => {
      const { socket } = await sides[0]!.upgrade('/socket');
      await eventually('one in flight', async () => (await inFlight()) === 1);
      socket!.destroy();
    });

    test.each([
      ['POST', mirrorPath, { te: 'trailers', 'content-type': 'application/grpc' }],
      ['POST', `${mirrorPath}${chatPath}`, {}],
      ['PUT', `${mirrorPath}/put`, {}],
    ] as [string, string, Record<string, string>][])(
      'a stream in both directions by %s at %s',
      async (method, path, headers) => {
        const ends = [];
        for (const side of sides) {
          const { writable, answer } = side.open({ method, path, headers });
          // The answer begins before the request has ended.
          const { status, readable } = await answer;
          let trailers: unknown;
          readable.once('trailers', (last: unknown) => (trailers = last));
          await converse(writable, readable);
          writable.end();
          for await (const rest of readable) expect(rest).toHaveLength(0);
          ends.push([status, trailers]);
        }
        expect(ends[0]).toEqual(ends[1]);
      },
    );

    test('an upload reaches its pod while it is sent, is larger than the hold, and is answered alike', async () => {
      const pods = started.gateway.pods;
      for (const side of sides) {
        const before = pods.reduce((sum, pod) => sum + pod.arrived, 0);
        const { writable, answer } = side.open({ path: '/upload' });
        writable.write('first');
        await eventually('the request at a pod', () => pods.reduce((sum, pod) => sum + pod.arrived, 0) > before);
        const rest = Buffer.alloc(8 << 20, 'upload ');
        writable.end(rest);
        const { status, readable } = await answer;
        const pieces = (await readable.toArray()) as Buffer[];
        expect([status, Buffer.concat(pieces).equals(Buffer.concat([Buffer.from('first'), rest]))]).toEqual([
          200,
          true,
        ]);
      }
    });

    test('a stream that its client cuts off is cut off at the pod, and no longer counted', async () => {
      const { writable, answer, destroy } = sides[0]!.open({ path: mirrorPath });
      const { readable } = await answer;
      readable.on('error', () => {});
      writable.write('x');
      await take(readable, 1);
      await eventually('one in flight', async () => (await inFlight()) === 1);
      destroy();
      await sleep(20);
    });
  });

  test('HTTP/2 offered by Upgrade, as some clients do with every request, changes nothing', async () => {
    const side = client('HTTP/1.1', started.gateway.port);
    const headers = {
      connection: 'Upgrade, HTTP2-Settings',
      upgrade: 'h2c',
      'http2-settings': 'AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA',
    };
    const { status, pod, body } = await side.ask({ path: chatPath, headers, body: Buffer.from('{}') });
    expect([status, body.toString()]).toEqual([200, '{}']);
    const seen = started.gateway.pods.find(({ name }) => name === pod)!.requests.at(-1)!;
    expect(seen.headers[destination]).toMatch(/^127\.0\.0\.1:\d+,/);
    await side.close();
  });
});
