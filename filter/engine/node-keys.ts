// The exports of engine.wasm that read requests and responses, for Node (control-plane/engine/keys.ts) and for the tests.
import { chainEnds, chainKeys } from './chain';
import { digestFinish, digestStart, digestStripe, poolKeys } from './digest';
import { reasonName } from './reasons';

export { secretClear, secretKnown, secretSet, sipHash, chainStep } from './digest';
export {
  apiOfPath,
  scanClose,
  scanEnd,
  scanFeed,
  scanInit,
  scanModelBytes,
  scanModelPtr,
  scanOpen,
  scanPoolSet,
  scanPromptBytes,
  scanStream,
} from './scan';
export { scanLanguage } from './language';
export { recordPagesFree } from './record';
export { chainPrompts, chainReason, chainRun } from './chain';
export { deltaFeed, deltaFound } from './first-token';
export { usageCachedTokens, usageCompletionTokens, usageFeed, usageInit, usageOpen, usagePromptTokens } from './usage';

const INPUT_BYTES: u32 = 64 * 1024;
const input: usize = memory.data(65536, 16);
const sip: usize = memory.data(32, 16);

/** Where Node puts bytes that it passes: a piece of a body, a path, a secret. */
export function keysInput(): usize {
  return input;
}

export function keysInputBytes(): u32 {
  return INPUT_BYTES;
}

export function chainKeysPtr(): usize {
  return changetype<usize>(chainKeys());
}

export function chainEndsPtr(): usize {
  return changetype<usize>(chainEnds());
}

export function reasonNameLength(code: u32): u32 {
  return reasonName(code).length;
}

export function reasonNameByte(code: u32, at: u32): u32 {
  const name = reasonName(code);
  return at < <u32>name.length ? name.charCodeAt(at) : 0;
}

/** The digest of one stripe at the input, of up to 256 bytes that are filled up with zeros to a multiple of 32. */
export function stripeDigest(pool: u32, bytes: u32): u64 {
  digestStart(sip, poolKeys(pool));
  digestStripe(sip, poolKeys(pool), input, (<i32>((bytes < 256 ? bytes : 256) + 31)) >> 5);
  return digestFinish(sip, bytes);
}

/** A word of a pool's derived keys, for the known-answer tests. */
export function poolKeyWord(pool: u32, at: u32): u64 {
  return load<u64>(poolKeys(pool) + ((<usize>at % 38) << 3));
}
