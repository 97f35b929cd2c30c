// The touches that gateways reported lately, in the order they came, so that each gateway can be given what the others did
// since it last asked. A chunk is all touches of one report and has one sequence number. When the log is full the oldest
// chunks go; a gateway that needed them gets a snapshot instead.
import type { TouchChunk } from './engine/frames.ts';

interface Entry {
  sequence: bigint;
  origin: string;
  chunk: TouchChunk;
}

export class TouchLog {
  readonly #bytesMax: number;
  #entries: Entry[] = [];
  #first = 0;
  #bytes = 0;
  #last = 0n;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Sequence of the newest chunk; 0 when there was none yet. */
  get last(): bigint {
    return this.#last;
  }

  get bytes(): number {
    return this.#bytes;
  }

  append(origin: string, chunk: TouchChunk): void {
    this.#last++;
    this.#entries.push({ sequence: this.#last, origin, chunk });
    this.#bytes += chunk.bytes.length;
    while (this.#bytes > this.#bytesMax && this.#first < this.#entries.length) {
      this.#bytes -= this.#entries[this.#first]?.chunk.bytes.length ?? 0;
      this.#first++;
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

  /** Chunks of others after a sequence, up to so many bytes (one at least), and the sequence they reach. */
  since(sequence: bigint, except: string, bytesMax: number): { chunks: TouchChunk[]; reaches: bigint } {
    const chunks: TouchChunk[] = [];
    let bytes = 0;
    let reaches = sequence;
    const start = this.#entries.length - Number(this.#last - sequence);
    for (let i = Math.max(start, this.#first); i < this.#entries.length; i++) {
      const entry = this.#entries[i];
      if (entry === undefined) break;
      if (entry.origin !== except) {
        bytes += entry.chunk.bytes.length;
        if (chunks.length > 0 && bytes > bytesMax) break;
        chunks.push(entry.chunk);
      }
      reaches = entry.sequence;
    }
    return { chunks, reaches };
  }
}
