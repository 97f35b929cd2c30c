// least-request and round-robin: policies that look at no prompt.
import { candidates, costs, count, picked } from './policy-candidates';
import { podInFlight, podTurn, podTurnSet, podWeight } from './load';

export function leastRequest(nowMs: f64): void {
  for (let i: u32 = 0; i < count; i++) {
    costs[i] = (podInFlight(candidates[i], nowMs) + 1) / podWeight(candidates[i]);
  }
}

/** Smooth weighted round robin: every turn adds a pod's weight, and a pick takes the sum of all weights off the picked. */
export function roundRobin(): void {
  for (let i: u32 = 0; i < count; i++) {
    const turn = podTurn(candidates[i]) + podWeight(candidates[i]);
    podTurnSet(candidates[i], turn);
    costs[i] = -turn;
  }
}
export function roundRobinTake(): void {
  let sum: f64 = 0;
  for (let i: u32 = 0; i < count; i++) sum += podWeight(candidates[i]);
  podTurnSet(picked[0], podTurn(picked[0]) - sum);
}
