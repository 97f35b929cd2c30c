// The control plane's own table of one pool: the same engine as in the filter, fed with the same touches, so that a new
// gateway can be given what the others know. Each pool has an engine instance with a memory of its own.
import type { FrameExports } from './engine/frame-exports.ts';
import { Frames } from './engine/frames.ts';
import type { TouchChunk } from './engine/frames.ts';
import { loadEngine } from './engine/instance.ts';
import type { TableExports } from './engine/table-exports.ts';
import { EXPORT_DONE, Table } from './engine/table.ts';

const POOL_SLOT = 0;

export interface Held {
  blocks: number;
  bytes: number;
}

export class PoolTable {
  readonly #table: Table;
  readonly #frames: Frames;
  readonly #slots = new Map<number, number>();

  private constructor(table: Table, frames: Frames) {
    this.#table = table;
    this.#frames = frames;
  }

  static async create(pods: number, blocks: number): Promise<PoolTable> {
    const engine = await loadEngine<TableExports & FrameExports>();
    return new PoolTable(new Table(engine, { pods, blocks }), new Frames(engine.exports));
  }

  /** Adds a pod or changes its capacity; false when the table has no room for it. */
  podSet(podId: number, capacityBytes: number): boolean {
    const slot = this.#slots.get(podId) ?? this.#table.setPod({ pool: POOL_SLOT, podId });
    if (slot < 0) return false;
    this.#slots.set(podId, slot);
    this.#table.setCapacityBytes(slot, capacityBytes);
    return true;
  }

  podRemove(podId: number): void {
    const slot = this.#slots.get(podId);
    if (slot === undefined) return;
    this.#table.removePod(slot);
    this.#slots.delete(podId);
  }

  /** Forgets what a pod held before a time, and gives the touch that tells others so; null when the pod is not known. */
  clear(podId: number, timeMs: number): TouchChunk | null {
    const slot = this.#slots.get(podId);
    if (slot === undefined) return null;
    this.#table.clearPod(slot, timeMs);
    return this.#frames.clearChunk(podId, timeMs);
  }

  held(podId: number): Held {
    const slot = this.#slots.get(podId);
    if (slot === undefined) return { blocks: 0, bytes: 0 };
    return { blocks: this.#table.podBlocks(slot), bytes: this.#table.podBytes(slot) };
  }

  /** Applies touches; answers how many spoke of pods that are not known. */
  apply(chunk: TouchChunk): number {
    return this.#frames.takeTouches(POOL_SLOT, chunk);
  }

  /** Everything the table holds as touch records, newest of each pod first, in pieces much smaller than a frame. */
  snapshot(bytesMax: number): TouchChunk[] {
    const chunks: TouchChunk[] = [];
    let bytesLeft = bytesMax;
    for (const slot of this.#slots.values()) {
      for (let cursor = 0n; cursor !== EXPORT_DONE && bytesLeft > 0;) {
        const part = this.#table.export(slot, cursor, bytesLeft);
        if (part.bytes.length === 0) break;
        bytesLeft -= part.bytes.length;
        cursor = part.next;
        chunks.push({ bytes: part.bytes, records: part.records, keys: part.keys });
      }
    }
    return chunks;
  }
}
