// The engine's table as an object: pods and what they hold, their load, and picks. It holds no state of its own; all of it is in
// the engine's memory, which may be shared with the other facades.
import { loadEngine, type EngineInstance } from './instance.ts';
import type { TableExports } from './table-exports.ts';

/** Blocks of one prompt that the engine handles; longer chains are cut. */
export const CHAIN_BLOCKS_MAX = 8192;
export const POD_READY = 1;
export const POD_DRAIN = 2;
/** The cursor after the last record of an export. */
export const EXPORT_DONE = 0xffff_ffff_ffff_ffffn;

/** Most bytes that one export() gives. */
export const EXPORT_BYTES_MAX = CHAIN_BLOCKS_MAX * 8;

const POOL_NONE = 0xffff_ffff;

export interface TableOptions {
  /** Pod slots, rounded up to a multiple of 64, at most 1024. */
  pods: number;
  /** Blocks that all pods together may hold. */
  blocks: number;
  seed?: bigint;
}

export interface PodSettings {
  pool: number;
  /** The same everywhere, not 0. */
  podId: number;
  /** 0 = unknown. */
  capacityTokens?: number;
  weight?: number;
  ready?: boolean;
  drain?: boolean;
}

export interface Pick {
  pod: number;
  uncachedTokens: number;
}

export interface PodLoad {
  inFlight: number;
  queuedTokens: number;
  usedTokens: number;
  /** Seconds per token, 0 = nothing seen yet. */
  slowness: number;
  cooling: boolean;
}

export interface TableCounters {
  blocks: number;
  blocksUsed: number;
  keysUsed: number;
  bytesReserved: number;
  evicted: bigint;
  /** Evicted because the table was full, not the pod. */
  exhausted: bigint;
  misplaced: bigint;
  orphans: bigint;
  /** Counters that would have fallen below zero. */
  violations: bigint;
}

/** Touch records as they stand in a frame's TOUCHES section, and how to go on. */
export interface TableExport {
  /** A copy of the records; in the engine's memory they stay at `at` until the next call. */
  bytes: Uint8Array;
  at: number;
  records: number;
  keys: number;
  /** EXPORT_DONE after the last one. */
  next: bigint;
}

export class Table {
  readonly #engine: EngineInstance<TableExports>;
  readonly #e: TableExports;
  readonly #keysAt: number;
  readonly #numbersAt: number;
  #keys: BigUint64Array;
  #numbers: Uint32Array;

  /** Empties whatever table the engine had. */
  constructor(engine: EngineInstance<TableExports>, options: TableOptions) {
    this.#engine = engine;
    this.#e = engine.exports;
    this.#e.tableInit(options.pods, options.blocks, options.seed ?? 1n);
    this.#keysAt = this.#e.tableKeys() >>> 0;
    this.#numbersAt = this.#e.tableNumbers() >>> 0;
    this.#keys = new BigUint64Array(0);
    this.#numbers = new Uint32Array(0);
    this.#views();
  }

  static async create(options: TableOptions): Promise<Table> {
    return new Table(await loadEngine<TableExports>(), options);
  }

  get engine(): EngineInstance<TableExports> {
    return this.#engine;
  }
  /** The raw functions, for what is called too often to pass through a facade. */
  get exports(): TableExports {
    return this.#e;
  }

  /** The views are made anew when another facade's allocation has moved the memory. */
  #views(): void {
    const buffer = this.#engine.exports.memory.buffer;
    if (this.#keys.buffer === buffer) return;
    this.#keys = new BigUint64Array(buffer, this.#keysAt, CHAIN_BLOCKS_MAX);
    this.#numbers = new Uint32Array(buffer, this.#numbersAt, CHAIN_BLOCKS_MAX);
  }

  #put(keys: ArrayLike<bigint>, numbers: ArrayLike<number>): number {
    const count = Math.min(keys.length, numbers.length, CHAIN_BLOCKS_MAX);
    this.#views();
    for (let i = 0; i < count; i++) {
      this.#keys[i] = keys[i] ?? 0n;
      this.#numbers[i] = numbers[i] ?? 0;
    }
    return count;
  }

  // Pods.

  /** Adds a pod or changes a known one; -1 when all slots are in use. */
  setPod(settings: PodSettings): number {
    const flags = ((settings.ready ?? true) ? POD_READY : 0) | (settings.drain === true ? POD_DRAIN : 0);
    return this.#e.podSet(settings.pool, settings.podId, settings.capacityTokens ?? 0, settings.weight ?? 1, flags);
  }
  /** The slot of a pod, or -1. */
  findPod(pool: number, podId: number): number {
    return this.#e.podFind(pool, podId);
  }
  removePod(pod: number): void {
    this.#e.podRemove(pod);
  }
  /** Forgets what a pod held at a time; earlier touches that arrive later are ignored. */
  clearPod(pod: number, timeMs: number): void {
    this.#e.residencyPodClear(pod, timeMs);
  }
  setCapacityBytes(pod: number, bytes: number): void {
    this.#e.residencyPodCapacity(pod, BigInt(Math.trunc(bytes)));
  }
  podId(pod: number): number {
    return this.#e.podIdOf(pod) >>> 0;
  }
  /** The pool of a slot, undefined when it is free. */
  poolOf(pod: number): number | undefined {
    const pool = this.#e.residencyPodPool(pod) >>> 0;
    return pool === POOL_NONE ? undefined : pool;
  }
  podBytes(pod: number): number {
    return Number(this.#e.residencyPodBytes(pod));
  }
  podCapacityBytes(pod: number): number {
    return Number(this.#e.residencyPodCapacityBytes(pod));
  }
  podBlocks(pod: number): number {
    return this.#e.residencyPodBlocks(pod) >>> 0;
  }
  /** Equal for equal sets of keys, whatever the order in which they came. */
  podDigest(pod: number): bigint {
    return BigInt.asUintN(64, this.#e.residencyPodDigest(pod));
  }
  /** The same with order and times. */
  podOrderDigest(pod: number): bigint {
    return BigInt.asUintN(64, this.#e.residencyPodOrderDigest(pod));
  }
  holds(pod: number, key: bigint): boolean {
    return this.#e.residencyHolds(pod, key) !== 0;
  }
  knows(key: bigint): boolean {
    return this.#e.residencyKnows(key) !== 0;
  }

  // Residency.

  /** A pod was given these blocks after `parentKey` (0n = they begin the prompt); weights in bytes. */
  touch(pod: number, timeMs: number, parentKey: bigint, keys: ArrayLike<bigint>, weights: ArrayLike<number>): void {
    const count = this.#put(keys, weights);
    this.#e.residencyTouchAt(pod, timeMs, parentKey, this.#keysAt, this.#numbersAt, count);
  }
  touchChain(pod: number, timeMs: number, deepestKey: bigint): void {
    this.#e.residencyTouchChain(pod, timeMs, deepestKey);
  }
  /** Matches a prompt against the pods of a pool; ends[i] = prompt bytes up to and including block i. Gives the longest. */
  lookup(pool: number, keys: ArrayLike<bigint>, ends: ArrayLike<number>): number {
    const count = this.#put(keys, ends);
    return this.#e.residencyLookupAt(pool, this.#keysAt, this.#numbersAt, count) >>> 0;
  }
  /** What the last lookup found for a pod of its pool. */
  matchBytes(pod: number): number {
    return this.#e.matchBytes(pod) >>> 0;
  }
  matchKeys(pod: number): number {
    return this.#e.matchKeys(pod) >>> 0;
  }
  /** Touch records for what a pod holds, newest first, from a cursor on (0n = from the start), in at most `room` bytes. */
  export(pod: number, cursor: bigint, room: number = EXPORT_BYTES_MAX): TableExport {
    const length = this.#e.residencyExport(
      pod,
      this.podId(pod),
      cursor,
      this.#keysAt,
      Math.min(room, EXPORT_BYTES_MAX),
    );
    return {
      at: this.#keysAt,
      bytes: new Uint8Array(this.#engine.exports.memory.buffer, this.#keysAt, length).slice(),
      records: this.#e.exportRecords() >>> 0,
      keys: this.#e.exportKeys() >>> 0,
      next: BigInt.asUintN(64, this.#e.exportNext()),
    };
  }

  // Load.

  /** Gives what loadObserveTtft() wants as w: the tokens before this request's first one. */
  dispatch(pod: number, uncachedTokens: number, nowMs: number): number {
    return this.#e.loadDispatch(pod, uncachedTokens, nowMs);
  }
  firstToken(pod: number, uncachedTokens: number): void {
    this.#e.loadFirstToken(pod, uncachedTokens);
  }
  /** `queued` = firstToken() was not called for this request. */
  end(pod: number, uncachedTokens: number, queued: boolean): void {
    this.#e.loadEnd(pod, uncachedTokens, queued ? 1 : 0);
  }
  observeTtft(pod: number, ttftMs: number, w: number): void {
    this.#e.loadObserveTtft(pod, ttftMs, w);
  }
  predictedTtftMs(pod: number, uncachedTokens: number, nowMs: number): number {
    return this.#e.loadPredictedTtftMs(pod, uncachedTokens, nowMs);
  }
  /** Running, waiting and kvUsage: undefined = not told. */
  metrics(pod: number, atMs: number, told: { running?: number; waiting?: number; kvUsage?: number }): void {
    this.#e.loadMetrics(pod, told.running ?? -1, told.waiting ?? -1, told.kvUsage ?? -1, atMs);
  }
  failure(pod: number, nowMs: number): void {
    this.#e.loadFailure(pod, nowMs);
  }
  success(pod: number): void {
    this.#e.loadSuccess(pod);
  }
  load(pod: number, nowMs: number): PodLoad {
    return {
      inFlight: this.#e.podInFlight(pod, nowMs),
      queuedTokens: this.#e.podQueued(pod, nowMs),
      usedTokens: this.#e.podUsed(pod),
      slowness: this.#e.podSlowness(pod),
      cooling: this.#e.podCooling(pod, nowMs) !== 0,
    };
  }

  // Picks.

  /** After lookup() of the same pool: up to three pods, best first. */
  pick(pool: number, policy: number, promptBytes: number, key: bigint, nowMs: number, adapter = 0): Pick[] {
    const count = this.#e.policyPick(pool, policy, promptBytes, key, adapter, nowMs);
    const picks: Pick[] = [];
    for (let i = 0; i < count; i++) {
      picks.push({ pod: this.#e.pickedPod(i), uncachedTokens: this.#e.pickedUncached(i) >>> 0 });
    }
    return picks;
  }

  counters(): TableCounters {
    return {
      blocks: this.#e.residencyNodes() >>> 0,
      blocksUsed: this.#e.residencyNodesUsed() >>> 0,
      keysUsed: this.#e.residencyEntriesUsed() >>> 0,
      bytesReserved: this.#e.residencyBytesReserved() >>> 0,
      evicted: this.#e.residencyEvicted(),
      exhausted: this.#e.residencyExhausted(),
      misplaced: this.#e.residencyMisplaced(),
      orphans: this.#e.residencyOrphans(),
      violations: this.#e.loadViolations(),
    };
  }
}
