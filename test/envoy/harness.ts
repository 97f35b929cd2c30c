// For end-to-end tests: a real Envoy with the filter in front of recording backends, both ended with the test.
//
//   const gateway = await startGateway({ pods: 2, wasm: 'filter', pluginConfig: { pool: 'pool', ... } });
//   const answer = await gateway.chat({ messages: [...] });
//   gateway.pods[0].requests ...
//   await gateway.close();            // or: await using gateway = await startGateway(...)

import { request } from 'node:http';
import type { Agent, IncomingHttpHeaders, IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ControlPlaneOptions } from '../../envoy/cluster.ts';
import { envoyVersions } from '../../envoy/fetch.ts';
import type { Chain, ListenerOptions } from '../../envoy/listener.ts';
import { startEnvoy } from '../../envoy/run.ts';
import type { EnvoyOptions, RunningEnvoy } from '../../envoy/run.ts';
import { Backend } from './backend.ts';
import type { Behaviour, Recorded } from './backend.ts';

export { Backend, envoyVersions };
export type { Behaviour, Recorded, RunningEnvoy };

/** Where `npm run build` leaves a module. */
export const wasmPath = (name: string): string => fileURLToPath(new URL(`../../build/${name}.wasm`, import.meta.url));

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** The pod that answered. */
  pod: string | undefined;
}

export interface Send {
  method?: string;
  path?: string;
  headers?: OutgoingHttpHeaders;
  /** Several chunks are written one after the other, each in a chunk of its own, without content-length. */
  body?: string | Buffer | (string | Buffer)[];
  trailers?: Record<string, string>;
  /** Keeps connections open between requests; without it each request has its own. */
  agent?: Agent;
  signal?: AbortSignal;
  onChunk?: (chunk: Buffer) => void;
}

/** One request; rejects when the connection breaks. */
export function send(
  port: number,
  { method = 'POST', path = '/', headers = {}, body, trailers, agent, signal, onChunk }: Send,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const options = {
      host: '127.0.0.1',
      port,
      method,
      path,
      headers,
      agent: agent ?? false,
      ...(signal ? { signal } : {}),
    };
    const outgoing = request(options, (incoming: IncomingMessage) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        onChunk?.(chunk);
      });
      incoming.on('error', reject);
      incoming.on('end', () => {
        const pod = incoming.headers['x-pod'];
        resolve({
          status: incoming.statusCode ?? 0,
          headers: incoming.headers,
          body: Buffer.concat(chunks),
          pod: typeof pod === 'string' ? pod : undefined,
        });
      });
    });
    outgoing.on('error', reject);
    if (trailers) {
      outgoing.setHeader('trailer', Object.keys(trailers).join(','));
      outgoing.setHeader('transfer-encoding', 'chunked');
      outgoing.addTrailers(trailers);
    }
    if (Array.isArray(body)) for (const part of body) outgoing.write(part);
    else if (body !== undefined) {
      if (!trailers) outgoing.setHeader('content-length', Buffer.byteLength(body));
      outgoing.write(body);
    }
    outgoing.end();
  });
}

export interface GatewayOptions extends Partial<Omit<EnvoyOptions, 'listeners' | 'pools'>> {
  /** Where backends listen; 127.0.0.1 if left out. */
  podHost?: string;
  /** How many backends, or their behaviours. */
  pods?: number | Backend['behaviour'][];
  /** Module in build/; the chain is `warmpath` around it. */
  wasm?: string;
  pluginConfig?: ListenerOptions['pluginConfig'];
  listener?: Partial<ListenerOptions>;
  /** More listeners over the same pool, one of each chain, named by it: to compare with. */
  beside?: Chain[];
  controlPlane?: ControlPlaneOptions;
}

export interface Gateway extends AsyncDisposable {
  readonly envoy: RunningEnvoy;
  readonly pods: Backend[];
  readonly port: number;
  /** The listener's options, to change and give to `reconfigure`. */
  readonly listener: Omit<ListenerOptions, 'port'>;
  readonly send: (what: Send) => Promise<Answer>;
  /** POST of JSON to /v1/chat/completions. */
  readonly chat: (body: unknown, headers?: OutgoingHttpHeaders) => Promise<Answer>;
  /** Another plugin configuration, module ... under load. */
  readonly reconfigure: (change: Partial<Omit<ListenerOptions, 'port' | 'name'>>) => Promise<void>;
  readonly close: () => Promise<void>;
}

/** One listener `gateway` over one pool `pool`. */
export async function startGateway(options: GatewayOptions = {}): Promise<Gateway> {
  const { pods: wanted = 2, podHost, wasm = 'filter', pluginConfig, listener: extra, beside = [], ...rest } = options;
  const behaviours = typeof wanted === 'number' ? Array.from({ length: wanted }, () => ({})) : wanted;
  const pods = await Promise.all(behaviours.map((behaviour, i) => Backend.start(`pod-${i}`, behaviour, 0, podHost)));
  const listener: Omit<ListenerOptions, 'port'> = {
    name: 'gateway',
    cluster: 'pool',
    chain: 'warmpath',
    wasmPath: wasmPath(wasm),
    showUpstream: true,
    ...(pluginConfig === undefined ? {} : { pluginConfig }),
    ...extra,
  };
  const others = beside.map((chain) => ({ ...listener, name: chain, chain, wasmPath: wasmPath('empty') }));
  const pool = { name: 'pool', endpoints: pods.map(({ endpoint }) => endpoint), balancing: 'override-host' as const };
  const closePods = async (): Promise<void> => void (await Promise.all(pods.map((pod) => pod.close())));
  let envoy: RunningEnvoy;
  try {
    envoy = await startEnvoy({ ...rest, listeners: [listener, ...others], pools: [pool] });
  } catch (error) {
    await closePods();
    throw error;
  }
  const port = envoy.ports['gateway']!;
  const close = async (): Promise<void> => {
    await envoy.stop();
    await closePods();
  };
  return {
    envoy,
    pods,
    port,
    listener,
    send: (what) => send(port, what),
    chat: (body, headers = {}) =>
      send(port, {
        path: '/v1/chat/completions',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      }),
    async reconfigure(change) {
      Object.assign(listener, change);
      await envoy.update({ listeners: [listener, ...others] });
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Waits until `check` gives something; fails with `what` after `timeoutMs`. */
export async function eventually<T>(
  what: string,
  check: () => T | Promise<T>,
  timeoutMs = 20_000,
): Promise<Exclude<T, false | 0 | '' | null | undefined>> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await check();
    if (value) return value as Exclude<T, false | 0 | '' | null | undefined>;
    if (Date.now() > deadline) throw new Error(`not after ${timeoutMs} ms: ${what}`);
    await sleep(20);
  }
}
