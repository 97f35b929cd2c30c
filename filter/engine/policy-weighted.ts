// weighted: what is missing of the prompt, how long the queue is and how full the memory, each from 0 to 1, added by weight.
//
// A queue is what waits for a first token, in tokens: the longest of the candidates' queues counts 1, the shortest 0. Memory is
// the share of the KV cache in use, as metrics tell it or else as it follows from what was sent there.
import { podCapacityTokens, podInFlight, podKvUsage, podQueued, podUsed, podWeight } from './load';
import { candidates, costs, count } from './policy-candidates';
import { poolOutputTokens, poolWeightKv, poolWeightPrefix, poolWeightQueue } from './pool';
import { matchBytes } from './residency';

/** Gives every candidate its cost. */
export function weighted(pool: u32, promptBytes: u32, nowMs: f64): void {
  const output = poolOutputTokens(pool);
  const prefix = poolWeightPrefix(pool);
  const queue = poolWeightQueue(pool);
  const kv = poolWeightKv(pool);
  let longest: f64 = 0;
  let shortest: f64 = Infinity;
  for (let i: u32 = 0; i < count; i++) {
    costs[i] = podQueued(candidates[i], nowMs) / podWeight(candidates[i]);
    longest = max(longest, costs[i]);
    shortest = min(shortest, costs[i]);
  }
  const range = longest - shortest;
  for (let i: u32 = 0; i < count; i++) {
    const pod = candidates[i];
    const missing = promptBytes == 0 ? 1 : 1 - <f64>min(matchBytes(pod), promptBytes) / <f64>promptBytes;
    const waiting = range > 0 ? (costs[i] - shortest) / range : 0;
    costs[i] = (prefix * missing + queue * waiting + kv * usedShare(pod, output, nowMs)) / podWeight(pod);
  }
}

function usedShare(pod: u32, output: f64, nowMs: f64): f64 {
  const told = podKvUsage(pod, nowMs);
  if (told >= 0) return told;
  const capacity = podCapacityTokens(pod);
  if (capacity <= 0) return 0;
  return min((podUsed(pod) + (podInFlight(pod, nowMs) * output) / 2) / capacity, <f64>1);
}
