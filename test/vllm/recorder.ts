// Stands between the gateway and one engine, changes nothing and keeps every byte of body that passed, so that a test can compare what the
// client sent with what the engine got, and what the engine answered with what the client got.

import { createServer, request } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Exchange {
  path: string;
  requestBody: Buffer;
  responseBody: Buffer;
  responseType: string;
}

export interface Recorder {
  endpoint: string;
  /** POST requests in the order of their ends. */
  exchanges: Exchange[];
  close(): Promise<void>;
}

export async function startRecorder(engine: string): Promise<Recorder> {
  const { hostname, port } = new URL(engine);
  const exchanges: Exchange[] = [];

  const pass = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const sent: Buffer[] = [];
    const got: Buffer[] = [];
    const { method, url: path = '/', headers } = incoming;
    const upstream = request({ hostname, port, method, path, headers, agent: false }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
      answer.on('data', (chunk: Buffer) => {
        got.push(chunk);
        outgoing.write(chunk);
      });
      answer.on('end', () => {
        const responseType = answer.headers['content-type'] ?? '';
        const bodies = { requestBody: Buffer.concat(sent), responseBody: Buffer.concat(got) };
        if (method === 'POST') exchanges.push({ path, ...bodies, responseType });
        outgoing.end();
      });
      answer.on('error', () => outgoing.destroy());
    });
    upstream.on('error', () => outgoing.destroy());
    outgoing.on('close', () => upstream.destroy());
    incoming.on('data', (chunk: Buffer) => {
      sent.push(chunk);
      upstream.write(chunk);
    });
    incoming.on('end', () => upstream.end());
  };

  const server = createServer(pass);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    endpoint: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    exchanges,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
