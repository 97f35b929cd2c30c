// How slow each pod is, in seconds for a token of prefill, as first tokens show, and when a first token is to be expected.
import { POOLS_MAX, SLOWNESS_MAX } from './limits';
import { podQueued } from './load';
import { at, FOREIGN_Q, get, podsKept, SLOWNESS, TOLD_OF_POOL } from './load-record';
import { STEP_TOKENS } from './load-told';
import { podPool, poolWordAt, words } from './residency-store';

const SLOWNESS_DEFAULT: f64 = 1e-4;
const SLOWNESS_MIN: f64 = 1e-9;
const SLOWNESS_POWER: f64 = 0.05;
const OBSERVE_TOKENS_MIN: f64 = 500;

/** A streamed answer's first token came after `ttftMs`; `w` is what loadDispatch() gave for it. */
export function loadObserveTtft(pod: u32, ttftMs: f64, w: f64): void {
  if (pod >= podsKept || !(w > OBSERVE_TOKENS_MIN) || !(ttftMs > 0)) return;
  const seen = min(max(ttftMs / 1000 / w, SLOWNESS_MIN), SLOWNESS_MAX);
  let slowness = load<f64>(at(pod) + SLOWNESS);
  if (slowness == 0) slowness = meanOf(podPool(pod), SLOWNESS, seen);
  const clamped = min(max(seen, slowness / 5), slowness * 5);
  slownessSet(pod, slowness * Math.pow(clamped / slowness, SLOWNESS_POWER));
}
/** Takes a pod's slowness from elsewhere, in seconds per token, if none is known here. */
export function loadSlownessLearn(pod: u32, secondsPerToken: f64): void {
  if (pod >= podsKept || !(secondsPerToken > 0) || load<f64>(at(pod) + SLOWNESS) != 0) return;
  slownessSet(pod, secondsPerToken);
}
function slownessSet(pod: u32, secondsPerToken: f64): void {
  store<f64>(at(pod) + SLOWNESS, min(max(secondsPerToken, SLOWNESS_MIN), SLOWNESS_MAX));
}
/** Seconds per token, 0 = nothing seen yet. */
export function podSlowness(pod: u32): f64 {
  return get(pod, SLOWNESS);
}
/** Mean of one of the two kinds of slowness over the pods of a pool that have it, or `otherwise`. */
function meanOf(pool: u32, field: usize, otherwise: f64): f64 {
  if (pool >= POOLS_MAX) return otherwise;
  let sum: f64 = 0;
  let count: f64 = 0;
  for (let word: u32 = 0; word < words; word++) {
    let rest = load<u64>(poolWordAt(pool, word));
    while (rest != 0) {
      const slowness = get(word * 64 + <u32>ctz(rest), field);
      rest &= rest - 1;
      if (slowness == 0) continue;
      sum += slowness;
      count++;
    }
  }
  return count == 0 ? otherwise : sum / count;
}
/** How long a pod takes for what others sent there and has had no first token. */
export function loadForeignMs(pod: u32): f64 {
  return loadPrefillMs(pod, get(pod, FOREIGN_Q));
}
/** Milliseconds in which a pod comes to a first token that so many tokens stand before: by first tokens that were seen, or by what its engine tells. */
export function loadPrefillMs(pod: u32, tokens: f64): f64 {
  if (pod >= podsKept) return 0;
  const pool = podPool(pod);
  let slowness = get(pod, SLOWNESS);
  if (slowness == 0) slowness = meanOf(pool, SLOWNESS, 0);
  if (slowness > 0) return slowness * tokens * 1000;
  slowness = get(pod, TOLD_OF_POOL);
  if (slowness == 0) slowness = meanOf(pool, TOLD_OF_POOL, 0);
  return slowness > 0 ? slowness * (tokens + STEP_TOKENS) * 1000 : SLOWNESS_DEFAULT * tokens * 1000;
}
/** When the first token of a request with `u` uncached tokens is to be expected if it is sent now, or was just sent with u = 0. */
export function loadPredictedTtftMs(pod: u32, u: u32, nowMs: f64): f64 {
  return loadPrefillMs(pod, podQueued(pod, nowMs) + <f64>u);
}
