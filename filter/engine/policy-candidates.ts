// The pods that a pick chooses from, with a cost for each, and the choice of the cheapest.
//
// Candidates are the pods of the pool that are ready, not draining and not cooling down after failures; cooling ones too
// when there are no others; of a request that is bound to some of the pods, those of them. A policy gives each of them a cost, and the list of picks takes them from the cheapest on.
import { PICKS_MAX, PODS_MAX } from './limits';
import { POD_DRAIN, POD_READY, podCooling, podFlags } from './load';
import { randomBelow } from './random';
import { poolWordAt, words } from './residency-store';
import { subsetWord } from './subset';

export const candidates = new StaticArray<u32>(PODS_MAX);
export const costs = new StaticArray<f64>(PODS_MAX);
export let count: u32 = 0;

export const picked = new StaticArray<u32>(PICKS_MAX);
export let pickedCount: u32 = 0;

function collectOf(pool: u32, nowMs: f64, cooling: bool): void {
  count = 0;
  for (let word: u32 = 0; word < words; word++) {
    let rest = load<u64>(poolWordAt(pool, word)) & subsetWord(word);
    while (rest != 0) {
      const pod = word * 64 + <u32>ctz(rest);
      rest &= rest - 1;
      if ((podFlags(pod) & (POD_READY | POD_DRAIN)) != POD_READY) continue;
      if (!cooling && podCooling(pod, nowMs)) continue;
      candidates[count] = pod;
      count++;
    }
  }
}

/** Begins a pick: finds the candidates of a pool and returns how many there are. */
export function collect(pool: u32, nowMs: f64): u32 {
  pickedCount = 0;
  collectOf(pool, nowMs, false);
  if (count == 0) collectOf(pool, nowMs, true);
  return count;
}

/** Nothing is picked. */
export function pickNone(): void {
  pickedCount = 0;
}

/** Takes candidate i into the list, and out of the running. */
export function take(i: u32): void {
  picked[pickedCount] = candidates[i];
  pickedCount++;
  costs[i] = Infinity;
}

/** One of the candidates within `spread` of the cheapest, each as likely as the other; -1 when none is left. */
export function cheapest(spread: f64): i32 {
  let least: f64 = Infinity;
  for (let i: u32 = 0; i < count; i++) {
    if (costs[i] < least) least = costs[i];
  }
  if (least == Infinity) return -1;
  const limit = least + spread;
  let near: u32 = 0;
  for (let i: u32 = 0; i < count; i++) {
    if (costs[i] <= limit) near++;
  }
  let skip = near > 1 ? randomBelow(near) : 0;
  for (let i: u32 = 0; i < count; i++) {
    if (!(costs[i] <= limit)) continue;
    if (skip == 0) return <i32>i;
    skip--;
  }
  return -1;
}

/** Fills the list from the cheapest on; the first may be any within `spread` of it. */
export function takeCheapest(spread: f64): void {
  let near = pickedCount == 0 ? spread : 0;
  while (pickedCount < PICKS_MAX) {
    const next = cheapest(near);
    if (next < 0) return;
    take(next);
    near = 0;
  }
}
