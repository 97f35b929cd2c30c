// The control plane's own table of one pool: the same engine as in the filter, fed with the same touches, so that a new
// gateway can be given what the others know. Each pool has an engine instance with a memory of its own.
import type { TouchChunk, TouchRecord } from './engine/frames.ts';
import { EXPORT_DONE, Table } from './engine/table.ts';

const POOL_SLOT = 0;

export interface Held {
  blocks: number;
  bytes: number;
}

export class PoolTable {
  readonly #table: Table;
  readonly #slots = new Map<number, number>();

  private constructor(table: Table) {
    this.#table = table;
  }

  static async create(pods: number, blocks: number): Promise<PoolTable> {
    return new PoolTable(await Table.create({ pods, blocks }));
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

  held(podId: number): Held {
    const slot = this.#slots.get(podId);
    if (slot === undefined) return { blocks: 0, bytes: 0 };
    return { blocks: this.#table.podBlocks(slot), bytes: this.#table.podBytes(slot) };
  }

  /** Applies touches; answers how many spoke of pods that are not known. */
  apply(touches: TouchRecord[]): number {
    let skipped = 0;
    for (const { podId, clear, timeMs, parentKey, keys, weights } of touches) {
      const slot = this.#slots.get(podId);
      if (slot === undefined) skipped++;
      else if (clear) this.#table.clearPod(slot, timeMs);
      else this.#table.touch(slot, timeMs, parentKey, keys, weights);
    }
    return skipped;
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
