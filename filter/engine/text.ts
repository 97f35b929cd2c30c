// Prompt text on its way into digests: runs of bytes, cut into blocks, each block one digest on the record's tape.
//
// A run is one field of one message. Its bytes come in pieces of any size; they gather in the record's stripe buffer, and whole stripes that
// lie in one piece are digested where they are. A block at offset s of its run has max(blockBytes, (s / 16) rounded down to a
// multiple of 256) bytes, so blocks grow with a run and their number with its logarithm.
import { digestFinish, digestStart, digestStripe, STRIPE_BYTES } from './digest';
import {
  AT_BLOCK_BYTES,
  AT_BLOCK_DONE,
  AT_BLOCK_LEFT,
  AT_FILL,
  AT_KEYS,
  AT_LAST_DIGEST,
  AT_LIMIT,
  AT_PROMPT_BYTES,
  AT_RUN_BYTES,
  AT_RUN_COUNT,
  AT_RUN_HEADER,
  AT_RUN_KIND,
  AT_SIP,
  AT_STRIPE,
  NOWHERE,
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
  blockStart(rec, block);
}

function blockStart(rec: usize, block: u32): void {
  digestStart(rec + AT_SIP, load<u32>(rec, AT_KEYS));
  store<u32>(rec, 0, AT_BLOCK_DONE);
  store<u32>(rec, block, AT_BLOCK_LEFT);
  store<u32>(rec, block < STRIPE_BYTES ? block : STRIPE_BYTES, AT_LIMIT);
}

/** Accounts for `bytes` that went into the digest, and ends the block if it is full. */
function advance(rec: usize, bytes: u32): void {
  const offset = load<u32>(rec, AT_RUN_BYTES) + bytes;
  const done = load<u32>(rec, AT_BLOCK_DONE) + bytes;
  const left = load<u32>(rec, AT_BLOCK_LEFT) - bytes;
  store<u32>(rec, offset, AT_RUN_BYTES);
  store<u32>(rec, done, AT_BLOCK_DONE);
  store<u32>(rec, left, AT_BLOCK_LEFT);
  if (left == 0) {
    blockEnd(rec, done);
    blockStart(rec, blockSize(offset, load<u32>(rec, AT_BLOCK_BYTES)));
  } else if (left < STRIPE_BYTES) {
    store<u32>(rec, left, AT_LIMIT);
  }
}

function blockEnd(rec: usize, bytes: u32): void {
  const digest = digestFinish(rec + AT_SIP, bytes);
  store<u64>(rec, digest, AT_LAST_DIGEST);
  if (load<u32>(rec, AT_RUN_HEADER) == NOWHERE) return;
  if (tapePush(rec, digest) != NOWHERE) store<u32>(rec, load<u32>(rec, AT_RUN_COUNT) + 1, AT_RUN_COUNT);
}

/** Digests the stripe buffer, which holds AT_LIMIT bytes, a multiple of 64. */
export function stripeFull(rec: usize): void {
  const limit = load<u32>(rec, AT_LIMIT);
  digestStripe(rec + AT_SIP, load<u32>(rec, AT_KEYS), rec + AT_STRIPE, limit >> 5);
  store<u32>(rec, 0, AT_FILL);
  advance(rec, limit);
}

/** Digests 256 bytes where they lie. The stripe buffer is empty and AT_LIMIT is a whole stripe. */
export function stripeDirect(rec: usize, ptr: usize): void {
  digestStripe(rec + AT_SIP, load<u32>(rec, AT_KEYS), ptr, 8);
  advance(rec, STRIPE_BYTES);
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
  }
  if (block > 0 || load<u32>(rec, AT_RUN_HEADER) == NOWHERE) blockEnd(rec, block);
  return bytes;
}

/** Ends a run and writes its header. `[]` and `{}` alone are nothing: a run of `emptyBytes` or fewer leaves no trace. */
export function runClose(rec: usize, emptyBytes: u32): void {
  const header = load<u32>(rec, AT_RUN_HEADER);
  if (load<u32>(rec, AT_RUN_BYTES) + load<u32>(rec, AT_FILL) <= emptyBytes) return;
  const bytes = finish(rec);
  store<u32>(rec, load<u32>(rec, AT_PROMPT_BYTES) + bytes, AT_PROMPT_BYTES);
  const count = load<u32>(rec, AT_RUN_COUNT);
  tapePatch(header, (<u64>load<u32>(rec, AT_RUN_KIND)) | ((<u64>(count & 0xffffff)) << 8) | ((<u64>bytes) << 32));
}

/** Ends a run that is one block. Its digest is in AT_LAST_DIGEST; returns its bytes. */
export function runCloseWhole(rec: usize): u32 {
  return finish(rec);
}
