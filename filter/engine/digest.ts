// The keyed hashes of the engine: SipHash, and NH with a SipHash finish for text.
//
// A key must say nothing about the text behind it to whoever does not know the pool's secret, and nobody without it may find two
// texts with one digest. NH (the universal hash of UMAC, two passes with a Toeplitz-shifted key) turns each 256-byte stripe into two 64-bit
// sums at the speed of memory; SipHash-1-3 absorbs these sums and the length. docs/KEYS.md fixes every bit of it.
//
//   pool's keys, derived from its 32-byte secret S:   word i = SipHash-2-4(S[0..16), S[16..32) ‖ "warmpath" ‖ u64 i)
//     0..33  NH key, 68 words of 32 bits
//    34, 35  SipHash-1-3 key of text digests
//    36, 37  SipHash-1-3 key of the chain
import { POOLS_MAX } from './limits';

export const SECRET_BYTES: u32 = 32;
export const STRIPE_BYTES: u32 = 256;

const WORDS: u32 = 38;
const WORD_DIGEST: usize = 34 * 8;
const WORD_CHAIN: usize = 36 * 8;
// After the words: whether there is a secret, and how often it was set, so that a stream notices a change under its feet.
const AT_KNOWN: usize = 38 * 8;
const AT_GENERATION: usize = 38 * 8 + 4;
const POOL_BYTES: usize = 320;
const POLICY_LABEL: u64 = 0x706f6c6963796b65;
const LABEL: u64 = 0x687461706d726177; // "warmpath", little-endian

const pools: usize = memory.data(2560, 16);
const derivation: usize = memory.data(32, 16);
const scratch: usize = memory.data(32, 16);
/** Words on their way into a SipHash. */
const absorbed: usize = memory.data(32, 16);

const SIP_0: u64 = 0x736f6d6570736575;
const SIP_1: u64 = 0x646f72616e646f6d;
const SIP_2: u64 = 0x6c7967656e657261;
const SIP_3: u64 = 0x7465646279746573;

/** Where a pool's keys lie. A pool that does not exist reads as pool 0, which callers refuse before it matters. */
export function poolKeys(pool: u32): usize {
  return pool < POOLS_MAX ? pools + POOL_BYTES * <usize>pool : pools;
}

export function secretSet(pool: u32, ptr: usize): void {
  if (pool >= POOLS_MAX) return;
  const keys = poolKeys(pool);
  const k0 = load<u64>(ptr);
  const k1 = load<u64>(ptr, 8);
  store<u64>(derivation, load<u64>(ptr, 16));
  store<u64>(derivation, load<u64>(ptr, 24), 8);
  store<u64>(derivation, LABEL, 16);
  for (let i: u32 = 0; i < WORDS; i++) {
    store<u64>(derivation, i, 24);
    store<u64>(keys + ((<usize>i) << 3), sipHash(k0, k1, derivation, 32, 2, 4));
  }
  memory.fill(derivation, 0, 32);
  store<u32>(keys, 1, AT_KNOWN);
  store<u32>(keys, load<u32>(keys, AT_GENERATION) + 1, AT_GENERATION);
}

export function secretClear(pool: u32): void {
  if (pool >= POOLS_MAX) return;
  const keys = poolKeys(pool);
  memory.fill(keys, 0, WORDS * 8);
  store<u32>(keys, 0, AT_KNOWN);
  store<u32>(keys, load<u32>(keys, AT_GENERATION) + 1, AT_GENERATION);
}

export function secretKnown(pool: u32): bool {
  return pool < POOLS_MAX && load<u32>(poolKeys(pool), AT_KNOWN) != 0;
}

/** Changes with every `secretSet` and `secretClear` of the pool. */
export function secretGeneration(pool: u32): u32 {
  return load<u32>(poolKeys(pool), AT_GENERATION);
}

/** Begins a SipHash in the 32 bytes at `sip`. */
function sipStart(sip: usize, k0: u64, k1: u64): void {
  store<u64>(sip, SIP_0 ^ k0);
  store<u64>(sip, SIP_1 ^ k1, 8);
  store<u64>(sip, SIP_2 ^ k0, 16);
  store<u64>(sip, SIP_3 ^ k1, 24);
}

/** Absorbs a word with the given number of rounds. */
function sipWord(sip: usize, word: u64, rounds: u32): void {
  let v0 = load<u64>(sip);
  let v1 = load<u64>(sip, 8);
  let v2 = load<u64>(sip, 16);
  let v3 = load<u64>(sip, 24) ^ word;
  for (let i: u32 = 0; i < rounds; i++) {
    v0 += v1;
    v1 = rotl<u64>(v1, 13) ^ v0;
    v0 = rotl<u64>(v0, 32);
    v2 += v3;
    v3 = rotl<u64>(v3, 16) ^ v2;
    v0 += v3;
    v3 = rotl<u64>(v3, 21) ^ v0;
    v2 += v1;
    v1 = rotl<u64>(v1, 17) ^ v2;
    v2 = rotl<u64>(v2, 32);
  }
  store<u64>(sip, v0 ^ word);
  store<u64>(sip, v1, 8);
  store<u64>(sip, v2, 16);
  store<u64>(sip, v3, 24);
}

/**
 * Absorbs `count` words from `ptr` on with one round each. The round is that of sipWord, written again: a number of rounds, or the state in memory
 * between words, makes reading a prompt 3 to 6 % slower.
 */
function sipWords(sip: usize, ptr: usize, count: u32): void {
  let v0 = load<u64>(sip);
  let v1 = load<u64>(sip, 8);
  let v2 = load<u64>(sip, 16);
  let v3 = load<u64>(sip, 24);
  for (let i: u32 = 0; i < count; i++) {
    const word = load<u64>(ptr + (i << 3));
    v3 ^= word;
    v0 += v1;
    v1 = rotl<u64>(v1, 13) ^ v0;
    v0 = rotl<u64>(v0, 32);
    v2 += v3;
    v3 = rotl<u64>(v3, 16) ^ v2;
    v0 += v3;
    v3 = rotl<u64>(v3, 21) ^ v0;
    v2 += v1;
    v1 = rotl<u64>(v1, 17) ^ v2;
    v2 = rotl<u64>(v2, 32);
    v0 ^= word;
  }
  store<u64>(sip, v0);
  store<u64>(sip, v1, 8);
  store<u64>(sip, v2, 16);
  store<u64>(sip, v3, 24);
}

/** Absorbs the last word and ends a SipHash. */
function sipEnd(sip: usize, word: u64, c: u32, d: u32): u64 {
  sipWord(sip, word, c);
  store<u64>(sip, load<u64>(sip, 16) ^ 0xff, 16);
  sipWord(sip, 0, d);
  return load<u64>(sip) ^ load<u64>(sip, 8) ^ load<u64>(sip, 16) ^ load<u64>(sip, 24);
}

/** SipHash-c-d of `length` bytes, as published. */
export function sipHash(k0: u64, k1: u64, ptr: usize, length: u32, c: u32, d: u32): u64 {
  sipStart(scratch, k0, k1);
  const whole = length & ~7;
  for (let at: u32 = 0; at < whole; at += 8) sipWord(scratch, load<u64>(ptr + at), c);
  let last = (<u64>(length & 255)) << 56;
  for (let at = whole; at < length; at++) last |= (<u64>load<u8>(ptr + at)) << ((at & 7) << 3);
  return sipEnd(scratch, last, c, d);
}

/** A hash of bytes under the pool's secret that is no block's key; never 0. */
export function secretHash(pool: u32, ptr: usize, length: u32): u64 {
  const keys = poolKeys(pool);
  const k0 = load<u64>(keys, WORD_CHAIN) ^ POLICY_LABEL;
  return max(sipHash(k0, load<u64>(keys, WORD_CHAIN + 8), ptr, length, 1, 3), 1);
}

/** One step of a chain: SipHash-1-3 under the pool's chain key of three words (the published function of their 24 bytes). */
export function chainStep(keys: usize, state: u64, value: u64, tag: u64): u64 {
  sipStart(scratch, load<u64>(keys, WORD_CHAIN), load<u64>(keys, WORD_CHAIN + 8));
  store<u64>(absorbed, state);
  store<u64>(absorbed, value, 8);
  store<u64>(absorbed, tag, 16);
  sipWords(scratch, absorbed, 3);
  return sipEnd(scratch, (<u64>24) << 56, 1, 3);
}

/** Begins a text digest in the 32 bytes at `sip`. */
export function digestStart(sip: usize, keys: usize): void {
  sipStart(sip, load<u64>(keys, WORD_DIGEST), load<u64>(keys, WORD_DIGEST + 8));
}

/** Ends a text digest: the last word is the text's length in bytes. */
export function digestFinish(sip: usize, lengthBytes: u32): u64 {
  return sipEnd(sip, lengthBytes, 1, 3);
}

/**
 * Absorbs one stripe of `units` x 32 bytes (1 to 8; a shorter stripe ends the block and is filled up with zeros).
 * NH pairs the 32-bit words i and i+4 of each unit: sum of (m[i] + k[i]) * (m[i+4] + k[i+4]). The second pass uses the key four words on.
 */
export function digestStripe(sip: usize, keys: usize, ptr: usize, units: i32): void {
  let a0 = i64x2.splat(0);
  let a1 = a0;
  let b0 = a0;
  let b1 = a0;
  let key = keys;
  let p = ptr;
  let k0 = v128.load(key);
  for (let i = 0; i < units; i++) {
    const k1 = v128.load(key, 16);
    const k2 = v128.load(key, 32);
    const m0 = v128.load(p);
    const m1 = v128.load(p, 16);
    let x = i32x4.add(m0, k0);
    let y = i32x4.add(m1, k1);
    a0 = i64x2.add(a0, i64x2.extmul_low_i32x4_u(x, y));
    a1 = i64x2.add(a1, i64x2.extmul_high_i32x4_u(x, y));
    x = i32x4.add(m0, k1);
    y = i32x4.add(m1, k2);
    b0 = i64x2.add(b0, i64x2.extmul_low_i32x4_u(x, y));
    b1 = i64x2.add(b1, i64x2.extmul_high_i32x4_u(x, y));
    k0 = k2;
    key += 32;
    p += 32;
  }
  a0 = i64x2.add(a0, a1);
  b0 = i64x2.add(b0, b1);
  store<u64>(absorbed, i64x2.extract_lane(a0, 0) + i64x2.extract_lane(a0, 1));
  store<u64>(absorbed, i64x2.extract_lane(b0, 0) + i64x2.extract_lane(b0, 1), 8);
  sipWords(sip, absorbed, 2);
}
