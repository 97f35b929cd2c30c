// The gateways of the control plane's bench, in a thread of their own. Each reports what a real one would: the touches of its requests, the
// load it has in flight and its outcomes; and it goes by the answer's epoch, version and sequence. Of an answer only the headers of its
// frames are read, and one in a hundred is checked as a whole, as a filter does, on plain sockets: the control plane is what a sync should
// wait for, and not this thread. How long this thread had other things to do is told beside the latencies.
import { connect, type Socket } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { parentPort, workerData } from 'node:worker_threads';
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
  /** How late this thread's own event loop was, at most, for 99 % of the time. */
  lateP99Ms: number;
}

/** Requests in flight at a gateway: this many seconds' worth. */
const REQUEST_SECONDS = 4;
const BLOCK_BYTES = 256;
/** One answer in so many is checked as a whole. */
const CHECK_EVERY = 100;
const FRAME_MAGIC = 0x46504d57;
const headEnd = Buffer.from('\r\n\r\n');

type Counters = Omit<OutcomeRecord, 'podId' | 'resets' | 'ttftMsSum'>;

const task = workerData as GatewaysTask;
const frames = new Frames((await loadEngine<FrameExports>()).exports);
const poolHash = frames.poolHash(task.pool);
const { hostname, port } = new URL(task.url);
const random = new Random(1);
const delay = monitorEventLoopDelay({ resolution: 1 });
delay.enable();
let result = nothingYet();
let podIds: number[] = [];

function nothingYet(): GatewaysResult {
  delay.reset();
  return { latenciesMs: [], failed: 0, upBytes: 0, downBytes: 0, lateP99Ms: 0 };
}

const someKey = (): bigint => (BigInt(random.below(2 ** 32)) << 32n) | BigInt(random.below(2 ** 32));

/** One connection that stays open, with one request on it at a time. */
class Connection {
  readonly #socket: Socket;
  #parts: Buffer[] = [];
  #received = 0;
  /** Bytes of the answer with its head, once that has come. */
  #whole = Number.POSITIVE_INFINITY;
  #headBytes = 0;
  #settle: { resolve: (body: Buffer) => void; reject: (error: Error) => void } | undefined;

  constructor() {
    this.#socket = connect(Number(port), hostname).setNoDelay(true);
    this.#socket.on('data', (part: Buffer) => this.#take(part));
    this.#socket.on('error', (error) => this.#settle?.reject(error));
    this.#socket.on('close', () => this.#settle?.reject(new Error('the connection was closed')));
  }

  async post(body: Uint8Array): Promise<Buffer> {
    const answer = new Promise<Buffer>((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.#socket.cork();
    this.#socket.write(
      `POST /v1/sync HTTP/1.1\r\nhost: ${hostname}\r\ncontent-type: application/octet-stream\r\ncontent-length: ${body.length}\r\n\r\n`,
    );
    this.#socket.write(body);
    this.#socket.uncork();
    return answer;
  }

  #take(part: Buffer): void {
    this.#parts.push(part);
    this.#received += part.length;
    if (this.#headBytes === 0) {
      const bytes = this.#parts.length === 1 ? part : Buffer.concat(this.#parts);
      const end = bytes.indexOf(headEnd);
      if (end < 0) return;
      const head = bytes.toString('latin1', 0, end);
      this.#headBytes = end + headEnd.length;
      this.#whole = this.#headBytes + Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1]);
      if (!head.startsWith('HTTP/1.1 200 ')) this.#settle?.reject(new Error(head));
    }
    if (this.#received < this.#whole) return;
    const body = Buffer.concat(this.#parts).subarray(this.#headBytes);
    this.#parts = [];
    this.#received = 0;
    this.#headBytes = 0;
    this.#whole = Number.POSITIVE_INFINITY;
    this.#settle?.resolve(body);
  }
}

class Gateway {
  readonly #name: string;
  readonly #connection = new Connection();
  #answers = 0;
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
    const answer = await this.#connection.post(body);
    result.latenciesMs.push(performance.now() - startedMs);
    result.upBytes += body.length;
    result.downBytes += answer.length;
    this.#take(answer);
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

  #take(body: Buffer): void {
    const isChecked = this.#answers++ % CHECK_EVERY === 0;
    for (let at = 0; at < body.length; at += body.readUInt32LE(at + 8)) {
      const code = isChecked ? frames.check(body.subarray(at)) : 'ok';
      if (code !== 'ok') throw new Error(`the answer's frame at byte ${at} is refused: ${code}`);
      if (body.readUInt32LE(at) !== FRAME_MAGIC) throw new Error(`there is no frame at byte ${at} of the answer`);
      // Only the first answer has the endpoints; the others are not taken apart.
      if (podIds.length === 0) podIds = frames.read().endpoints?.map((endpoint) => endpoint.podId) ?? [];
      this.#epoch = body.readBigUInt64LE(at + 16);
      this.#sequence = body.readBigUInt64LE(at + 24);
      this.#settingsVersion = body.readUInt32LE(at + 40);
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
    // The rhythm is kept, as a gateway's leader keeps it: turns that were missed are left out.
    const missed = Math.max(0, Math.floor((performance.now() - dueMs) / task.syncIntervalMs));
    dueMs += task.syncIntervalMs * (1 + missed);
    setTimeout(() => void turn(), Math.max(0, dueMs - performance.now()));
  };
  setTimeout(() => void turn(), Math.max(0, firstMs - performance.now()));
}

const startMs = performance.now() + 100;
for (let i = 0; i < task.gateways; i++) {
  run(new Gateway(`gateway-${i}`), startMs + (i * task.syncIntervalMs) / task.gateways);
}
parentPort?.on('message', (command: 'reset' | 'report') => {
  if (command === 'report') {
    parentPort?.postMessage({
      ...result,
      lateP99Ms: Math.max(0, delay.percentile(99) / 1e6 - 1),
    } satisfies GatewaysResult);
  }
  result = nothingYet();
});
