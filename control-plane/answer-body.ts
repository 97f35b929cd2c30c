// Puts the frames of an answer together in room that is used again and again: an answer is some 80 KB, a thousand times a second, and memory that
// is asked for and dropped at that rate keeps the garbage collector busy, which stops everything.
import { Rooms } from './rooms.ts';

/** An answer that is longer than this is rare, and gets memory of its own. */
const ROOM_BYTES = 256 << 10;
/** Room that is kept; answers on slow connections may hold more at a time. */
const ROOMS_KEPT = 16;

export class AnswerBody {
  readonly #rooms = new Rooms(ROOM_BYTES, ROOMS_KEPT);
  /** The memory of answers that nobody has given back yet. */
  readonly #lent = new WeakMap<ArrayBufferLike, Buffer>();
  #room: Buffer | undefined;
  #at = 0;
  #full: Buffer[] = [];

  /** What an answer that came to nothing has left goes. */
  begin(): void {
    this.#at = 0;
    this.#full = [];
  }

  add(frame: Uint8Array): void {
    this.#room ??= this.#rooms.take();
    if (frame.length > ROOM_BYTES - this.#at) {
      this.#full.push(Buffer.from(this.#room.subarray(0, this.#at)));
      this.#at = 0;
    }
    if (frame.length > ROOM_BYTES) {
      this.#full.push(Buffer.from(frame));
      return;
    }
    this.#room.set(frame, this.#at);
    this.#at += frame.length;
  }

  /** The answer. Its bytes stay as they are until it is given back. */
  take(): Buffer {
    const room = this.#room ?? Buffer.alloc(0);
    const last = room.subarray(0, this.#at);
    if (this.#full.length > 0) return Buffer.concat([...this.#full, last]);
    this.#room = undefined;
    this.#lent.set(room.buffer, room);
    return last;
  }

  /** An answer is done with, and another may take its place. Those that are never given back are left to the garbage collector. */
  give(answer: Buffer): void {
    const room = this.#lent.get(answer.buffer);
    this.#lent.delete(answer.buffer);
    if (room !== undefined) this.#rooms.give(room);
  }
}
