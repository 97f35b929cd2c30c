// What both forms of prefill-cost price: tokens that a pod must compute, and room in its KV cache.
import { candidates, count } from './policy-candidates';
import { podCapacityTokens, podKvUsage, podSlowness, podToldSlowness, podUsed } from './load';
import { matchBytes } from './residency';

const KV_SHARE: f64 = 0.95;

/** Uncached tokens of a prompt on a pod: at least one. */
export function uncachedOf(pod: u32, promptBytes: u32, bytesPerToken: f64): f64 {
  const held = min(matchBytes(pod), promptBytes);
  return max(Math.ceil(<f64>(promptBytes - held) / bytesPerToken), 1);
}

/** By how many tokens a pod with `n` requests in flight would be filled beyond what its KV cache takes well. */
export function overfull(pod: u32, n: f64, u: f64, output: f64, nowMs: f64): f64 {
  const capacity = podCapacityTokens(pod);
  if (capacity <= 0) return 0;
  const used = max(podUsed(pod) + (n * output) / 2, podKvUsage(pod, nowMs) * capacity);
  return max(used + u + output - KV_SHARE * capacity, 0);
}

/** Whether slowness is what engines tell, because no candidate has shown any. */
let isTold = false;

/** Mean slowness of the candidates that have shown any, or else of those whose engines tell it; 0 = none. */
export function meanSlowness(): f64 {
  isTold = false;
  const shown = meanOfCandidates();
  if (shown > 0) return shown;
  isTold = true;
  return meanOfCandidates();
}
/** A candidate's slowness of the kind that meanSlowness() took last; 0 = not known. */
export function slownessOf(pod: u32): f64 {
  return isTold ? podToldSlowness(pod) : podSlowness(pod);
}
function meanOfCandidates(): f64 {
  let sum: f64 = 0;
  let seen: f64 = 0;
  for (let i: u32 = 0; i < count; i++) {
    const slowness = slownessOf(candidates[i]);
    if (slowness == 0) continue;
    sum += slowness;
    seen++;
  }
  return seen == 0 ? 0 : sum / seen;
}
