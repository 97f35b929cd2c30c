// The touches that gateways reported lately, in the order they came, so that each gateway can be given what the others did
// since it last asked. A chunk is all touches of one report and has one sequence number. When the log is full the oldest
// chunks go; a gateway that needed them gets a snapshot instead.
//
// The bytes lie one behind the other in a ring that is reserved once, so that an answer, which has all but the asker's own of some stretch of it,
// is made of a few long pieces and not of a hundred short ones.
import { FRAME_BYTES_MAX } from './engine/frames.ts';
import type { TouchChunk } from './engine/frames.ts';

interface Entry {
  origin: string;
  /** Where its bytes begin in the ring. */
  at: number;
  bytes: number;
  records: number;
  keys: number;
}

/** Pieces are joined up to so many bytes: each must fit into a frame. */
const PIECE_BYTES = 256 << 10;

export class TouchLog {
  readonly #bytesMax: number;
  readonly #ring: Uint8Array;
  #at = 0;
  #entries: Entry[] = [];
  #first = 0;
  #bytes = 0;
  #last = 0n;

  /** A chunk longer than `bytesMax` is not kept, and leaves everybody behind. */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
    // A chunk is not cut in two: what is left of the ring's end when one does not fit there is less than a frame.
    this.#ring = new Uint8Array(bytesMax + FRAME_BYTES_MAX);
  }

  /** Sequence of the newest chunk; 0 when there was none yet. */
  get last(): bigint {
    return this.#last;
  }

  get bytes(): number {
    return this.#bytes;
  }

  append(origin: string, chunk: TouchChunk): void {
    const bytes = chunk.bytes.length;
    this.#last++;
    this.#bytes += bytes;
    if (bytes > this.#ring.length - this.#at) this.#at = 0;
    this.#entries.push({ origin, at: this.#at, bytes, records: chunk.records, keys: chunk.keys });
    while (this.#bytes > this.#bytesMax && this.#first < this.#entries.length) {
      this.#bytes -= this.#entries[this.#first]?.bytes ?? 0;
      this.#first++;
    }
    if (bytes <= this.#bytesMax) {
      this.#ring.set(chunk.bytes, this.#at);
      this.#at += bytes;
    }
    if (this.#first > 1024 && this.#first * 2 > this.#entries.length) {
      this.#entries = this.#entries.slice(this.#first);
      this.#first = 0;
    }
  }

  /** Whether everything after a sequence is still here. */
  reachesBack(sequence: bigint): boolean {
    return sequence <= this.#last && sequence >= this.#last - BigInt(this.#entries.length - this.#first);
  }

  /**
   * What others told after a sequence, up to so many bytes (one chunk at least), and the sequence it reaches. Neighbours are joined. The pieces
   * are good until the next append().
   */
  since(sequence: bigint, except: string, bytesMax: number): { chunks: TouchChunk[]; reaches: bigint } {
    const chunks: TouchChunk[] = [];
    const start = this.#entries.length - Number(this.#last - sequence);
    let [bytes, at, end, records, keys] = [0, 0, 0, 0, 0];
    let i = Math.max(start, this.#first);
    const close = (): void => {
      if (end > at) chunks.push({ bytes: this.#ring.subarray(at, end), records, keys });
    };
    for (; i < this.#entries.length; i++) {
      const entry = this.#entries[i];
      if (entry === undefined) break;
      if (entry.origin === except) continue;
      if (bytes > 0 && bytes + entry.bytes > bytesMax) break;
      bytes += entry.bytes;
      if (entry.at !== end || end - at + entry.bytes > PIECE_BYTES) {
        close();
        [at, records, keys] = [entry.at, 0, 0];
      }
      end = entry.at + entry.bytes;
      records += entry.records;
      keys += entry.keys;
    }
    close();
    return { chunks, reaches: this.#last - BigInt(this.#entries.length - i) };
  }
}
