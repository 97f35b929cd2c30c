// Takes in the answer to one GET over HTTP/1.1 as its bytes come, in room that is used again: metrics pages come to 50 MB a second at full size, and
// memory that is asked for and dropped at that rate makes the garbage collector mark the whole heap several times a second.
import { LIMITS } from './limits.ts';
import { Rooms } from './rooms.ts';

/** Most pages and their heads fit; a longer one gets memory of its own. */
const ROOM_BYTES = 128 << 10;
const ROOMS_KEPT = 8;
const HEAD_BYTES_MAX = 32 << 10;
/** Provisional answers before the answer. */
const PROVISIONAL_MAX = 8;
const CRLF = Buffer.from('\r\n');
const HEAD_END = Buffer.from('\r\n\r\n');

const rooms = new Rooms(ROOM_BYTES, ROOMS_KEPT);
const NO_ROOM: Buffer = Buffer.alloc(0);

export type Taken = 'more' | 'done' | 'too-large' | 'malformed';

export class PageAnswer {
  #room: Buffer = NO_ROOM;
  /** Bytes in the room, and where the body begins in it; 0 before the head is whole. */
  #bytes = 0;
  #bodyAt = 0;
  /** Bytes of the body as it is once it is whole; -1 = until the connection ends. */
  #length = -1;
  #isChunked = false;
  /** Where the next chunk's head is, and where what is in the chunks ends when they are pushed together. */
  #chunkAt = 0;
  #chunksEnd = 0;
  /** All that came, chunk heads among it. */
  #received = 0;
  #provisional = 0;
  status = 0;
  /** Whether the connection is good for another request. */
  staysOpen = false;

  get hasBegun(): boolean {
    return this.#received > 0;
  }

  /** The next bytes of the connection. */
  take(part: Uint8Array): Taken {
    this.#received += part.length;
    if (this.#received > LIMITS.scrapeBytes + HEAD_BYTES_MAX) return 'too-large';
    if (this.#room === NO_ROOM) this.#room = rooms.take();
    this.#reserve(this.#bytes + part.length);
    this.#room.set(part, this.#bytes);
    this.#bytes += part.length;
    while (this.#bodyAt === 0) {
      const taken = this.#takeHead();
      if (taken !== 'done') return taken;
    }
    if (this.#isChunked) return this.#takeChunks();
    if (this.#length < 0 || this.#bytes - this.#bodyAt < this.#length) return 'more';
    // What follows the answer was not asked for.
    if (this.#bytes - this.#bodyAt > this.#length) this.staysOpen = false;
    return 'done';
  }

  /** The connection has ended: that may be the end of the answer, too. */
  end(): Taken {
    if (this.#bodyAt === 0 || this.#isChunked || this.#length >= 0) return 'malformed';
    this.#length = this.#bytes - this.#bodyAt;
    this.staysOpen = false;
    return this.#length > LIMITS.scrapeBytes ? 'too-large' : 'done';
  }

  /** The body, good until release(). */
  page(): Buffer {
    return this.#room.subarray(this.#bodyAt, this.#bodyAt + this.#length);
  }

  /** Nothing of it is wanted any more. */
  release(): void {
    rooms.give(this.#room);
    this.#room = NO_ROOM;
  }

  #reserve(bytes: number): void {
    if (bytes <= this.#room.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(bytes, this.#room.length * 2));
    larger.set(this.#room.subarray(0, this.#bytes));
    this.release();
    this.#room = larger;
  }

  #takeHead(): Taken {
    const end = this.#room.subarray(0, this.#bytes).indexOf(HEAD_END);
    if (end < 0) return this.#bytes > HEAD_BYTES_MAX ? 'malformed' : 'more';
    const [first = '', ...lines] = this.#room.toString('latin1', 0, end).split('\r\n');
    const [, minor, status] = /^HTTP\/1\.([01]) (\d{3})(?: |$)/.exec(first) ?? [];
    if (status === undefined) return 'malformed';
    const next = end + HEAD_END.length;
    this.status = Number(status);
    if (this.status < 200) {
      // Something provisional; the answer follows.
      if (++this.#provisional > PROVISIONAL_MAX) return 'malformed';
      this.#room.copyWithin(0, next, this.#bytes);
      this.#bytes -= next;
      return 'done';
    }
    this.staysOpen = minor === '1';
    for (const line of lines) {
      const colon = line.indexOf(':');
      if (!this.#takeHeader(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim())) return 'malformed';
    }
    if (this.#isChunked) this.#length = -1;
    if (this.status === 204 || this.status === 304) [this.#length, this.#isChunked] = [0, false];
    if (this.#length > LIMITS.scrapeBytes) return 'too-large';
    this.#bodyAt = next;
    this.#chunkAt = next;
    this.#chunksEnd = next;
    return 'done';
  }

  #takeHeader(name: string, value: string): boolean {
    if (name === 'connection') {
      const isClose = value.split(',').some((option) => option.trim().toLowerCase() === 'close');
      if (isClose) this.staysOpen = false;
      return true;
    }
    if (name === 'transfer-encoding') {
      this.#isChunked = value.toLowerCase() === 'chunked';
      return this.#isChunked;
    }
    if (name !== 'content-length') return true;
    const isOther = this.#length >= 0 && this.#length !== Number(value);
    this.#length = Number(value);
    return /^\d{1,15}$/.test(value) && !isOther;
  }

  /** Pushes together what is in the chunks that have come. */
  #takeChunks(): Taken {
    const bytes = this.#room.subarray(0, this.#bytes);
    for (;;) {
      const lineEnd = bytes.indexOf(CRLF, this.#chunkAt);
      if (lineEnd < 0) return this.#bytes - this.#chunkAt > HEAD_BYTES_MAX ? 'malformed' : 'more';
      const line = bytes.toString('latin1', this.#chunkAt, lineEnd);
      const [, hex] = /^([0-9a-f]{1,8})[ \t]*(?:;.*)?$/i.exec(line) ?? [];
      if (hex === undefined) return 'malformed';
      const size = Number.parseInt(hex, 16);
      if (size === 0) return this.#takeTrailers(lineEnd);
      const from = lineEnd + CRLF.length;
      const to = from + size;
      if (to + CRLF.length > LIMITS.scrapeBytes + HEAD_BYTES_MAX) return 'too-large';
      if (to + CRLF.length > this.#bytes) return 'more';
      if (bytes[to] !== CRLF[0] || bytes[to + 1] !== CRLF[1]) return 'malformed';
      this.#room.copyWithin(this.#chunksEnd, from, to);
      this.#chunksEnd += size;
      this.#chunkAt = to + CRLF.length;
    }
  }

  /** Lines after the last chunk are not looked at; an empty one ends the answer. */
  #takeTrailers(lastLineEnd: number): Taken {
    const end = this.#room.subarray(0, this.#bytes).indexOf(HEAD_END, lastLineEnd);
    if (end < 0) return this.#bytes - lastLineEnd > HEAD_BYTES_MAX ? 'malformed' : 'more';
    if (end + HEAD_END.length < this.#bytes) this.staysOpen = false;
    this.#length = this.#chunksEnd - this.#bodyAt;
    return this.#length > LIMITS.scrapeBytes ? 'too-large' : 'done';
  }
}
