// Two real engines behind the real gateway: Envoy with the filter, and the control plane, which scrapes the engines. It tells of each
// request what the filter believed when it picked, which pod answered, and what the engine says of its cache.

import { setTimeout as sleep } from 'node:timers/promises';
import type { PolicyName } from '../../control-plane/engine/frames.ts';
import { startControlPlane } from '../../control-plane/server.ts';
import type { ControlPlane } from '../../control-plane/server.ts';
import { controlPlaneCluster, upstreamHeader } from '../../envoy/names.ts';
import { startEnvoy } from '../../envoy/run.ts';
import type { RunningEnvoy } from '../../envoy/run.ts';
import { send, wasmPath } from '../envoy/harness.ts';
import type { Answer, Send } from '../envoy/harness.ts';
import { readAnswer } from './answers.ts';
import type { Reading } from './answers.ts';
import { startVllm } from './engine.ts';
import type { Vllm, VllmOptions } from './engine.ts';

export const paths = {
  chat: '/v1/chat/completions',
  completions: '/v1/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
} as const;
export type Api = keyof typeof paths;

/** What the filter counted for one request. */
export interface Belief {
  promptBytes: number;
  matchedBytes: number;
}

export interface Told extends Answer, Reading, Belief {
  /** `ip:port` of the pod that answered. */
  endpoint: string;
}

export interface Rig extends AsyncDisposable {
  readonly engines: Vllm[];
  readonly controlPlane: ControlPlane;
  readonly envoy: RunningEnvoy;
  readonly port: number;
  /** Sends a body, waits for the whole answer, and tells. One at a time: what the filter counts meanwhile is this request's. */
  ask(api: Api, body: object, options?: Omit<Send, 'path' | 'body'>): Promise<Told>;
  /** Sends a body as it is, past all reading of the answer. */
  post(api: Api, body: object | Buffer, options?: Omit<Send, 'path' | 'body'>): Promise<Answer>;
  belief(): Promise<Belief>;
  /** Starts an engine again where it was. */
  restart(index: number): Promise<void>;
  /** What the control plane says of an engine's pod. */
  pod(index: number): Record<string, unknown>;
}

export interface RigOptions {
  /** One for each engine. */
  engines: VllmOptions[];
  policy?: PolicyName;
  blockBytes?: number;
  /** Whether the engines' cache events are listened to. */
  kvEvents?: 'off' | 'on';
  /** What the gateway is to call in place of an engine. */
  through?: (engine: Vllm) => Promise<string>;
}

const pool = 'vllm';
const readyMsMax = 60_000;
const syncIntervalMs = 50;

export async function startRig(options: RigOptions): Promise<Rig> {
  const open: { close: () => Promise<unknown> }[] = [];
  const close = async (): Promise<void> => {
    for (const part of open.splice(0).reverse()) await part.close();
  };
  try {
    const started = await Promise.allSettled(options.engines.map((engine) => startVllm(engine)));
    const engines = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    open.push({ close: () => Promise.all(engines.map((engine) => engine.stop())) });
    for (const one of started) if (one.status === 'rejected') throw one.reason;
    const through = options.through ?? ((engine: Vllm) => Promise.resolve(engine.endpoint));
    const endpoints = await Promise.all(engines.map(through));

    const { policy = 'prefill-cost', blockBytes, kvEvents = 'off' } = options;
    const settings = blockBytes === undefined ? {} : { blockBytes };
    const pools = [{ name: pool, endpoints, policy, scrapeIntervalMs: 250, kvEvents, ...settings }];
    const controlPlane = await startControlPlane({ host: '127.0.0.1', port: 0, syncIntervalMs, pools });
    open.push({ close: () => controlPlane.close() });

    const envoy = await startEnvoy({
      listeners: [
        {
          name: pool,
          cluster: pool,
          chain: 'warmpath',
          wasmPath: wasmPath('filter'),
          showUpstream: true,
          pluginConfig: {
            pool,
            gateway: 'test',
            sync: { cluster: controlPlaneCluster, authority: 'warmpath', intervalMs: syncIntervalMs },
          },
        },
      ],
      pools: [{ name: pool, endpoints, balancing: 'override-host' }],
      controlPlane: { host: '127.0.0.1', port: controlPlane.port },
    });
    open.push({ close: () => envoy.stop() });
    await synchronised(controlPlane);
    return new RunningRig(engines, options, endpoints, controlPlane, envoy, close);
  } catch (error) {
    await close();
    throw error;
  }
}

interface State {
  pools: {
    gateways: { live: boolean; reports: number }[];
    endpoints: Record<string, unknown>[];
  }[];
}

async function synchronised(controlPlane: ControlPlane): Promise<void> {
  const deadline = Date.now() + readyMsMax;
  for (;;) {
    const { pools } = controlPlane.state() as State;
    if (pools[0]!.gateways.some(({ live, reports }) => live && reports > 2)) return;
    if (Date.now() > deadline) throw new Error(`the filter has not synchronised after ${readyMsMax / 1000} s`);
    await sleep(20);
  }
}

class RunningRig implements Rig {
  readonly engines: Vllm[];
  readonly controlPlane: ControlPlane;
  readonly envoy: RunningEnvoy;
  readonly #options: RigOptions;
  readonly #endpoints: string[];
  readonly #close: () => Promise<void>;

  constructor(
    engines: Vllm[],
    options: RigOptions,
    endpoints: string[],
    controlPlane: ControlPlane,
    envoy: RunningEnvoy,
    close: () => Promise<void>,
  ) {
    this.engines = engines;
    this.controlPlane = controlPlane;
    this.envoy = envoy;
    this.#options = options;
    this.#endpoints = endpoints;
    this.#close = close;
  }

  get port(): number {
    return this.envoy.ports[pool]!;
  }

  post(api: Api, body: object | Buffer, options: Omit<Send, 'path' | 'body'> = {}): Promise<Answer> {
    const headers = { 'content-type': 'application/json', ...options.headers };
    const bytes = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
    return send(this.port, { ...options, path: paths[api], headers, body: bytes });
  }

  async ask(api: Api, body: object, options: Omit<Send, 'path' | 'body'> = {}): Promise<Told> {
    const before = await this.belief();
    const answer = await this.post(api, body, options);
    const after = await this.belief();
    const endpoint = String(answer.headers[upstreamHeader] ?? '');
    if (answer.status !== 200) throw new Error(`${api} was answered ${answer.status}: ${answer.body.toString()}`);
    return {
      ...answer,
      ...readAnswer(answer.body, String(answer.headers['content-type'])),
      endpoint,
      promptBytes: after.promptBytes - before.promptBytes,
      matchedBytes: after.matchedBytes - before.matchedBytes,
    };
  }

  async belief(): Promise<Belief> {
    const stats = await this.envoy.stats('warmpath_');
    const value = (name: string): number => stats[`wasmcustom.warmpath_${name}_bytes_total.pool.${pool}`] ?? 0;
    return { promptBytes: value('prompt'), matchedBytes: value('matched') };
  }

  async restart(index: number): Promise<void> {
    const { port, stop } = this.engines[index]!;
    await stop.call(this.engines[index]);
    this.engines[index] = await startVllm({ ...this.#options.engines[index], port });
  }

  pod(index: number): Record<string, unknown> {
    const { pools } = this.controlPlane.state() as State;
    const endpoint = this.#endpoints[index];
    const found = pools[0]!.endpoints.find((one) => one['endpoint'] === endpoint || one['address'] === endpoint);
    if (found === undefined) throw new Error(`the control plane knows no ${endpoint}`);
    return found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close();
  }
}
