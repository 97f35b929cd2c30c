// What staying has cost a prefix so far: a bounded memory of regret, by the key of the last block that matched.
//
// A ski-rental rule: each request that would have been served sooner by a pod without the prefix adds the difference, and
// when the sum reaches the price of computing the prefix there, the request goes. Old regret fades. Of a full set the entry
// that was written longest ago goes.
import { REGRETS, REGRET_WAYS } from './limits';
import { mix64 } from './random';

const FADE_MS: f64 = 60000;

const keys = new StaticArray<u64>(REGRETS);
const sums = new StaticArray<f64>(REGRETS);
const times = new StaticArray<f64>(REGRETS);

/** Forgets all. */
export function regretInit(): void {
  for (let i: u32 = 0; i < REGRETS; i++) {
    keys[i] = 0;
    sums[i] = 0;
    times[i] = -Infinity;
  }
}

/** Where a key's regret is, or the place of its set that it may take. */
function placeOf(key: u64): u32 {
  const first = <u32>(mix64(key) & (REGRETS / REGRET_WAYS - 1)) * REGRET_WAYS;
  let oldest = first;
  for (let i = first; i < first + REGRET_WAYS; i++) {
    if (keys[i] == key) return i;
    if (times[i] < times[oldest]) oldest = i;
  }
  return oldest;
}

/** What has come together for a key by now, 0 when nothing is known. */
export function regretOf(key: u64, nowMs: f64): f64 {
  const place = placeOf(key);
  if (keys[place] != key) return 0;
  return sums[place] * Math.exp(min((times[place] - nowMs) / FADE_MS, <f64>0));
}

/** Sets a key's regret. */
export function regretSet(key: u64, sum: f64, nowMs: f64): void {
  const place = placeOf(key);
  keys[place] = key;
  sums[place] = sum;
  times[place] = nowMs;
}
