// Plays a workload against simulated replicas in virtual time: the same engines, prompts and summaries as over HTTP, without sockets and
// without waiting. Policies plug in as a chooser; two trivial ones are here because they bound what any policy can do.

import { engineConstants, type EngineConstants } from './constants.ts';
import { ReplicaEngine, Sequence } from './engine.ts';
import { summarise, type DriveSummary, type RequestRecord } from './summary.ts';
import { BLOCK_TOKENS_DEFAULT, BlockHasher, renderChat } from './tokens.ts';
import type { Session, Workload, WorkloadRequest } from './workload.ts';

/** What a chooser may see of a request: the words, and the engine's own block keys, which only an oracle may use. */
export interface Arrival {
  request: WorkloadRequest;
  session: string;
  hasher: BlockHasher;
  nowMs: number;
}

export interface Chooser {
  name: string;
  choose(arrival: Arrival, engines: readonly ReplicaEngine[]): number;
  firstToken?(arrival: Arrival, replica: number, nowMs: number): void;
  finished?(arrival: Arrival, replica: number, sequence: Sequence, nowMs: number): void;
}

export interface VirtualOptions {
  workload: Workload;
  chooser: Chooser;
  replicas?: number;
  constants?: EngineConstants;
  /** Virtual milliseconds after which no new request is sent. */
  untilMs?: number;
}

export interface VirtualResult {
  summary: DriveSummary;
  records: RequestRecord[];
  engines: ReplicaEngine[];
}

/** Things to do at times, earliest first, and in the order they were put in where times are equal. */
export class EventQueue {
  readonly #times: number[] = [];
  readonly #orders: number[] = [];
  readonly #actions: ((nowMs: number) => void)[] = [];
  #order = 0;

  get size(): number {
    return this.#times.length;
  }

  at(timeMs: number, action: (nowMs: number) => void): void {
    const order = this.#order++;
    let child = this.#times.length;
    this.#times.push(timeMs);
    this.#orders.push(order);
    this.#actions.push(action);
    while (child > 0) {
      const parent = (child - 1) >> 1;
      if (this.#times[parent]! <= timeMs) break;
      this.#move(parent, child);
      child = parent;
    }
    this.#put(child, timeMs, order, action);
  }

  /** Does the earliest thing; false when there is none. */
  run(): boolean {
    if (this.#times.length === 0) return false;
    const earliestMs = this.#times[0]!;
    const earliest = this.#actions[0]!;
    const timeMs = this.#times.pop()!;
    const order = this.#orders.pop()!;
    const action = this.#actions.pop()!;
    const size = this.#times.length;
    if (size > 0) {
      let parent = 0;
      for (let child = 1; child < size; child = 2 * parent + 1) {
        if (child + 1 < size && this.#before(child + 1, this.#times[child]!, this.#orders[child]!)) child += 1;
        if (!this.#before(child, timeMs, order)) break;
        this.#move(child, parent);
        parent = child;
      }
      this.#put(parent, timeMs, order, action);
    }
    earliest(earliestMs);
    return true;
  }

  #before(at: number, timeMs: number, order: number): boolean {
    const difference = this.#times[at]! - timeMs;
    return difference < 0 || (difference === 0 && this.#orders[at]! < order);
  }

  #move(from: number, to: number): void {
    this.#put(to, this.#times[from]!, this.#orders[from]!, this.#actions[from]!);
  }

  #put(at: number, timeMs: number, order: number, action: (nowMs: number) => void): void {
    this.#times[at] = timeMs;
    this.#orders[at] = order;
    this.#actions[at] = action;
  }
}

/** Replicas whose steps are events of the queue. */
export class VirtualReplicas {
  readonly engines: ReplicaEngine[];
  readonly #queue: EventQueue;
  readonly #slowFactors: readonly number[];
  readonly #planned: boolean[];

  constructor(
    queue: EventQueue,
    constants: EngineConstants,
    count: number,
    slowFactors: readonly number[] = [],
    blockTokens = BLOCK_TOKENS_DEFAULT,
  ) {
    this.#queue = queue;
    this.#slowFactors = slowFactors;
    this.engines = Array.from({ length: count }, () => new ReplicaEngine(constants, blockTokens));
    this.#planned = this.engines.map(() => false);
  }

  add(replica: number, sequence: Sequence, nowMs: number): void {
    this.engines[replica]!.add(sequence, nowMs);
    this.#kick(replica, nowMs);
  }

  #step(replica: number, nowMs: number): void {
    const engine = this.engines[replica]!;
    const seconds = engine.begin(nowMs) * (this.#slowFactors[replica] ?? 1);
    if (seconds === 0) return;
    this.#queue.at(nowMs + seconds * 1000, (endMs) => {
      engine.end(endMs);
      this.#kick(replica, endMs);
    });
  }

  // What arrives at one time is planned together, so a step is planned after everything else at its time.
  #kick(replica: number, nowMs: number): void {
    if (this.#planned[replica] === true || this.engines[replica]!.inStep) return;
    this.#planned[replica] = true;
    this.#queue.at(nowMs, () => {
      this.#planned[replica] = false;
      if (!this.engines[replica]!.inStep) this.#step(replica, nowMs);
    });
  }
}

/** Runs the workload to its end. */
export function runVirtual(options: VirtualOptions): VirtualResult {
  const { workload, chooser, untilMs = Infinity } = options;
  const count = options.replicas ?? workload.replicas;
  const constants = options.constants ?? engineConstants(workload.engine);
  const queue = new EventQueue();
  const replicas = new VirtualReplicas(queue, constants, count, workload.slowFactors);
  const { engines } = replicas;
  const records: RequestRecord[] = [];

  const advance = (session: Session, answer: string, nowMs: number): void => {
    const request = session.next(answer);
    if (request === null) return;
    const sendMs = nowMs + request.thinkMs;
    if (sendMs <= untilMs) queue.at(sendMs, () => send(session, request, sendMs));
  };

  const send = (session: Session, request: WorkloadRequest, sentMs: number): void => {
    const hasher = new BlockHasher();
    renderChat(hasher, { messages: request.messages });
    const arrival: Arrival = { request, session: session.id, hasher, nowMs: sentMs };
    const replica = chooser.choose(arrival, engines);
    const words: string[] = [];
    const sequence = new Sequence(hasher, request.outputTokens, {
      token: (_, word, nowMs) => {
        words.push(word);
        if (words.length === 1) chooser.firstToken?.(arrival, replica, nowMs);
      },
      finished: (done, nowMs) => {
        chooser.finished?.(arrival, replica, done, nowMs);
        records.push(recordOf(session.id, request.measured, done, replica, sentMs, nowMs));
        advance(session, words.join(''), nowMs);
      },
    });
    replicas.add(replica, sequence, sentMs);
  };

  for (const session of workload.sessions()) {
    queue.at(session.startMs, (nowMs) => advance(session, '', nowMs));
  }
  while (queue.run());
  return { summary: summarise(records, count), records, engines };
}

export function roundRobin(): Chooser {
  let next = 0;
  return { name: 'round-robin', choose: (_, engines) => next++ % engines.length };
}

/** The whole prompt's first block of 256 bytes decides: good at affinity, blind to load. */
export function firstBlockHash(): Chooser {
  return {
    name: 'first-block-hash',
    choose: ({ request }, engines) => {
      const hasher = new BlockHasher();
      hasher.text(
        request.messages
          .map(({ content }) => content.slice(0, 256))
          .join('')
          .slice(0, 256),
      );
      return hasher.state % engines.length;
    },
  };
}

/**
 * Knows what every engine holds and has in hand, and takes the replica where this prompt's uncached tokens and those in front of it are fewest:
 * the prefill-cost policy with perfect knowledge.
 */
export function oracle(): Chooser {
  const queued: number[] = [];
  const inFlight: number[] = [];
  const uncached = new Map<Arrival, number>();
  return {
    name: 'oracle',
    choose: (arrival, engines) => {
      const { hasher } = arrival;
      let best = 0;
      let bestCost = Infinity;
      let bestTokens = 0;
      for (let replica = 0; replica < engines.length; replica++) {
        const { hits } = engines[replica]!.cache.match(hasher.keys, hasher.keys.length);
        const tokens = Math.max(1, hasher.tokens - hits * hasher.blockTokens);
        const n = inFlight[replica] ?? 0;
        const cost = (1 + 0.2 * n) * (queued[replica] ?? 0) + (1.25 + 0.5 * n) * tokens + 400 * n;
        if (cost < bestCost) {
          best = replica;
          bestCost = cost;
          bestTokens = tokens;
        }
      }
      queued[best] = (queued[best] ?? 0) + bestTokens;
      inFlight[best] = (inFlight[best] ?? 0) + 1;
      uncached.set(arrival, bestTokens);
      return best;
    },
    firstToken: (arrival, replica) => {
      queued[replica]! -= uncached.get(arrival) ?? 0;
      uncached.delete(arrival);
    },
    finished: (_, replica) => {
      inFlight[replica]! -= 1;
    },
  };
}

/** What a request that a virtual replica has finished looks like to whoever sums up. */
export function recordOf(
  session: string,
  measured: boolean,
  done: Sequence,
  replica: number,
  sentMs: number,
  nowMs: number,
): RequestRecord {
  return {
    session,
    measured,
    sentMs,
    ttftMs: done.firstTokenMs - sentMs,
    tpotMs: done.outputTokens > 1 ? (nowMs - done.firstTokenMs) / (done.outputTokens - 1) : null,
    e2eMs: nowMs - sentMs,
    promptTokens: done.promptTokens,
    cachedTokens: done.cachedTokens,
    outputTokens: done.outputTokens,
    pod: `replica-${replica}`,
    status: 200,
    failed: false,
    hung: false,
    error: null,
  };
}
