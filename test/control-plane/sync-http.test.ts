// The route of sync over real sockets: what is refused before and while a body is read, and answers on connections that are slow to take them.
import { createServer, request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { AnswerBody } from '../../control-plane/answer-body.ts';
import { LIMITS } from '../../control-plane/limits.ts';
import { isSync, syncListener } from '../../control-plane/sync-http.ts';
import { until } from './fakes.ts';

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

const ANSWER_BYTES = 250_000;

/** A server whose answers are the first byte of the body over and over, in memory that is used again. */
async function serve(): Promise<{ port: number; refused: string[]; given: number }> {
  const body = new AnswerBody();
  const seen = { port: 0, refused: [] as string[], given: 0 };
  const listener = syncListener({
    token: null,
    sync: (report) => {
      body.begin();
      body.add(new Uint8Array(ANSWER_BYTES).fill(report[0] ?? 0));
      return body.take();
    },
    sent: (answer) => {
      seen.given++;
      body.give(answer);
    },
    refused: (error) => void seen.refused.push(error.code),
  });
  const server = createServer((incoming, response) => {
    if (isSync(incoming)) listener(incoming, response);
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => {
    server.close();
    server.closeAllConnections();
  });
  seen.port = (server.address() as AddressInfo).port;
  return seen;
}

async function post(port: number, pieces: Buffer[], path = '/v1/sync'): Promise<{ status: number; body: Buffer }> {
  const sent = request({ port, host: '127.0.0.1', method: 'POST', path });
  const answered = new Promise<IncomingMessage>((resolve, reject) => sent.on('response', resolve).on('error', reject));
  // No length is said before, so it goes in chunks.
  for (const piece of pieces) sent.write(piece);
  sent.end();
  const answer = await answered;
  const parts: Buffer[] = [];
  for await (const part of answer) parts.push(part as Buffer);
  return { status: answer.statusCode ?? 0, body: Buffer.concat(parts) };
}

test('a body in chunks is taken as a whole, and refused once it is longer than allowed', async () => {
  const seen = await serve();
  const { status, body } = await post(seen.port, [Buffer.from([7]), Buffer.alloc(100_000), Buffer.alloc(1)]);
  expect([status, body.length, body.every((byte) => byte === 7)]).toEqual([200, ANSWER_BYTES, true]);
  expect((await post(seen.port, [Buffer.from([8])], '/v1/sync?x=1')).body[0]).toBe(8);
  const piece = Buffer.alloc(1 << 20);
  const long = await post(
    seen.port,
    Array.from({ length: LIMITS.syncBodyBytes / piece.length + 1 }, () => piece),
  );
  expect([long.status, JSON.parse(long.body.toString()).code]).toEqual([413, 'WARMPATH_BODY_TOO_LARGE']);
  expect(seen.refused).toEqual(['WARMPATH_BODY_TOO_LARGE']);
  expect((await post(seen.port, [Buffer.from([9])], '/v1/synchrony')).status).toBe(404);
});

test('an answer that waits for a slow reader stays as it is while others are answered', async () => {
  const seen = await serve();
  const slow = connect(seen.port, '127.0.0.1');
  closing.push(() => slow.destroy());
  const head = 'POST /v1/sync HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n';
  // More answers than the sockets hold are asked for at once, and none of them read yet.
  const asked = 100;
  slow.pause();
  for (let i = 0; i < asked; i++) slow.write(Buffer.concat([Buffer.from(head), Buffer.from([100 + (i % 100)])]));
  await until(() => seen.given > 0, 'the first to be sent');
  for (let i = 0; i < 50; i++) {
    const { body } = await post(seen.port, [Buffer.from([i])]);
    expect(body.every((byte) => byte === i)).toBe(true);
  }
  expect(seen.given).toBeLessThan(asked + 50);
  const parts: Buffer[] = [];
  let received = 0;
  slow.on('data', (part: Buffer) => {
    parts.push(part);
    received += part.length;
  });
  slow.resume();
  await until(() => received >= asked * ANSWER_BYTES && seen.given === asked + 50, 'all answers');
  const all = Buffer.concat(parts);
  for (let i = 0, at = 0; i < asked; i++) {
    at = all.indexOf('\r\n\r\n', at) + 4;
    const body = all.subarray(at, at + ANSWER_BYTES);
    expect([body.length, body.every((byte) => byte === 100 + (i % 100))]).toEqual([ANSWER_BYTES, true]);
    at += ANSWER_BYTES;
  }
});

test('a client that goes away while its answer is under way harms nobody', async () => {
  const seen = await serve();
  const head = 'POST /v1/sync HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n';
  for (let i = 0; i < 20; i++) {
    const gone = connect(seen.port, '127.0.0.1', () => {
      gone.pause();
      for (let n = 0; n < 40; n++) gone.write(`${head}a`);
      setTimeout(() => gone.resetAndDestroy(), 5);
    });
    gone.on('error', () => undefined);
    const { body } = await post(seen.port, [Buffer.from([i])]);
    expect(body.every((byte) => byte === i)).toBe(true);
  }
});
