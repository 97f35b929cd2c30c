// The control plane's own table of one pool: the same engine as in the filter, fed with the same touches, so that a new
// gateway can be given what the others know. Each pool has an engine instance with a memory of its own.
import type { TouchChunk, TouchRecord } from './engine/frames.ts';
import { loadEngine } from './engine/instance.ts';
import type { EngineInstance } from './engine/instance.ts';

interface TableExports {
  residencyInit(pods: number, nodes: number): void;
  residencyPodAdd(pod: number, pool: number, capacityBytes: bigint): number;
  residencyPodCapacity(pod: number, capacityBytes: bigint): void;
  residencyPodRemove(pod: number): void;
  residencyPodClear(pod: number, timeMs: number): void;
  residencyPodBytes(pod: number): bigint;
  residencyPodBlocks(pod: number): number;
  residencyTouchAt(pod: number, timeMs: number, parent: bigint, keys: number, weights: number, count: number): void;
  residencyBytesReserved(): number;
  residencyExport(pod: number, podId: number, cursor: bigint, ptr: number, room: number): number;
  exportNext(): bigint;
  exportRecords(): number;
  exportKeys(): number;
  frameInput(): number;
}

const POOL_SLOT = 0;
const EXPORT_DONE = 0xffff_ffff_ffff_ffffn;
const KEYS_AT_MOST = 8192;
/** A snapshot leaves room in its frame for what else stands in it. */
const CHUNK_BYTES = 512 << 10;

export interface Held {
  blocks: number;
  bytes: number;
}

export class PoolTable {
  readonly #engine: EngineInstance<TableExports>;
  readonly #slots = new Map<number, number>();
  readonly #free: number[];
  readonly #scratch: number;

  private constructor(engine: EngineInstance<TableExports>, pods: number) {
    this.#engine = engine;
    this.#free = Array.from({ length: pods }, (_, index) => pods - 1 - index);
    this.#scratch = engine.exports.frameInput();
  }

  static async create(pods: number, nodes: number): Promise<PoolTable> {
    const engine = await loadEngine<TableExports>();
    engine.exports.residencyInit(pods, nodes);
    return new PoolTable(engine, pods);
  }

  /** Adds a pod or changes its capacity. */
  podSet(podId: number, capacityBytes: number): void {
    const known = this.#slots.get(podId);
    if (known !== undefined) {
      this.#engine.exports.residencyPodCapacity(known, BigInt(capacityBytes));
      return;
    }
    const slot = this.#free.pop();
    if (slot === undefined) return;
    this.#slots.set(podId, slot);
    this.#engine.exports.residencyPodAdd(slot, POOL_SLOT, BigInt(capacityBytes));
  }

  podRemove(podId: number): void {
    const slot = this.#slots.get(podId);
    if (slot === undefined) return;
    this.#engine.exports.residencyPodRemove(slot);
    this.#slots.delete(podId);
    this.#free.push(slot);
  }

  held(podId: number): Held {
    const slot = this.#slots.get(podId);
    if (slot === undefined) return { blocks: 0, bytes: 0 };
    const { exports } = this.#engine;
    return { blocks: exports.residencyPodBlocks(slot) >>> 0, bytes: Number(exports.residencyPodBytes(slot)) };
  }

  /** Applies touches; answers how many spoke of pods that are not known. */
  apply(touches: TouchRecord[]): number {
    const { exports } = this.#engine;
    let skipped = 0;
    for (const touch of touches) {
      const slot = this.#slots.get(touch.podId);
      if (slot === undefined) {
        skipped++;
      } else if (touch.clear) {
        exports.residencyPodClear(slot, touch.timeMs);
      } else {
        const count = Math.min(touch.keys.length, KEYS_AT_MOST);
        const weights = this.#scratch + KEYS_AT_MOST * 8;
        new Uint8Array(exports.memory.buffer).set(
          new Uint8Array(touch.keys.buffer, touch.keys.byteOffset, count * 8),
          this.#scratch,
        );
        new Uint8Array(exports.memory.buffer).set(
          new Uint8Array(touch.weights.buffer, touch.weights.byteOffset, count * 4),
          weights,
        );
        exports.residencyTouchAt(slot, touch.timeMs, touch.parentKey, this.#scratch, weights, count);
      }
    }
    return skipped;
  }

  /** Everything the table holds as touch records, newest of each pod first, in pieces of at most half a frame. */
  snapshot(bytesMax: number): TouchChunk[] {
    const { exports } = this.#engine;
    const chunks: TouchChunk[] = [];
    let bytesLeft = bytesMax;
    for (const [podId, slot] of this.#slots) {
      for (let cursor = 0n; cursor !== EXPORT_DONE && bytesLeft > 0;) {
        const bytes =
          exports.residencyExport(slot, podId, cursor, this.#scratch, Math.min(CHUNK_BYTES, bytesLeft)) >>> 0;
        cursor = BigInt.asUintN(64, exports.exportNext());
        if (bytes === 0) break;
        bytesLeft -= bytes;
        chunks.push({
          bytes: new Uint8Array(exports.memory.buffer, this.#scratch, bytes).slice(),
          records: exports.exportRecords(),
          keys: exports.exportKeys(),
        });
      }
    }
    return chunks;
  }
}
