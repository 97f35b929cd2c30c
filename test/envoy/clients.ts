// Clients that speak HTTP/1.1 or HTTP/2 over one connection and control every write: what a test sends piece by piece
// reaches Envoy piece by piece, and what comes back is kept as it came.

import { once } from 'node:events';
import { Agent, request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:http2';
import type { ClientHttp2Session, OutgoingHttpHeaders } from 'node:http2';
import type { Duplex, Readable, Writable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';

export type HeaderValues = Record<string, string | string[]>;

export interface Asked {
  method?: string;
  path?: string;
  headers?: HeaderValues;
  /** Pieces are written one after the other with a turn of the event loop in between, without content-length. */
  body?: Buffer | Buffer[];
  trailers?: Record<string, string>;
  /** Sends `Expect: 100-continue`, and the body once it may. */
  expects?: boolean;
}

export interface Answered {
  status: number;
  headers: Record<string, unknown>;
  trailers: Record<string, unknown>;
  body: Buffer;
  /** The body in the pieces in which it came. */
  pieces: Buffer[];
  /** Whether 100 Continue came first. */
  isContinued: boolean;
  pod: string | undefined;
}

/** A request whose body is still open. */
export interface Opened {
  writable: Writable;
  /** Settles with the answer's headers, which may come before the request has ended. */
  answer: Promise<{ status: number; headers: Record<string, unknown>; readable: Readable }>;
  /** Cuts the request off. */
  destroy(): void;
}

export interface Client {
  ask(what: Asked): Promise<Answered>;
  open(what: Omit<Asked, 'body' | 'expects'>): Opened;
  /** A websocket to `path`: both directions after the handshake, and its status. */
  upgrade(path: string, headers?: HeaderValues): Promise<{ status: number; socket: Duplex | undefined }>;
  /** How many connections were made so far. */
  readonly connections: number;
  close(): Promise<void>;
}

export type Protocol = 'HTTP/1.1' | 'HTTP/2';
export const protocols: readonly Protocol[] = ['HTTP/1.1', 'HTTP/2'];

export const client = (protocol: Protocol, port: number): Client =>
  protocol === 'HTTP/2' ? new Client2(port) : new Client1(port);

async function writeAll(writable: Writable, body: Asked['body']): Promise<void> {
  for (const piece of Array.isArray(body) ? body : body ? [body] : []) {
    if (writable.destroyed) return;
    writable.write(piece);
    if (Array.isArray(body)) await turn();
  }
  writable.end();
}

async function readAll(readable: Readable): Promise<Buffer[]> {
  const pieces: Buffer[] = [];
  for await (const piece of readable) pieces.push(piece as Buffer);
  return pieces;
}

const podOf = (headers: Record<string, unknown>): string | undefined => {
  const pod = headers['x-pod'];
  return typeof pod === 'string' ? pod : undefined;
};

class Client1 implements Client {
  readonly #port: number;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #sockets = new Set<object>();

  constructor(port: number) {
    this.#port = port;
  }

  get connections(): number {
    return this.#sockets.size;
  }

  #request({ method = 'POST', path = '/', headers = {} }: Asked) {
    const outgoing = request({ host: '127.0.0.1', port: this.#port, method, path, headers, agent: this.#agent });
    outgoing.on('socket', (socket) => this.#sockets.add(socket.setNoDelay()));
    return outgoing;
  }

  async ask(what: Asked): Promise<Answered> {
    const { body, trailers, expects = false, headers = {} } = what;
    const isWhole = body !== undefined && !Array.isArray(body) && !trailers;
    const outgoing = this.#request({
      ...what,
      headers: {
        ...headers,
        ...(isWhole ? { 'content-length': `${body.length}` } : {}),
        ...(trailers ? { 'transfer-encoding': 'chunked', trailer: Object.keys(trailers).join(',') } : {}),
        ...(expects ? { expect: '100-continue' } : {}),
      },
    });
    const answered = once(outgoing, 'response') as Promise<[IncomingMessage]>;
    // An answer that comes before the body has ended may cut the body off; the answer is what counts.
    answered.catch(() => {});
    outgoing.on('error', () => {});
    if (trailers) outgoing.addTrailers(trailers);
    let isContinued = false;
    if (expects) {
      outgoing.flushHeaders();
      isContinued = await Promise.race([once(outgoing, 'continue').then(() => true), answered.then(() => false)]);
    }
    const written = writeAll(outgoing, body);
    const [incoming] = await answered;
    const pieces = await readAll(incoming);
    await written;
    return {
      status: incoming.statusCode!,
      headers: incoming.headers,
      trailers: incoming.trailers,
      body: Buffer.concat(pieces),
      pieces,
      isContinued,
      pod: podOf(incoming.headers),
    };
  }

  open(what: Omit<Asked, 'body' | 'expects'>): Opened {
    const outgoing = this.#request(what);
    outgoing.on('error', () => {});
    outgoing.flushHeaders();
    const answer = (once(outgoing, 'response') as Promise<[IncomingMessage]>).then(([incoming]) => ({
      status: incoming.statusCode!,
      headers: incoming.headers,
      readable: incoming,
    }));
    answer.catch(() => {});
    return { writable: outgoing, answer, destroy: () => outgoing.destroy() };
  }

  async upgrade(path: string, headers: HeaderValues = {}): Promise<{ status: number; socket: Duplex | undefined }> {
    const handshake = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' };
    const outgoing = this.#request({
      method: 'GET',
      path,
      headers: { ...handshake, 'sec-websocket-key': 'd2FybXBhdGggd2FybXBhdA==', ...headers },
    });
    outgoing.end();
    return new Promise((resolve, reject) => {
      outgoing.once('error', reject);
      outgoing.once('upgrade', ({ statusCode }, socket) => resolve({ status: statusCode!, socket }));
      outgoing.once('response', (incoming) => {
        incoming.resume();
        resolve({ status: incoming.statusCode!, socket: undefined });
      });
    });
  }

  close(): Promise<void> {
    this.#agent.destroy();
    return Promise.resolve();
  }
}

class Client2 implements Client {
  readonly #session: ClientHttp2Session;
  readonly connections = 1;

  constructor(port: number) {
    this.#session = connect(`http://127.0.0.1:${port}`);
    this.#session.on('error', () => {});
  }

  #request({ method = 'POST', path = '/', headers = {}, trailers }: Asked, endStream: boolean) {
    const all: OutgoingHttpHeaders = { ...headers, ':method': method, ':path': path };
    const stream = this.#session.request(all, { endStream, waitForTrailers: trailers !== undefined });
    if (trailers) stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    return stream;
  }

  async ask(what: Asked): Promise<Answered> {
    const { body, trailers, expects = false } = what;
    const headers = {
      ...what.headers,
      ...(body !== undefined && !Array.isArray(body) && !trailers ? { 'content-length': `${body.length}` } : {}),
      ...(expects ? { expect: '100-continue' } : {}),
    };
    const stream = this.#request({ ...what, headers }, body === undefined && !trailers);
    stream.on('error', () => {});
    const answered = once(stream, 'response') as Promise<[Record<string, unknown>]>;
    answered.catch(() => {});
    let isContinued = false;
    if (expects) {
      isContinued = await Promise.race([once(stream, 'continue').then(() => true), answered.then(() => false)]);
    }
    let answerTrailers = {};
    stream.on('trailers', (last) => (answerTrailers = last));
    if (body !== undefined || trailers) void writeAll(stream, body);
    const [head] = await answered;
    const pieces = await readAll(stream);
    return {
      status: Number(head[':status']),
      headers: head,
      trailers: answerTrailers,
      body: Buffer.concat(pieces),
      pieces,
      isContinued,
      pod: podOf(head),
    };
  }

  open(what: Omit<Asked, 'body' | 'expects'>): Opened {
    const stream = this.#request(what, false);
    stream.on('error', () => {});
    const answer = (once(stream, 'response') as Promise<[Record<string, unknown>]>).then(([head]) => ({
      status: Number(head[':status']),
      headers: head,
      readable: stream,
    }));
    answer.catch(() => {});
    return { writable: stream, answer, destroy: () => stream.close(8) };
  }

  async upgrade(path: string, headers: HeaderValues = {}): Promise<{ status: number; socket: Duplex | undefined }> {
    if (!this.#session.remoteSettings) await once(this.#session, 'remoteSettings');
    const stream = this.#session.request({
      ...headers,
      ':method': 'CONNECT',
      ':protocol': 'websocket',
      ':scheme': 'http',
      ':path': path,
      'sec-websocket-version': '13',
    });
    stream.on('error', () => {});
    const [head] = (await once(stream, 'response')) as [Record<string, unknown>];
    const status = Number(head[':status']);
    return { status, socket: status === 200 ? stream : undefined };
  }

  async close(): Promise<void> {
    this.#session.destroy();
    if (!this.#session.closed) await once(this.#session, 'close');
  }
}
