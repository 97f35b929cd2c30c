// Prompt text on its way into digests: runs of bytes, cut into blocks, each block one digest on the record's tape.
//
// A run is one field of one message. Its bytes come in pieces of any size; they gather in the record's stripe buffer, and whole stripes that
// lie in one piece are digested where they are. A block at offset s of its run has max(blockBytes, (s / 16) rounded down to a
// multiple of 256) bytes, so blocks grow with a run and their number with its logarithm.
//
// Media are digested like text but do not count like it: 1 MB of a picture's data is not 250,000 tokens. A media string counts with its
// first 1,024 bytes and with 1/64 of the others. What a block counts depends on nothing behind it, so equal keys have equal ends.
import { digestFinish, digestStart, digestStripe, STRIPE_BYTES } from './digest';
import { languageSample, SAMPLE_BYTES } from './language';
import {
  AT_BLOCK_BYTES,
  AT_BLOCK_DONE,
  AT_BLOCK_LEFT,
  AT_FILL,
  AT_KEYS,
  AT_LAST_DIGEST,
  AT_LIMIT,
  AT_MEDIA_FROM,
  AT_MEDIA_PLAIN,
  AT_PROMPT_BYTES,
  AT_RUN_BYTES,
  AT_RUN_COUNT,
  AT_RUN_COUNTED,
  AT_RUN_CUT,
  AT_RUN_HEADER,
  AT_RUN_KIND,
  AT_SIP,
  AT_STRIPE,
  NOWHERE,
  RUN_UNCOUNTED,
  runHeader,
  tapePatch,
  tapePush,
} from './record';

/** The block rule: bytes of the block that begins at `offset` of its run. */
export function blockSize(offset: u32, blockBytes: u32): u32 {
  const grown = (offset >> 4) & ~255;
  return grown > blockBytes ? grown : blockBytes;
}

// A run that is one block whatever its length: model, cache_salt, tools.
const WHOLE: u32 = 0xffffff00;

// A media string counts with so many bytes of its beginning, and with 1/64 of those behind them.
const MEDIA_COUNTED: u32 = 1024;
const MEDIA_SHIFT: u32 = 6;
// Data and addresses have no space in so many bytes at their beginning; a text has.
const MEDIA_PROBED: u32 = 64;

/** Begins a run that is cut into blocks. Its header is reserved on the tape; without one its text is lost, and the chain will stop before it. */
export function runOpen(rec: usize, kind: u32): void {
  store<u32>(rec, tapePush(rec, 0), AT_RUN_HEADER);
  begin(rec, kind, blockSize(0, load<u32>(rec, AT_BLOCK_BYTES)));
}

/** Begins a run that is one block and leaves its digest to the caller of `runCloseWhole`. */
export function runOpenWhole(rec: usize, kind: u32): void {
  store<u32>(rec, NOWHERE, AT_RUN_HEADER);
  begin(rec, kind, WHOLE);
}

function begin(rec: usize, kind: u32, block: u32): void {
  store<u32>(rec, kind, AT_RUN_KIND);
  store<u32>(rec, 0, AT_RUN_BYTES);
  store<u32>(rec, 0, AT_RUN_COUNT);
  store<u32>(rec, 0, AT_FILL);
  store<u32>(rec, NOWHERE, AT_MEDIA_FROM);
  store<u32>(rec, 0, AT_RUN_CUT);
  store<u32>(rec, RUN_UNCOUNTED, AT_RUN_COUNTED);
  blockStart(rec, block);
}

function blockStart(rec: usize, block: u32): void {
  digestStart(rec + AT_SIP, load<u32>(rec, AT_KEYS));
  store<u32>(rec, 0, AT_BLOCK_DONE);
  store<u32>(rec, block, AT_BLOCK_LEFT);
  store<u32>(rec, block < STRIPE_BYTES ? block : STRIPE_BYTES, AT_LIMIT);
}

/** Accounts for `bytes` before `end` that went into the digest, 64 or more, and ends the block if it is full. */
function advance(rec: usize, bytes: u32, end: usize): void {
  const offset = load<u32>(rec, AT_RUN_BYTES) + bytes;
  const done = load<u32>(rec, AT_BLOCK_DONE) + bytes;
  const left = load<u32>(rec, AT_BLOCK_LEFT) - bytes;
  store<u32>(rec, offset, AT_RUN_BYTES);
  store<u32>(rec, done, AT_BLOCK_DONE);
  store<u32>(rec, left, AT_BLOCK_LEFT);
  if (left == 0) {
    sample(rec, end - SAMPLE_BYTES);
    blockEnd(rec, done, offset);
    blockStart(rec, blockSize(offset, load<u32>(rec, AT_BLOCK_BYTES)));
  } else if (left < STRIPE_BYTES) {
    store<u32>(rec, left, AT_LIMIT);
  }
}

/** Looks at the end of a block for the prompt's language, unless it is no text: a whole run or media. */
function sample(rec: usize, ptr: usize): void {
  if (load<u32>(rec, AT_RUN_HEADER) == NOWHERE || load<u32>(rec, AT_MEDIA_FROM) != NOWHERE) return;
  languageSample(rec, ptr);
}

/** Ends a block of `bytes` bytes at `offset` of its run. */
function blockEnd(rec: usize, bytes: u32, offset: u32): void {
  const digest = digestFinish(rec + AT_SIP, bytes);
  store<u64>(rec, digest, AT_LAST_DIGEST);
  if (load<u32>(rec, AT_RUN_HEADER) == NOWHERE) return;
  if (tapePush(rec, digest) == NOWHERE) return;
  const count = load<u32>(rec, AT_RUN_COUNT);
  const uncounted = cutAt(rec, offset);
  if (uncounted > 0) {
    if (load<u32>(rec, AT_RUN_COUNTED) == RUN_UNCOUNTED) store<u32>(rec, count, AT_RUN_COUNTED);
    if (tapePush(rec, offset - uncounted) == NOWHERE) return;
  }
  store<u32>(rec, count + 1, AT_RUN_COUNT);
}

/** How many of a media string's first `bytes` bytes do not count. */
function mediaCut(bytes: u32): u32 {
  if (bytes <= MEDIA_COUNTED) return 0;
  const rest = bytes - MEDIA_COUNTED;
  return rest - (rest >> MEDIA_SHIFT);
}

/** How many of the run's bytes up to `offset`, where the text stands, do not count. */
function cutAt(rec: usize, offset: u32): u32 {
  const from = load<u32>(rec, AT_MEDIA_FROM);
  const cut = load<u32>(rec, AT_RUN_CUT);
  return from == NOWHERE ? cut : cut + mediaCut(offset - from);
}

/** Begins a string that may be media. */
export function mediaStart(rec: usize): void {
  store<u32>(rec, 0, AT_MEDIA_PLAIN);
}

/** One of the first bytes of a string that may be media. Returns whether the next one is to be looked at too. */
export function mediaByte(rec: usize, byte: u32): bool {
  runByte(rec, byte);
  if (byte <= 0x20 || byte >= 0x7f) return false;
  const plain = load<u32>(rec, AT_MEDIA_PLAIN) + 1;
  store<u32>(rec, plain, AT_MEDIA_PLAIN);
  if (plain < MEDIA_PROBED) return true;
  store<u32>(rec, load<u32>(rec, AT_RUN_BYTES) + load<u32>(rec, AT_FILL) - MEDIA_PROBED, AT_MEDIA_FROM);
  return false;
}

/** Ends a string that may have been media. */
export function mediaEnd(rec: usize): void {
  const from = load<u32>(rec, AT_MEDIA_FROM);
  if (from == NOWHERE) return;
  const bytes = load<u32>(rec, AT_RUN_BYTES) + load<u32>(rec, AT_FILL) - from;
  store<u32>(rec, load<u32>(rec, AT_RUN_CUT) + mediaCut(bytes), AT_RUN_CUT);
  store<u32>(rec, NOWHERE, AT_MEDIA_FROM);
}

/** Digests the stripe buffer, which holds AT_LIMIT bytes, a multiple of 64. */
export function stripeFull(rec: usize): void {
  const limit = load<u32>(rec, AT_LIMIT);
  digestStripe(rec + AT_SIP, load<u32>(rec, AT_KEYS), rec + AT_STRIPE, limit >> 5);
  store<u32>(rec, 0, AT_FILL);
  advance(rec, limit, rec + AT_STRIPE + limit);
}

/** Digests 256 bytes where they lie. The stripe buffer is empty and AT_LIMIT is a whole stripe. */
export function stripeDirect(rec: usize, ptr: usize): void {
  digestStripe(rec + AT_SIP, load<u32>(rec, AT_KEYS), ptr, 8);
  advance(rec, STRIPE_BYTES, ptr + STRIPE_BYTES);
}

export function runByte(rec: usize, byte: u32): void {
  const fill = load<u32>(rec, AT_FILL);
  store<u8>(rec + AT_STRIPE + fill, <u8>byte);
  store<u32>(rec, fill + 1, AT_FILL);
  if (fill + 1 >= load<u32>(rec, AT_LIMIT)) stripeFull(rec);
}

export function runBytes(rec: usize, ptr: usize, length: u32): void {
  for (let i: u32 = 0; i < length; i++) runByte(rec, load<u8>(ptr + i));
}

/** Digests what is left of the last block. Returns the bytes of the run. */
function finish(rec: usize): u32 {
  const fill = load<u32>(rec, AT_FILL);
  const bytes = load<u32>(rec, AT_RUN_BYTES) + fill;
  const block = load<u32>(rec, AT_BLOCK_DONE) + fill;
  if (fill > 0) {
    const stripe = rec + AT_STRIPE;
    const zero = i64x2.splat(0);
    v128.store(stripe + fill, zero);
    v128.store(stripe + fill, zero, 16);
    digestStripe(rec + AT_SIP, load<u32>(rec, AT_KEYS), stripe, (fill + 31) >> 5);
    sample(rec, fill > SAMPLE_BYTES ? stripe + fill - SAMPLE_BYTES : stripe);
  }
  if (block > 0 || load<u32>(rec, AT_RUN_HEADER) == NOWHERE) blockEnd(rec, block, bytes);
  return bytes;
}

/** Ends a run and writes its header. `[]` and `{}` alone are nothing: a run of `emptyBytes` or fewer leaves no trace. */
export function runClose(rec: usize, emptyBytes: u32): void {
  const header = load<u32>(rec, AT_RUN_HEADER);
  if (load<u32>(rec, AT_RUN_BYTES) + load<u32>(rec, AT_FILL) <= emptyBytes) return;
  const bytes = finish(rec);
  store<u32>(rec, load<u32>(rec, AT_PROMPT_BYTES) + bytes - load<u32>(rec, AT_RUN_CUT), AT_PROMPT_BYTES);
  const kind = load<u32>(rec, AT_RUN_KIND);
  tapePatch(header, runHeader(kind, load<u32>(rec, AT_RUN_COUNTED), load<u32>(rec, AT_RUN_COUNT), bytes));
}

/** Ends a run that is one block. Its digest is in AT_LAST_DIGEST; returns its bytes. */
export function runCloseWhole(rec: usize): u32 {
  return finish(rec);
}
