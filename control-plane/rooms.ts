// Memory of one size that is used again and again: what is asked for and dropped a thousand times a second keeps the garbage collector busy, which
// stops everything.

export class Rooms {
  readonly #bytes: number;
  readonly #keptMax: number;
  readonly #free: Buffer[] = [];

  /** Of the rooms that are given back, so many are kept at a time. */
  constructor(bytes: number, keptMax: number) {
    this.#bytes = bytes;
    this.#keptMax = keptMax;
  }

  /** Its bytes are whatever they were. */
  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#bytes);
  }

  /** Nobody looks into it any more. Memory of another size is left to the garbage collector. */
  give(room: Buffer): void {
    if (room.length === this.#bytes && this.#free.length < this.#keptMax) this.#free.push(room);
  }
}
