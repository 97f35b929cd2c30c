// A pod for tests: a tiny HTTP server that records what reaches it and answers as told.

import { createServer } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';

export interface Recorded {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  trailers: NodeJS.Dict<string>;
  body: Buffer;
}

export interface Sse {
  /** Data of each event, in order; `[DONE]` is not added. */
  events: string[];
  /** Pause before each event. */
  gapMs?: number;
  /** The last event is not sent before. */
  until?: Promise<unknown>;
}

export interface Behaviour {
  status?: number;
  headers?: Record<string, string>;
  /** Answered as it is; without it, the request's own body is echoed. Pieces are written one by one. */
  body?: string | Buffer | Buffer[];
  trailers?: Record<string, string>;
  sse?: Sse;
  delayMs?: number;
  /** Cuts the connection in place of an answer, or after the headers, or after the first event. */
  cut?: 'before' | 'headers' | 'first-event';
  /** Never answers. */
  hang?: boolean;
}

/** Requests to paths that start so are answered while they come, piece by piece. */
export const mirrorPath = '/mirror';

export class Backend {
  readonly name: string;
  /** `ip:port` */
  readonly endpoint: string;
  readonly requests: Recorded[] = [];
  /** How many requests have begun to arrive, whole or not. */
  arrived = 0;
  /** What it does; may depend on the request. */
  behaviour: Behaviour | ((request: Recorded) => Behaviour) = {};
  readonly #server: Server;
  readonly #sockets: Set<Socket>;

  private constructor(name: string, server: Server, sockets: Set<Socket>) {
    this.name = name;
    this.#server = server;
    this.#sockets = sockets;
    const { address, family, port } = server.address() as AddressInfo;
    this.endpoint = `${family === 'IPv6' ? `[${address}]` : address}:${port}`;
  }

  static async start(
    name: string,
    behaviour: Backend['behaviour'] = {},
    port = 0,
    host = '127.0.0.1',
  ): Promise<Backend> {
    const sockets = new Set<Socket>();
    const server = createServer({ keepAliveTimeout: 30_000 });
    server.on('connection', (socket) => {
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, resolve);
    });
    const backend = new Backend(name, server, sockets);
    backend.behaviour = behaviour;
    server.on('request', (request, response) => void backend.#serve(request, response));
    server.on('upgrade', (request, socket: Socket) => backend.#upgrade(request, socket));
    return backend;
  }

  /** Ends it as a killed pod ends: every connection is cut. */
  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Both directions of an upgraded connection: what comes goes back. */
  #upgrade(request: IncomingMessage, socket: Socket): void {
    this.arrived += 1;
    this.#record(request, Buffer.alloc(0));
    const protocol = request.headers.upgrade ?? '';
    socket.on('error', () => {});
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: ${protocol}\r\nx-pod: ${this.name}\r\n\r\n`,
    );
    socket.pipe(socket);
  }

  #record(request: IncomingMessage, body: Buffer): Recorded {
    const { method = '', url = '', headers, trailers } = request;
    const recorded: Recorded = { method, path: url, headers, trailers, body };
    this.requests.push(recorded);
    return recorded;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // No test asks a backend for its metrics. Another test's control plane may, which had a pod at this port before the port was free again.
    if (request.url === '/metrics') {
      response.writeHead(404).end();
      return;
    }
    this.arrived += 1;
    response.on('error', () => {});
    if (request.url?.startsWith(mirrorPath)) {
      response.writeHead(200, { 'x-pod': this.name, trailer: 'x-mirrored' });
      response.flushHeaders();
      this.#record(request, Buffer.alloc(0));
      request.on('error', () => {});
      request.on('end', () => response.addTrailers({ 'x-mirrored': 'whole' }));
      request.pipe(response);
      return;
    }
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      // The client has gone; what there was of its request is not one.
      return;
    }
    const recorded = this.#record(request, Buffer.concat(chunks));
    const does = typeof this.behaviour === 'function' ? this.behaviour(recorded) : this.behaviour;
    if (does.hang) return;
    if (does.delayMs) await sleep(does.delayMs);
    if (does.cut === 'before') return void response.destroy();
    const type = does.sse ? { 'content-type': 'text/event-stream' } : {};
    response.writeHead(does.status ?? 200, { 'x-pod': this.name, ...type, ...does.headers });
    response.flushHeaders();
    if (does.cut === 'headers') return void setTimeout(() => response.destroy(), 5);
    if (does.trailers) response.addTrailers(does.trailers);
    if (Array.isArray(does.body)) {
      for (const piece of does.body) {
        response.write(piece);
        await turn();
      }
      return void response.end();
    }
    if (!does.sse) return void response.end(does.body ?? recorded.body);
    for (const [i, event] of does.sse.events.entries()) {
      if (does.sse.gapMs) await sleep(does.sse.gapMs);
      if (does.sse.until && i === does.sse.events.length - 1) await does.sse.until;
      if (response.destroyed) return;
      response.write(`data: ${event}\n\n`);
      if (does.cut === 'first-event' && i === 0) return void setTimeout(() => response.destroy(), 5);
    }
    response.end();
  }
}
