// Policies that send a key to the same pod everywhere, whoever picks.
import { candidates, costs, count } from './policy-candidates';
import { podIdOf, podWeight } from './load';
import { mix64 } from './random';

/** Weighted rendezvous hashing: a key's pods stand in the same order everywhere, and only a lost pod's keys move. */
export function rendezvous(key: u64): void {
  for (let i: u32 = 0; i < count; i++) {
    const hash = mix64(key ^ mix64(podIdOf(candidates[i])));
    const unit = (<f64>(hash >> 11) + 0.5) * (1.0 / 9007199254740992.0);
    costs[i] = -Math.log(unit) / podWeight(candidates[i]);
  }
}
