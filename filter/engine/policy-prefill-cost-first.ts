// prefill-cost, first form: kept for replays and tests, to be compared with the form that followed it.
//
//   cost = (1 + 0.2 n) Q + (1 + K + 0.5 n) u + G n, and what would not fit the KV cache
//
// n, Q and u are requests in flight, tokens that wait for a first token, and tokens of this prompt that the pod must compute.
import { candidates, costs, count } from './policy-candidates';
import { meanSlowness, overfull, slownessOf, uncachedOf } from './policy-tokens';
import { podInFlight, podQueued, podWeight } from './load';
import { poolBytesPerToken, poolOutputTokens } from './pool';

const K: f64 = 0.25;
const QUEUE_PER_REQUEST: f64 = 0.2;
const PROMPT_PER_REQUEST: f64 = 0.5;
const TOKENS_PER_REQUEST: f64 = 400;

/** Gives every candidate its cost. */
export function prefillCostFirst(pool: u32, promptBytes: u32, nowMs: f64): void {
  const bytesPerToken = poolBytesPerToken(pool);
  const output = poolOutputTokens(pool);
  const slownessMean = meanSlowness();
  for (let i: u32 = 0; i < count; i++) {
    const pod = candidates[i];
    const n = podInFlight(pod, nowMs);
    const u = uncachedOf(pod, promptBytes, bytesPerToken);
    let cost =
      (1 + QUEUE_PER_REQUEST * n) * podQueued(pod, nowMs) +
      (1 + K + PROMPT_PER_REQUEST * n) * u +
      TOKENS_PER_REQUEST * n +
      overfull(pod, n, u, output, nowMs);
    const slowness = slownessOf(pod);
    if (slowness > 0) cost *= slowness / slownessMean;
    costs[i] = cost / podWeight(pod);
  }
}
