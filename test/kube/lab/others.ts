// What else a gateway serves: a server for uploads, server-sent events and websockets, and one that speaks gRPC's framing over HTTP/2, with a route to
// each; and what a client sees of them. Warmpath must change nothing about it.

import { createHash, randomBytes } from 'node:crypto';
import { createServer, request as httpRequest } from 'node:http';
import { connect, createServer as createHttp2Server } from 'node:http2';
import type { Cluster } from './cluster.ts';
import { gatewayIp, gatewayName, gatewayPort, llm } from './cluster.ts';

const plainIp = '10.244.3.1';
const grpcIp = '10.244.3.2';
const port = 9000;

export interface Seen {
  /** Bytes that arrived of a large upload, and their digest. */
  upload: [number, boolean];
  /** Whether a part of the answer came while the request was still being sent. */
  duplex: boolean;
  websocket: string;
  grpc: { status: string; messages: number };
  /** The destination header as the server sees it when a client sends one. */
  destination: string;
}

export class Others {
  readonly #close: (() => void)[] = [];

  async start(cluster: Cluster): Promise<void> {
    const http = createServer((request, response) => {
      if (request.url === '/duplex') {
        response.writeHead(200);
        request.on('data', (chunk: Buffer) => response.write(chunk)).on('end', () => response.end());
        return;
      }
      const hash = createHash('sha256');
      let bytes = 0;
      request.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        hash.update(chunk);
      });
      request.on('end', () => {
        const destination = request.headers['x-gateway-destination-endpoint'] ?? '';
        response.end(JSON.stringify({ bytes, digest: hash.digest('hex'), destination }));
      });
    });
    http.on('upgrade', (request, socket) => {
      const accept = createHash('sha1')
        .update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
        .digest('base64');
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`,
      );
      socket.on('data', (data: Buffer) => socket.write(data));
      socket.on('error', () => socket.destroy());
    });
    const grpc = createHttp2Server();
    grpc.on('stream', (stream) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      // Each message is answered as it comes, as a bidirectional call does.
      stream.on('data', (data: Buffer) => stream.write(data));
      stream.on('end', () => stream.end());
    });
    await new Promise<void>((resolve) => http.listen(port, plainIp, resolve));
    await new Promise<void>((resolve) => grpc.listen(port, grpcIp, resolve));
    this.#close.push(
      () => http.close(),
      () => http.closeAllConnections(),
      () => grpc.close(),
    );
    await this.#route(cluster, 'other', plainIp, 'http');
    await this.#route(cluster, 'grpc', grpcIp, 'kubernetes.io/h2c');
  }

  async #route(cluster: Cluster, name: string, ip: string, appProtocol: string): Promise<void> {
    await cluster.addPod({ name, ip, labels: { app: name }, ports: [port] });
    await cluster.kube.apply([
      {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name, namespace: llm },
        spec: { selector: { app: name }, ports: [{ name: 'main', port, targetPort: port, appProtocol }] },
      },
      {
        apiVersion: 'gateway.networking.k8s.io/v1',
        kind: 'HTTPRoute',
        metadata: { name, namespace: llm },
        spec: {
          parentRefs: [{ name: gatewayName }],
          hostnames: [`${name}.example`],
          rules: [{ backendRefs: [{ name, port }], timeouts: { request: '0s' } }],
        },
      },
    ]);
    await cluster.writeSlices(name);
  }

  /** Everything once, through the gateway. */
  async see(): Promise<Seen> {
    const { bytes, digest, sent } = await upload();
    const { destination } = await plainPost('x', { 'x-gateway-destination-endpoint': '10.244.2.1:8000' });
    return {
      upload: [bytes, digest === sent],
      duplex: await duplex(),
      websocket: await websocket(),
      grpc: await grpc(),
      destination,
    };
  }

  stop(): void {
    for (const close of this.#close) close();
  }
}

interface Told {
  bytes: number;
  digest: string;
  destination: string;
}

const host = 'other.example';
const target = { host: gatewayIp, port: gatewayPort };

async function plainPost(body: string | Buffer, headers: Record<string, string> = {}): Promise<Told> {
  return new Promise((resolve, reject) => {
    const sending = httpRequest(
      { ...target, method: 'POST', path: '/v1/chat/completions', headers: { host, ...headers } },
      (answer) => {
        let text = '';
        answer.on('data', (part) => (text += String(part)));
        answer.on('end', () => {
          try {
            resolve(JSON.parse(text) as Told);
          } catch {
            reject(new Error(`${answer.statusCode} ${text}`));
          }
        });
      },
    );
    sending.on('error', reject);
    sending.end(body);
  });
}

/** Larger than what is held on the LLM routes, to the path of one. */
async function upload(): Promise<Told & { sent: string }> {
  const body = randomBytes(80 << 20);
  const sent = createHash('sha256').update(body).digest('hex');
  return { ...(await plainPost(body)), sent };
}

async function duplex(): Promise<boolean> {
  return new Promise((resolve, reject) => {
    let hasEnded = false;
    const sending = httpRequest({ ...target, method: 'POST', path: '/duplex', headers: { host } }, (answer) => {
      answer.on('data', () => {
        if (hasEnded) return;
        hasEnded = true;
        sending.end();
        answer.on('end', () => resolve(true));
        answer.resume();
      });
      answer.on('error', reject);
    });
    sending.setTimeout(5_000, () => {
      sending.destroy();
      resolve(false);
    });
    sending.on('error', () => resolve(false));
    sending.write('first');
  });
}

async function websocket(): Promise<string> {
  return new Promise((resolve, reject) => {
    const sending = httpRequest({
      ...target,
      path: '/v1/chat/completions',
      headers: {
        host,
        connection: 'upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': randomBytes(16).toString('base64'),
      },
    });
    sending.on('upgrade', (_answer, socket) => {
      socket.on('data', (data: Buffer) => {
        resolve(String(data));
        socket.destroy();
      });
      socket.write('echo');
    });
    sending.on('response', (answer) => resolve(`status ${answer.statusCode}`));
    sending.setTimeout(5_000, () => resolve('nothing came'));
    sending.on('error', reject);
    sending.end();
  });
}

async function grpc(): Promise<{ status: string; messages: number }> {
  return new Promise((resolve, reject) => {
    const session = connect(`http://${gatewayIp}:${gatewayPort}`);
    session.on('error', reject);
    const call = session.request({
      ':method': 'POST',
      ':path': '/chat.Service/Talk',
      ':authority': 'grpc.example',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    let messages = 0;
    let status = '';
    const message = Buffer.from([0, 0, 0, 0, 2, 0x68, 0x69]);
    call.on('data', () => {
      messages++;
      // The next one goes out only when the one before has come back.
      if (messages < 3) call.write(message);
      else call.end();
    });
    call.on('trailers', (trailers) => (status = String(trailers['grpc-status'])));
    call.on('close', () => {
      session.close();
      resolve({ status, messages });
    });
    call.setTimeout(5_000, () => call.close());
    call.write(message);
  });
}
