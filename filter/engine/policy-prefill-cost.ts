// prefill-cost: the pod whose first token comes soonest, with affinity that pays.
//
// Everything is counted in prefill tokens. A pod's own price b is the work before this prompt's first token and what the
// prompt adds to it; c adds what is lost when blocks that another pod holds are computed again. Staying with the lowest c
// may keep a hot prefix on too few pods, so what staying costs beside the lowest b is added up by prefix (regret.ts), and
// when it reaches the price of a copy the request goes where b is lowest. Prompts that nobody holds go to pods that were
// given little cold work lately, so that prefixes spread before they are hot; prompts of which a part is held care the less for that.
//
//   base = (Q + u + B (M - m) Q / ubar)(1 + Y n) + G n + H ubar s (h - hbar) / (hbar + N0 ubar), what would not fit
//          the KV cache, and the loading of the adapter where it is in use elsewhere and not here
//   b    = base r / mean r          c = (base + K nbar (M - m)) r / mean r
//
// Q / ubar is about how many requests wait: while they do, as many come that what is computed again here delays. So where all pods are
// busy no prefix is copied for a queue that is a little shorter, which would only make all of them longer.
//
// n, Q, u, m and h of a pod: requests in flight, tokens that wait for a first token, tokens of this prompt to be computed and
// tokens of it held, recent cold work (load-cold.ts). M is the greatest m, s the share of the prompt beyond it, ubar the mean u of late, r the slowness.
import { adaptersHas } from './adapters';
import { PODS_MAX } from './limits';
import { coldShare, podCold, podInFlight, podQueued, podWeight } from './load';
import { candidates, cheapest, costs, count, take } from './policy-candidates';
import { meanSlowness, overfull, slownessOf, uncachedOf } from './policy-tokens';
import { poolBytesPerToken, poolOutputTokens, poolUncachedTokens } from './pool';
import { regretOf, regretSet } from './regret';
import { matchBytes, matchLastKey } from './residency';

const K: f64 = 0.6;
const Y: f64 = 0.15;
const G: f64 = 100;
const H: f64 = 15;
const N0: f64 = 10;
const B: f64 = 0.3;
/** What loading an adapter takes, and tokens of prefill a second where that is not known. */
const ADAPTER_SECONDS: f64 = 0.2;
const SLOWNESS_DEFAULT: f64 = 1e-4;
/** So close to the cheapest, in tokens, still counts as cheapest. */
export const SPREAD_TOKENS: f64 = 32;

const inFlight = new StaticArray<f64>(PODS_MAX);
const cold = new StaticArray<f64>(PODS_MAX);
const bare = new StaticArray<f64>(PODS_MAX);

/** Gives every candidate its cost c and takes the pick. `adapter` is the hash of the asked model's name, 0 = not known. */
export function prefillCost(pool: u32, promptBytes: u32, adapter: u32, nowMs: f64): void {
  let inFlightSum: f64 = 0;
  let coldSum: f64 = 0;
  let longest: u32 = 0;
  let hasAdapter = false;
  const share = coldShare(nowMs);
  for (let i: u32 = 0; i < count; i++) {
    const pod = candidates[i];
    inFlight[i] = podInFlight(pod, nowMs);
    inFlightSum += inFlight[i];
    cold[i] = (podCold(pod) * share) / podWeight(pod);
    coldSum += cold[i];
    if (matchBytes(pod) > matchBytes(candidates[longest])) longest = i;
    if (adapter != 0 && adaptersHas(pod, adapter)) hasAdapter = true;
  }
  const held = min(matchBytes(candidates[longest]), promptBytes);
  const bytesPerToken = poolBytesPerToken(pool);
  const output = poolOutputTokens(pool);
  const slownessMean = meanSlowness();
  const uncachedMean = poolUncachedTokens(pool);
  const coldMean = coldSum / count;
  const newShare = promptBytes == 0 ? 1 : 1 - <f64>held / <f64>promptBytes;
  const coldPrice = uncachedMean == 0 ? 0 : (H * uncachedMean * newShare) / (coldMean + N0 * uncachedMean);
  const againPrice = (K * inFlightSum) / count;
  const delayPrice = uncachedMean == 0 ? 0 : B / uncachedMean;
  // A model that no pod tells as an adapter is the base model, or one that has to be loaded wherever it goes.
  const loading = hasAdapter ? ADAPTER_SECONDS / (slownessMean > 0 ? slownessMean : SLOWNESS_DEFAULT) : 0;
  for (let i: u32 = 0; i < count; i++) {
    const pod = candidates[i];
    const n = inFlight[i];
    const u = uncachedOf(pod, promptBytes, bytesPerToken);
    const queued = podQueued(pod, nowMs);
    const again = <f64>(held - min(matchBytes(pod), held)) / bytesPerToken;
    const base =
      (queued + u + delayPrice * again * queued) * (1 + Y * n) +
      G * n +
      coldPrice * (cold[i] - coldMean) +
      (hasAdapter && !adaptersHas(pod, adapter) ? loading : 0) +
      overfull(pod, n, u, output, nowMs);
    const slowness = slownessOf(pod);
    const scale = (slowness > 0 ? slowness / slownessMean : 1) / podWeight(pod);
    bare[i] = base * scale;
    costs[i] = (base + againPrice * again) * scale;
  }
  const stay = <u32>cheapest(SPREAD_TOKENS);
  take(held > 0 ? stayOrMove(stay, matchLastKey(candidates[longest]), nowMs) : stay);
}

/** Whether a prefix has regretted enough to be copied to the pod with the lowest own price: the candidate to be taken. */
function stayOrMove(stay: u32, key: u64, nowMs: f64): u32 {
  let move = stay;
  for (let i: u32 = 0; i < count; i++) {
    if (bare[i] < bare[move]) move = i;
  }
  const gain = bare[stay] - bare[move];
  const price = costs[move] - bare[move] - (costs[stay] - bare[stay]);
  if (gain <= SPREAD_TOKENS || price <= 0) return stay;
  const regret = regretOf(key, nowMs) + gain;
  const goes = regret >= price;
  regretSet(key, goes ? 0 : regret, nowMs);
  return goes ? move : stay;
}
