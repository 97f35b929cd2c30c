// A gateway and an engine that are not there: what the control plane's tests talk with over loopback.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { FrameExports } from '../../control-plane/engine/frame-exports.ts';
import { Frames } from '../../control-plane/engine/frames.ts';
import type { Frame, FrameToWrite, TouchRecord } from '../../control-plane/engine/frames.ts';
import { ERROR_BOUNDS, KIND_COUNTERS, OUTCOME_COUNTERS } from '../../control-plane/engine/outcomes.ts';
import type { OutcomeKindRecord, OutcomeRecord, OutcomesRecord } from '../../control-plane/engine/outcomes.ts';
import { loadEngine } from '../../control-plane/engine/instance.ts';

export async function loadFrames(): Promise<Frames> {
  return new Frames((await loadEngine<FrameExports>()).exports);
}

export function touch(podId: number, timeMs: number, keys: bigint[], parentKey = 0n): TouchRecord {
  const weights = Uint32Array.from(keys, () => 256);
  return { podId, clear: false, timeMs, parentKey, keys: BigUint64Array.from(keys), weights };
}

const zeros = <N extends string>(names: readonly N[]): Record<N, number> =>
  Object.fromEntries(names.map((name) => [name, 0])) as Record<N, number>;

/** Totals of a pod, all zero but for what is given. */
export const podOutcome = (more: Partial<OutcomeRecord>): OutcomeRecord => ({
  ...zeros(OUTCOME_COUNTERS),
  podId: 1,
  resets: 0,
  ttftMsSum: 0,
  ...more,
});

/** Totals of English chats, or of another kind. */
export const kindOutcome = (more: Partial<OutcomeKindRecord>): OutcomeKindRecord => ({
  ...zeros(KIND_COUNTERS),
  api: 'chat',
  language: 'latin',
  errors: [...ERROR_BOUNDS, Infinity].map(() => 0),
  ...more,
});

export const outcomes = (
  pods: OutcomeRecord[],
  kinds: OutcomeKindRecord[] = [],
  ratio = { bytesPerToken: 0, ratioTokens: 0 },
): OutcomesRecord => ({ ...ratio, pods, kinds });

export interface SyncAnswer {
  status: number;
  body: Uint8Array;
  frames: Frame[];
}

/** Speaks the wire as a filter's leader does, remembering epoch, sequence, settings version and touch numbers. */
export class FakeGateway {
  epoch = 0n;
  sequence = 0n;
  settingsVersion = 0;
  touchesNext = 0n;
  incarnation: bigint;
  readonly #frames: Frames;
  readonly #name: string;
  readonly #pool: string;

  constructor(frames: Frames, name: string, pool: string, incarnation = 1n) {
    this.#frames = frames;
    this.#name = name;
    this.#pool = pool;
    this.incarnation = incarnation;
  }

  report(more: Partial<FrameToWrite> = {}): Uint8Array {
    return this.#frames.encode({
      kind: 'report',
      epoch: this.epoch,
      sequence: this.sequence,
      poolHash: this.#frames.poolHash(this.#pool),
      settingsVersion: this.settingsVersion,
      flags: [],
      gateway: { incarnation: this.incarnation, touchesNext: this.touchesNext, workers: 2, name: this.#name },
      ...more,
    });
  }

  async post(url: string, body: Uint8Array, headers: Record<string, string> = {}): Promise<SyncAnswer> {
    const response = await fetch(`${url}/v1/sync`, {
      method: 'POST',
      headers: { 'content-type': 'application/octet-stream', ...headers },
      body: Buffer.from(body),
    });
    const bytes = new Uint8Array(await response.arrayBuffer());
    return { status: response.status, body: bytes, frames: response.ok ? this.#frames.decodeAll(bytes) : [] };
  }

  /** Reports and takes the answer over. */
  async sync(url: string, more: Partial<FrameToWrite> = {}, headers: Record<string, string> = {}): Promise<Frame[]> {
    const { status, frames, body } = await this.post(url, this.report(more), headers);
    if (status !== 200) throw new Error(`sync: ${status} ${Buffer.from(body).toString()}`);
    for (const frame of frames) {
      this.epoch = frame.epoch;
      this.sequence = frame.sequence;
      if (frame.pool) this.settingsVersion = frame.settingsVersion;
      if (frame.gateway) this.touchesNext = frame.gateway.touchesNext;
    }
    return frames;
  }
}

export interface FakeEngine {
  endpoint: string;
  scrapes: number;
  connections: number;
  answer: { status: number; text: string; delayMs: number };
  close(): Promise<void>;
}

export interface EngineNumbers {
  running?: number | string;
  waiting?: number;
  kvUsage?: number;
  blocks?: number;
  started?: number;
  ttftSum?: number;
  ttftCount?: number;
}

export function metricsText(numbers: EngineNumbers = {}): string {
  const n = { running: 1, waiting: 2, kvUsage: 0.5, blocks: 100, started: 1000, ttftSum: 0, ttftCount: 0, ...numbers };
  const l = '{engine="0",model_name="m"}';
  return [
    '# HELP vllm:num_requests_running Number of requests in model execution batches.',
    `process_start_time_seconds ${n.started}`,
    `vllm:num_requests_running${l} ${n.running}`,
    `vllm:num_requests_waiting${l} ${n.waiting}`,
    `vllm:kv_cache_usage_perc${l} ${n.kvUsage}`,
    `vllm:prefix_cache_queries_total${l} 100`,
    `vllm:prefix_cache_hits_total${l} 40`,
    `vllm:time_to_first_token_seconds_sum${l} ${n.ttftSum}`,
    `vllm:time_to_first_token_seconds_count${l} ${n.ttftCount}`,
    `vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="${n.blocks}"} 1.0`,
    '',
  ].join('\n');
}

export async function startFakeEngine(text = metricsText()): Promise<FakeEngine> {
  const engine = { scrapes: 0, connections: 0, answer: { status: 200, text, delayMs: 0 } };
  const server = createServer((_request, response) => {
    engine.scrapes++;
    const { status, text: body, delayMs } = engine.answer;
    setTimeout(() => {
      response.writeHead(status, { 'content-type': 'text/plain' });
      response.end(body);
    }, delayMs);
  });
  server.on('connection', () => engine.connections++);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(engine, {
    endpoint: `127.0.0.1:${port}`,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  });
}

/** Waits until something holds, for tests of what happens by itself. */
export async function until(condition: () => boolean | Promise<boolean>, what: string, waitMs = 20_000): Promise<void> {
  const endMs = Date.now() + waitMs;
  while (!(await condition())) {
    if (Date.now() > endMs) throw new Error(`waited in vain for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
