// Randomness for the policies: a small seeded generator, so that a run can be repeated from its seed.
//
// SplitMix64: a counter that steps by an odd constant, and a finaliser that spreads it over 64 bits. It is not for
// secrets.
const STEP: u64 = 0x9e3779b97f4a7c15;

let state: u64 = STEP;

/** Starts the sequence of `seed`. */
export function randomSeed(seed: u64): void {
  state = seed;
}

/** Spreads a number over 64 bits; the finaliser of SplitMix64. */
export function mix64(value: u64): u64 {
  let x = value;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/** The next 64 random bits. */
export function randomNext(): u64 {
  state += STEP;
  return mix64(state);
}

/** A whole number from 0 to bound - 1; 0 when bound is 0. */
export function randomBelow(bound: u32): u32 {
  return <u32>(((randomNext() >> 32) * <u64>bound) >> 32);
}

/** A number from 0 up to but not including 1. */
export function randomUnit(): f64 {
  return <f64>(randomNext() >> 11) * (1.0 / 9007199254740992.0);
}
