// Policies that send a key to the same pod everywhere, whoever picks.
import { candidates, costs, count } from './policy-candidates';
import { podIdOf, podInFlight, podWeight } from './load';
import { mix64 } from './random';

/** Weighted rendezvous hashing: a key's pods stand in the same order everywhere, and only a lost pod's keys move. */
export function rendezvous(key: u64): void {
  for (let i: u32 = 0; i < count; i++) {
    const hash = mix64(key ^ mix64(podIdOf(candidates[i])));
    const unit = (<f64>(hash >> 11) + 0.5) * (1.0 / 9007199254740992.0);
    costs[i] = -Math.log(unit) / podWeight(candidates[i]);
  }
}

/** How much more than its share of what is in flight a pod may have before a key goes to the next in its order. */
const BOUND: f64 = 1.25;
/** More than any place in an order costs. */
const BEYOND: f64 = 1e9;

/** The same with bounded loads: pods that have their share and a quarter of all requests, this one included, come last. */
export function rendezvousBounded(key: u64, nowMs: f64): void {
  rendezvous(key);
  let requests: f64 = 1;
  let weights: f64 = 0;
  for (let i: u32 = 0; i < count; i++) {
    requests += podInFlight(candidates[i], nowMs);
    weights += podWeight(candidates[i]);
  }
  for (let i: u32 = 0; i < count; i++) {
    const most = Math.ceil((BOUND * requests * podWeight(candidates[i])) / weights);
    if (podInFlight(candidates[i], nowMs) >= most) costs[i] += BEYOND;
  }
}
