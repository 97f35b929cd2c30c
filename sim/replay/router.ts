// One router of a replay: a worker of one gateway, with an engine.wasm of its own. It does for a request what the filter does (filter/stream.ts),
// through the same functions in the same order: look up, pick, count, touch; then first token and end.

import { loadEngine } from '../../control-plane/engine/instance.ts';
import { CHAIN_BLOCKS_MAX, POD_READY } from '../../control-plane/engine/table.ts';
import type { TableExports } from '../../control-plane/engine/table-exports.ts';
import type { ReplayPrompt } from './source.ts';

const POOL = 0;
/** The load source that stands for all other gateways; those before it are the siblings. */
const SOURCE_GATEWAYS = 64;
/** Times begin here: at time 0 the engine's table takes no touches. */
const EPOCH_MS = 1_000_000;
/** No pod is taken for one that hangs before it was silent for so long. */
const SILENCE_MS_MIN = 1000;
/** Blocks for which a gateway reserves room by default. */
const BLOCKS_MAX = 400_000;

/** In the order of the engine's codes. */
const JUDGEMENTS = ['none', 'confirmed', 'contradicted', 'exceeded'] as const;

export interface Picked {
  pod: number;
  uncachedTokens: number;
}

/** What a pod said in its metrics. */
export interface Scraped {
  atMs: number;
  running: number;
  waiting: number;
  kvUsage: number;
  /** Mean time to first token of the requests that began lately, and how many. */
  ttftMs: number;
  ttftRequests: number;
}

/** A request in flight on a pod. */
export interface Flight {
  sentMs: number;
  uncachedTokens: number;
  isQueued: boolean;
  /** Says when its first token, which nobody sees, is to be expected; null when it will be seen. */
  expect: ((timeMs: number) => void) | null;
  /** When that is, as far as known. */
  expectedMs: number;
}

export class Router {
  readonly pods: number;
  readonly #e: TableExports;
  readonly #keys: BigUint64Array;
  readonly #numbers: Uint32Array;
  readonly #slots: number[];
  readonly #keysAt: number;
  readonly #numbersAt: number;
  readonly #aliveMs: Float64Array;
  readonly #waits: Set<{ sentMs: number; predictedMs: number }>[];
  /** Requests in flight on each pod in the order in which they were sent. */
  readonly #flights: Flight[][];
  #promptBytes = 0;
  #firstKey = 0n;

  private constructor(
    e: TableExports & { memory: { buffer: ArrayBuffer } },
    seed: number,
    pods: number,
    tokens: number,
  ) {
    this.pods = pods;
    this.#e = e;
    this.#aliveMs = new Float64Array(pods).fill(-Infinity);
    this.#waits = Array.from({ length: pods }, () => new Set());
    this.#flights = Array.from({ length: pods }, () => []);
    // A block is 256 bytes or more, and a token about 5; twice that leaves room for short blocks.
    const blocks = Math.min(BLOCKS_MAX, Math.ceil((pods * tokens) / 25) + 1024);
    e.tableInit(pods, blocks, BigInt(seed));
    this.#keysAt = e.tableKeys() >>> 0;
    this.#numbersAt = e.tableNumbers() >>> 0;
    // Nothing allocates from here on, so the memory stays where it is.
    this.#keys = new BigUint64Array(e.memory.buffer, this.#keysAt, CHAIN_BLOCKS_MAX);
    this.#numbers = new Uint32Array(e.memory.buffer, this.#numbersAt, CHAIN_BLOCKS_MAX);
    this.#slots = Array.from({ length: pods }, (_, pod) => e.podSet(POOL, pod + 1, tokens, 1, POD_READY));
  }

  static async create(seed: number, pods: number, capacityTokens: number): Promise<Router> {
    const { exports } = await loadEngine<TableExports>();
    return new Router(exports, seed, pods, capacityTokens);
  }

  /** Looks a prompt up; what follows is about it, until the next one. */
  lookup({ keys, weights, bytes }: ReplayPrompt): void {
    const count = Math.min(keys.length, CHAIN_BLOCKS_MAX);
    this.#keys.set(keys.length === count ? keys : keys.subarray(0, count));
    let end = 0;
    for (let i = 0; i < count; i++) this.#numbers[i] = end += weights[i]!;
    this.#e.residencyLookupAt(POOL, this.#keysAt, this.#numbersAt, count);
    this.#promptBytes = bytes;
    this.#firstKey = keys[0] ?? 0n;
  }

  /** Picks by one of the engine's own policies. */
  pick(policy: number, nowMs: number, key = this.#firstKey): number {
    this.#e.policyPick(POOL, policy, this.#promptBytes, key, 0, EPOCH_MS + nowMs);
    return this.#slots.indexOf(this.#e.pickedPod(0));
  }

  setWeights({ prefix, queue, kv }: { prefix: number; queue: number; kv: number }): void {
    this.#e.poolWeightsSet(POOL, prefix, queue, kv);
  }

  get promptBytes(): number {
    return this.#promptBytes;
  }
  get firstKey(): bigint {
    return BigInt.asUintN(64, this.#firstKey);
  }
  get bytesPerToken(): number {
    return this.#e.poolBytesPerToken(POOL);
  }
  /** Bytes of the prompt that a pod holds as far as this router knows. */
  matchBytes(pod: number): number {
    return Math.min(this.#e.matchBytes(this.#slots[pod]!) >>> 0, this.#promptBytes);
  }
  /** Tokens of the prompt that a pod would have to compute; the policies' own formula. */
  uncachedTokens(pod: number): number {
    return Math.max(1, Math.ceil((this.#promptBytes - this.matchBytes(pod)) / this.bytesPerToken));
  }
  /** Bytes of the block at the end of the match, which may be held in part. */
  edgeBytes(pod: number, { weights }: ReplayPrompt): number {
    return weights[Math.min(this.#e.matchKeys(this.#slots[pod]!) >>> 0, weights.length - 1)] ?? 0;
  }
  /** What usage says of a match; tokens throughout. */
  judge(predicted: number, actual: number, block: number): 'none' | 'confirmed' | 'contradicted' | 'exceeded' {
    return JUDGEMENTS[this.#e.matchJudge(predicted, actual, block)] ?? 'none';
  }
  /** How full a pod's part of the table is, 1 = full. */
  filledShare(pod: number): number {
    return this.heldBytes(pod) / Number(this.#e.residencyPodCapacityBytes(this.#slots[pod]!));
  }
  setCapacity(pod: number, tokens: number): void {
    this.#e.podSet(POOL, pod + 1, tokens, 1, POD_READY);
  }
  inFlight(pod: number, nowMs: number): number {
    return this.#e.podInFlight(this.#slots[pod]!, EPOCH_MS + nowMs);
  }
  queuedTokens(pod: number, nowMs: number): number {
    return this.#e.podQueued(this.#slots[pod]!, EPOCH_MS + nowMs);
  }
  heldBytes(pod: number): number {
    return Number(this.#e.residencyPodBytes(this.#slots[pod]!));
  }
  predictedTtftMs(pod: number, uncachedTokens: number, nowMs: number): number {
    return this.#e.loadPredictedTtftMs(this.#slots[pod]!, uncachedTokens, EPOCH_MS + nowMs);
  }

  /** Counts the request on a pod; gives the tokens in front of its first one, for firstToken(). */
  dispatch(pod: number, uncachedTokens: number, nowMs: number): number {
    return this.#e.loadDispatch(this.#slots[pod]!, uncachedTokens, EPOCH_MS + nowMs);
  }
  /** A pod was given a prompt, by this router or by another one, whose cold work is then counted here. */
  touch(pod: number, { keys, weights }: ReplayPrompt, nowMs: number, isOwn: boolean): void {
    const count = Math.min(keys.length, CHAIN_BLOCKS_MAX);
    if (count === 0) return;
    this.#keys.set(keys.length === count ? keys : keys.subarray(0, count));
    this.#numbers.set(weights.length === count ? weights : weights.subarray(0, count));
    const slot = this.#slots[pod]!;
    const bytes = this.#e.residencyTouchAt(slot, EPOCH_MS + nowMs, 0n, this.#keysAt, this.#numbersAt, count);
    if (!isOwn) this.#e.loadCold(slot, (bytes >>> 0) / this.bytesPerToken, EPOCH_MS + nowMs);
  }
  /** A request on a pod is over; its answer is in the pod's cache. */
  touchAnswer(pod: number, { keys }: ReplayPrompt, outputTokens: number, nowMs: number): void {
    const deepest = keys[Math.min(keys.length, CHAIN_BLOCKS_MAX) - 1];
    if (deepest === undefined) return;
    const bytes = Math.round(outputTokens * this.bytesPerToken);
    this.#e.residencyTouchAnswer(this.#slots[pod]!, EPOCH_MS + nowMs, deepest, bytes);
  }
  /** Forgets what a pod held at a time. */
  clear(pod: number, atMs: number): void {
    this.#e.residencyPodClear(this.#slots[pod]!, EPOCH_MS + atMs);
  }
  releasePrefill(pod: number, uncachedTokens: number): void {
    this.#e.loadFirstToken(this.#slots[pod]!, uncachedTokens);
  }
  observeTtft(pod: number, ttftMs: number, aheadTokens: number): void {
    this.#e.loadObserveTtft(this.#slots[pod]!, ttftMs, aheadTokens);
  }
  end(pod: number, uncachedTokens: number, isQueued: boolean): void {
    this.#e.loadEnd(this.#slots[pod]!, uncachedTokens, isQueued ? 1 : 0);
  }
  /** A piece of an answer came from a pod: it works. */
  alive(pod: number, nowMs: number): void {
    this.#aliveMs[pod] = nowMs;
    this.#e.loadAlive(this.#slots[pod]!, EPOCH_MS + nowMs);
  }
  success(pod: number): void {
    this.#e.loadSuccess(this.#slots[pod]!);
  }
  /** A first token is out; the filter looks after these at each tick. Gives what ends the watch. */
  watch(pod: number, sentMs: number, predictedMs: number): () => void {
    const wait = { sentMs, predictedMs };
    this.#waits[pod]!.add(wait);
    return () => this.#waits[pod]!.delete(wait);
  }
  /** Looks for pods that hang; gives how many were found. */
  silences(nowMs: number): number {
    let found = 0;
    for (const [pod, waits] of this.#waits.entries()) {
      if (waits.size === 0 || nowMs - this.#aliveMs[pod]! < SILENCE_MS_MIN) continue;
      for (const { sentMs, predictedMs } of waits) {
        if (this.#e.loadSilence(this.#slots[pod]!, EPOCH_MS + sentMs, predictedMs, EPOCH_MS + nowMs) === 0) continue;
        found += 1;
        break;
      }
    }
    return found;
  }
  /** What the answer's usage says. */
  learn(promptBytes: number, promptTokens: number, outputTokens: number): void {
    this.#e.poolObservePrompt(POOL, promptBytes, promptTokens);
    this.#e.poolObserveOutput(POOL, outputTokens);
  }
  tick(): void {
    this.#e.poolCapacityRefresh(POOL);
  }

  // What others know. Counters travel as whole numbers.

  ownInFlight(pod: number): number {
    return Math.trunc(this.#e.loadOwnN(this.#slots[pod]!));
  }
  ownQueuedTokens(pod: number): number {
    return Math.trunc(this.#e.loadOwnQ(this.#slots[pod]!));
  }
  ownUsedTokens(pod: number): number {
    return Math.trunc(this.#e.loadOwnUsed(this.#slots[pod]!));
  }
  siblingSet(sibling: number, pod: number, inFlight: number, queuedTokens: number, usedTokens: number): void {
    this.#e.loadForeignSet(sibling, this.#slots[pod]!, inFlight, queuedTokens, usedTokens);
  }
  gatewaysSet(pod: number, inFlight: number, queuedTokens: number, usedTokens: number): void {
    this.#e.loadForeignSet(SOURCE_GATEWAYS + POOL, this.#slots[pod]!, inFlight, queuedTokens, usedTokens);
  }
  gatewaysAge(ageMs: number): void {
    this.#e.loadForeignAge(SOURCE_GATEWAYS + POOL, ageMs);
  }
  /** A request is in flight. Gives what ends it. */
  fly(pod: number, flight: Flight): () => void {
    const flights = this.#flights[pod]!;
    flights.push(flight);
    return () => void flights.splice(flights.indexOf(flight), 1);
  }
  metrics(pod: number, { atMs, running, waiting, kvUsage, ttftMs, ttftRequests }: Scraped): void {
    const slot = this.#slots[pod]!;
    if (this.#e.loadMetrics(slot, running, waiting, kvUsage, EPOCH_MS + atMs) === 0) return;
    this.#e.loadTold(slot, ttftMs, ttftRequests);
    const there = this.#flights[pod]!.filter(({ sentMs }) => sentMs <= atMs);
    let aheadTokens = 0;
    for (const [i, flight] of there.entries()) {
      if (!flight.isQueued) continue;
      this.#correct(slot, flight, there.length - 1 - i, aheadTokens, atMs);
      aheadTokens += flight.uncachedTokens;
    }
  }
  /** What metrics tell of a request whose first token is not seen (filter/begun.ts). */
  #correct(slot: number, flight: Flight, younger: number, aheadTokens: number, atMs: number): void {
    const { sentMs, uncachedTokens, expect, expectedMs } = flight;
    if (expect === null) return;
    const before = expectedMs - atMs;
    const sent = EPOCH_MS + sentMs;
    const after = this.#e.loadExpectedMs(slot, sent, younger, aheadTokens, uncachedTokens, before);
    if (after !== before) expect(atMs + after);
  }

  get left(): number {
    return this.#slots.reduce((total, slot) => total + this.#e.loadOwnN(slot) + this.#e.loadOwnQ(slot), 0);
  }
  /** How often a counter would have fallen below zero: never, if each request is counted once. */
  get violations(): number {
    return Number(this.#e.loadViolations());
  }
}
