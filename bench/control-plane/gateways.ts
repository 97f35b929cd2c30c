// The gateways of the control plane's bench, in a thread of their own. Each reports what a real one would: the touches of its requests, the
// load it has in flight and its outcomes; and it goes by the answer's epoch, version and sequence. Answers are checked, as a
// filter does, but not applied: applying is the gateways' cost, not the control plane's.
import { parentPort, workerData } from 'node:worker_threads';
import { Agent, request } from 'undici';
import { Frames, type LoadRecord, type TouchRecord } from '../../control-plane/engine/frames.ts';
import type { FrameExports } from '../../control-plane/engine/frame-exports.ts';
import { OUTCOME_COUNTERS, type OutcomeRecord, type OutcomesRecord } from '../../control-plane/engine/outcomes.ts';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import { Random } from '../../sim/random.ts';

export interface GatewaysTask {
  url: string;
  pool: string;
  pods: number;
  gateways: number;
  requestsPerSecond: number;
  keys: number;
  syncIntervalMs: number;
}

export interface GatewaysResult {
  latenciesMs: number[];
  failed: number;
  upBytes: number;
  downBytes: number;
}

/** Requests in flight at a gateway: this many seconds' worth. */
const REQUEST_SECONDS = 4;
const BLOCK_BYTES = 256;

type Counters = Omit<OutcomeRecord, 'podId' | 'resets' | 'ttftMsSum'>;

const task = workerData as GatewaysTask;
const frames = new Frames((await loadEngine<FrameExports>()).exports);
const poolHash = frames.poolHash(task.pool);
const agent = new Agent({ connections: task.gateways, pipelining: 1 });
const random = new Random(1);
let result: GatewaysResult = { latenciesMs: [], failed: 0, upBytes: 0, downBytes: 0 };
let podIds: number[] = [];

const someKey = (): bigint => (BigInt(random.below(2 ** 32)) << 32n) | BigInt(random.below(2 ** 32));

class Gateway {
  readonly #name: string;
  readonly #incarnation = someKey();
  #epoch = 0n;
  #sequence = 0n;
  #settingsVersion = 0;
  #touchesNext = 0n;
  #due = 0;
  readonly #outcomeOf = new Map<number, OutcomeRecord>();
  readonly #inFlight: { podId: number; endsMs: number }[] = [];

  constructor(name: string) {
    this.#name = name;
  }

  /** One report and its answer. */
  async sync(nowMs: number): Promise<void> {
    const touches = this.#requests(nowMs);
    const body = frames.encode({
      kind: 'report',
      epoch: this.#epoch,
      sequence: this.#sequence,
      poolHash,
      settingsVersion: this.#settingsVersion,
      flags: [],
      load: this.#load(nowMs),
      touches,
      outcomes: this.#outcomes(touches),
      gateway: { incarnation: this.#incarnation, touchesNext: this.#touchesNext, workers: 4, name: this.#name },
    });
    this.#touchesNext += BigInt(touches.length);
    const startedMs = performance.now();
    const answer = await request(`${task.url}/v1/sync`, { method: 'POST', body, dispatcher: agent });
    const bytes = new Uint8Array(await answer.body.arrayBuffer());
    result.latenciesMs.push(performance.now() - startedMs);
    result.upBytes += body.length;
    result.downBytes += bytes.length;
    if (answer.statusCode === 200) this.#take(bytes);
    else result.failed++;
  }

  #requests(nowMs: number): TouchRecord[] {
    if (podIds.length === 0) return [];
    this.#due += (task.requestsPerSecond * task.syncIntervalMs) / 1000;
    const touches: TouchRecord[] = [];
    for (; this.#due >= 1; this.#due--) {
      const podId = podIds[random.below(podIds.length)] as number;
      this.#inFlight.push({ podId, endsMs: nowMs + REQUEST_SECONDS * 1000 });
      const keys = BigUint64Array.from({ length: task.keys }, someKey);
      const weights = new Uint32Array(task.keys).fill(BLOCK_BYTES);
      touches.push({ podId, clear: false, timeMs: Date.now(), parentKey: 0n, keys, weights });
    }
    return touches;
  }

  /** Totals of the pods that this gateway has just sent requests to, as a leader reports those that changed. */
  #outcomes(touches: TouchRecord[]): OutcomesRecord {
    const promptBytes = task.keys * BLOCK_BYTES;
    const pods = touches.map(({ podId }) => {
      const nothing = Object.fromEntries(OUTCOME_COUNTERS.map((name) => [name, 0]));
      const record = this.#outcomeOf.get(podId) ?? { podId, resets: 0, ttftMsSum: 0, ...(nothing as Counters) };
      record.ok++;
      record.promptBytes += promptBytes;
      record.promptTokens += promptBytes / 4;
      record.completionTokens += 100;
      this.#outcomeOf.set(podId, record);
      return record;
    });
    return { bytesPerToken: 4, ratioTokens: 100_000, pods, kinds: [] };
  }

  #load(nowMs: number): LoadRecord[] {
    while (this.#inFlight[0] && this.#inFlight[0].endsMs <= nowMs) this.#inFlight.shift();
    const byPod = new Map<number, LoadRecord>();
    for (const { podId } of this.#inFlight) {
      const none = { podId, inFlight: 0, prefillTokens: 0, usedTokens: 0, ageMs: 1, slowness: 0.0001 };
      const record = byPod.get(podId) ?? none;
      record.inFlight++;
      record.usedTokens += (task.keys * BLOCK_BYTES) / 4;
      byPod.set(podId, record);
    }
    return [...byPod.values()];
  }

  #take(body: Uint8Array): void {
    for (let at = 0; at < body.length;) {
      const code = frames.check(body.subarray(at));
      if (code !== 'ok') throw new Error(`the answer's frame at byte ${at} is refused: ${code}`);
      // Only the first answer has the endpoints; the others are not taken apart.
      if (podIds.length === 0) podIds = frames.read().endpoints?.map((endpoint) => endpoint.podId) ?? [];
      const head = frames.head();
      this.#epoch = head.epoch;
      this.#sequence = head.sequence;
      this.#settingsVersion = head.settingsVersion;
      at += frames.bytes();
    }
  }
}

function run(gateway: Gateway, firstMs: number): void {
  let dueMs = firstMs;
  const turn = async (): Promise<void> => {
    await gateway.sync(performance.now()).catch((error: unknown) => {
      result.failed++;
      process.stderr.write(`sync failed: ${String(error)}\n`);
    });
    dueMs = Math.max(dueMs + task.syncIntervalMs, performance.now());
    setTimeout(() => void turn(), Math.max(0, dueMs - performance.now()));
  };
  setTimeout(() => void turn(), Math.max(0, firstMs - performance.now()));
}

const startMs = performance.now() + 100;
for (let i = 0; i < task.gateways; i++) {
  run(new Gateway(`gateway-${i}`), startMs + (i * task.syncIntervalMs) / task.gateways);
}
parentPort?.on('message', (command: 'reset' | 'report') => {
  if (command === 'report') parentPort?.postMessage(result);
  result = { latenciesMs: [], failed: 0, upBytes: 0, downBytes: 0 };
});
