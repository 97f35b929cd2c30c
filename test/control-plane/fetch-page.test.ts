// Pages over plain sockets: any answer in any pieces gives what Node's own server meant, and no engine can take more time or room than it may.
import fc from 'fast-check';
import { createServer, type Server, type Socket } from 'node:net';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { FetchError, Pages } from '../../control-plane/fetch-page.ts';
import { LIMITS } from '../../control-plane/limits.ts';
import { PageAnswer, type Taken } from '../../control-plane/page-answer.ts';
import { until } from './fakes.ts';

const head = (...lines: string[]): string => `${['HTTP/1.1 200 OK', ...lines].join('\r\n')}\r\n\r\n`;

/** An answer cut at these places; what it came to. */
function taken(bytes: Buffer, cuts: number[] = [], hasEnd = false): { taken: Taken; body: string; staysOpen: boolean } {
  const answer = new PageAnswer();
  let last: Taken = 'more';
  const places = [...new Set([0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length])].toSorted(
    (a, b) => a - b,
  );
  for (let i = 1; i < places.length && last === 'more'; i++)
    last = answer.take(bytes.subarray(places[i - 1], places[i]));
  if (hasEnd && last === 'more') last = answer.end();
  const result = { taken: last, body: last === 'done' ? answer.page().toString() : '', staysOpen: answer.staysOpen };
  answer.release();
  return result;
}

describe('an answer', () => {
  const body = fc.string({ maxLength: 300, unit: 'binary' }).map((text) => Buffer.from(text));
  const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 40 });
  const cuts = fc.array(fc.nat(2_000), { maxLength: 12 });

  test('in any pieces is the same: with a length, in chunks, until the end', () => {
    fc.assert(
      fc.property(body, sizes, cuts, fc.boolean(), (bytes, chunkSizes, places, hasMore) => {
        const text = bytes.toString();
        const long = Buffer.concat([Buffer.from(head(`Content-Length:${bytes.length}`, 'X: y')), bytes]);
        expect(taken(long, places)).toEqual({ taken: 'done', body: text, staysOpen: true });
        const chunks: Buffer[] = [];
        for (let at = 0, i = 0; at < bytes.length; i++) {
          const part = bytes.subarray(at, at + (chunkSizes[i] ?? bytes.length));
          chunks.push(
            Buffer.from(`${part.length.toString(16)}${hasMore ? ' ;a=b' : ''}\r\n`),
            part,
            Buffer.from('\r\n'),
          );
          at += part.length;
        }
        const last = Buffer.from(hasMore ? '0\r\nX-After: 1\r\n\r\n' : '0\r\n\r\n');
        const chunked = Buffer.concat([Buffer.from(head('transfer-encoding: chunked')), ...chunks, last]);
        expect(taken(chunked, places)).toEqual({ taken: 'done', body: text, staysOpen: true });
        const open = Buffer.concat([Buffer.from(head('connection: close')), bytes]);
        expect(taken(open, places, true)).toEqual({ taken: 'done', body: text, staysOpen: false });
        const early = Buffer.concat([Buffer.from('HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n'), long]);
        expect(taken(early, places)).toEqual({ taken: 'done', body: text, staysOpen: true });
      }),
    );
  });

  test('that is cut short, wrong or too much is no page', () => {
    const of = (text: string, hasEnd = true): Taken => taken(Buffer.from(text), [], hasEnd).taken;
    expect(of(`${head('content-length: 5')}abcd`)).toBe('malformed');
    expect(of(`${head('transfer-encoding: chunked')}5\r\nabcde\r\n`)).toBe('malformed');
    expect(of('HTTP/1.1 200 OK\r\ncontent-length: 1\r\n')).toBe('malformed');
    expect(of('')).toBe('malformed');
    for (const wrong of [
      'nothing like HTTP\r\n\r\n',
      'HTTP/2 200 OK\r\n\r\n',
      head('content-length: -1'),
      head('content-length: 1, 1'),
      head('content-length: 1', 'content-length: 2'),
      head('transfer-encoding: gzip, chunked'),
      `${head('transfer-encoding: chunked')}x\r\n`,
      `${head('transfer-encoding: chunked')}-1\r\n`,
      `${head('transfer-encoding: chunked')}1\r\nabc\r\n`,
      `${head('transfer-encoding: chunked')}${'0'.repeat(40_000)}`,
      'x'.repeat(40_000),
      'HTTP/1.1 100 Continue\r\n\r\n'.repeat(9),
    ]) {
      expect([wrong.slice(0, 60), of(wrong, false)]).toEqual([wrong.slice(0, 60), 'malformed']);
    }
    expect(of(head(`content-length: ${LIMITS.scrapeBytes + 1}`), false)).toBe('too-large');
    expect(of(`${head('transfer-encoding: chunked')}ffffffff\r\n`, false)).toBe('too-large');
    const much = Buffer.alloc(LIMITS.scrapeBytes + 1, 97);
    expect(taken(Buffer.concat([Buffer.from(head()), much]), [1_000_000], true).taken).toBe('too-large');
    expect(taken(Buffer.concat([Buffer.from(head('content-length: 2')), much.subarray(0, 3)]))).toEqual({
      taken: 'done',
      body: 'aa',
      staysOpen: false,
    });
  });

  test('of any bytes at all comes to something', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 200 }),
        cuts,
        fc.constantFrom('', head(), head('transfer-encoding: chunked')),
        (bytes, places, before) => {
          const { taken: what } = taken(Buffer.concat([Buffer.from(before), bytes]), places, true);
          expect(['done', 'malformed', 'too-large']).toContain(what);
        },
      ),
    );
  });
});

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0).reverse()) close();
});

async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function pages(): Pages {
  const made = new Pages();
  closing.push(() => made.close());
  return made;
}

/** An engine on plain sockets: what it does with the n-th request of all, counted from 1. */
async function engine(
  serve: (socket: Socket, request: number) => void,
): Promise<{ endpoint: string; connections: number }> {
  const seen = { endpoint: '', connections: 0 };
  let requests = 0;
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    seen.connections++;
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', () => serve(socket, ++requests));
  });
  seen.endpoint = await listening(server);
  closing.push(() => sockets.forEach((socket) => socket.destroy()));
  return seen;
}

const failure = async (page: Promise<unknown>): Promise<string> =>
  page.then(
    () => 'a page',
    (error: unknown) => (error instanceof FetchError ? error.reason : String(error)),
  );

test("pages of Node's own server come whole, many at a time, on one connection for each engine", async () => {
  let connections = 0;
  const text = (path: string): string => `${path} ${'x'.repeat(path.endsWith('long') ? 400_000 : 10)}`;
  const servers = await Promise.all(
    Array.from({ length: 5 }, async () => {
      const server = createHttpServer((request, response) => {
        // In two pieces, and so in chunks.
        response.write(text(request.url ?? '').slice(0, 100_000));
        response.end(text(request.url ?? '').slice(100_000));
      });
      server.on('connection', () => connections++);
      closing.push(() => server.closeAllConnections());
      return listening(server);
    }),
  );
  const client = pages();
  for (const path of ['/a', '/long', '/b', '/c-long']) {
    const got = await Promise.all(servers.map((endpoint) => client.get(endpoint, path, 5_000, String)));
    expect(got.every((page) => page === text(path))).toBe(true);
  }
  // Two pages of one engine come one after the other.
  const both = await Promise.all(['/d', '/long'].map((path) => client.get(servers[0] ?? '', path, 5_000, String)));
  expect(both).toEqual([text('/d'), text('/long')]);
  expect(connections).toBe(5);
});

test('a connection that the engine gave up is made anew, also when that shows with the next request only', async () => {
  const seen = await engine((socket, request) => {
    if (request === 2) socket.destroy();
    else socket.write(`${head('content-length: 1')}${request}`);
  });
  const client = pages();
  expect(await client.get(seen.endpoint, '/', 2_000, String)).toBe('1');
  expect(await client.get(seen.endpoint, '/', 2_000, String)).toBe('3');
  expect(seen.connections).toBe(2);
});

test('an engine that says nothing, breaks off, refuses or talks too much is told apart', async () => {
  const client = pages();
  const silent = await engine(() => undefined);
  const [first, second] = [200, 50].map((ms) => failure(client.get(silent.endpoint, '/', ms, String)));
  // The second only waits for the first.
  expect([await second, await first]).toEqual(['timeout', 'timeout']);
  expect(silent.connections).toBe(1);
  const broken = await engine((socket) => socket.end(`${head('content-length: 9')}abc`));
  expect(await failure(client.get(broken.endpoint, '/', 2_000, String))).toBe('connect');
  const refusing = await engine((socket) => socket.write('HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno'));
  expect(await failure(client.get(refusing.endpoint, '/', 2_000, String))).toBe('status');
  expect(await failure(client.get(refusing.endpoint, '/', 2_000, String))).toBe('status');
  expect(refusing.connections).toBe(1);
  const endless = await engine((socket) => {
    socket.write(head());
    const more = (): void => void (socket.destroyed || socket.write(Buffer.alloc(1 << 20), () => more()));
    more();
  });
  expect(await failure(client.get(endless.endpoint, '/', 5_000, String))).toBe('too-large');
  expect(await failure(client.get('127.0.0.1:1', '/', 2_000, String))).toBe('connect');
  const until0 = await engine((socket) => socket.end(`${head()}all of it`));
  expect(await client.get(until0.endpoint, '/', 2_000, String)).toBe('all of it');
});

test('what fails in reading a page fails the get, and what is under way fails when all is closed', async () => {
  const client = pages();
  const good = await engine((socket) => socket.write(`${head('content-length: 2')}{]`));
  expect(await failure(client.get(good.endpoint, '/', 2_000, (page) => JSON.parse(String(page)) as object))).toContain(
    'SyntaxError',
  );
  let asked = false;
  const silent = await engine(() => (asked = true));
  const waiting = failure(client.get(silent.endpoint, '/', 60_000, String));
  await until(() => asked, 'the request');
  client.close();
  expect(await waiting).toBe('connect');
  expect(await failure(client.get(good.endpoint, '/', 2_000, String))).toBe('connect');
});

test('bytes that nobody asked for end the connection', async () => {
  let isClosed = false;
  const seen = await engine((socket, request) => {
    socket.on('close', () => (isClosed = true)).write(`${head('content-length: 1')}${request}`);
    setTimeout(() => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx'), 5);
  });
  const client = pages();
  expect(await client.get(seen.endpoint, '/', 2_000, String)).toBe('1');
  await until(() => isClosed, 'the end of the connection');
  expect(await client.get(seen.endpoint, '/', 2_000, String)).toBe('2');
  expect(seen.connections).toBe(2);
});
