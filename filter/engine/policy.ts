// Cost to pick: which pod a prompt goes to, and which two come next if that one cannot be reached.
//
// Policies are plain functions over the candidates: the pods of the pool that are ready, not draining and not cooling
// down after failures (cooling ones too when there are no others). Each gives every candidate a cost, and the lowest wins.
// All randomness comes from random.ts, so the same seed gives the same picks.
//
// residencyLookup() for the same pool must have run before: policies read matchBytes().
import { PICKS_MAX, PODS_MAX, POOLS_MAX } from './limits';
import {
  POD_DRAIN,
  POD_READY,
  podCapacityTokens,
  podCooling,
  podFlags,
  podIdOf,
  podInFlight,
  podKvUsage,
  podQueued,
  podSlowness,
  podTurn,
  podTurnSet,
  podUsed,
  podWeight,
} from './load';
import {
  POLICY_FIRST_BLOCK_HASH,
  POLICY_LEAST_REQUEST,
  POLICY_ROUND_ROBIN,
  poolBytesPerToken,
  poolOutputTokens,
} from './pool';
import { mix64, randomBelow } from './random';
import { matchBytes } from './residency';
import { poolWordAt, words } from './residency-store';

// POLICY, first form: what a token of this prompt costs beside a queued one, what a request in flight costs, and how
// close to the cheapest still counts as cheapest.
const K: f64 = 0.25;
const QUEUE_PER_REQUEST: f64 = 0.2;
const PROMPT_PER_REQUEST: f64 = 0.5;
const TOKENS_PER_REQUEST: f64 = 400;
const KV_SHARE: f64 = 0.95;
const SPREAD_TOKENS: f64 = 32;

const candidates = new StaticArray<u32>(PODS_MAX);
const costs = new StaticArray<f64>(PODS_MAX);
let count: u32 = 0;

const picked = new StaticArray<u32>(PICKS_MAX);
let pickedCount: u32 = 0;
let pickedPool: u32 = 0;
let pickedBytes: u32 = 0;

function collect(pool: u32, nowMs: f64, cooling: bool): void {
  count = 0;
  for (let word: u32 = 0; word < words; word++) {
    let rest = load<u64>(poolWordAt(pool, word));
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

/** Uncached tokens of a prompt on a pod: at least one. */
function uncachedOf(pod: u32, promptBytes: u32, bytesPerToken: f64): f64 {
  const held = min(matchBytes(pod), promptBytes);
  return max(Math.ceil(<f64>(promptBytes - held) / bytesPerToken), 1);
}

function prefillCost(pool: u32, promptBytes: u32, nowMs: f64): void {
  const bytesPerToken = poolBytesPerToken(pool);
  const output = poolOutputTokens(pool);
  let slownessSum: f64 = 0;
  let slownessCount: f64 = 0;
  for (let i: u32 = 0; i < count; i++) {
    const slowness = podSlowness(candidates[i]);
    if (slowness == 0) continue;
    slownessSum += slowness;
    slownessCount++;
  }
  const slownessMean = slownessCount == 0 ? 0 : slownessSum / slownessCount;
  for (let i: u32 = 0; i < count; i++) {
    const pod = candidates[i];
    const n = podInFlight(pod, nowMs);
    const u = uncachedOf(pod, promptBytes, bytesPerToken);
    let cost =
      (1 + QUEUE_PER_REQUEST * n) * podQueued(pod, nowMs) +
      (1 + K + PROMPT_PER_REQUEST * n) * u +
      TOKENS_PER_REQUEST * n;
    const capacity = podCapacityTokens(pod);
    if (capacity > 0) {
      const used = max(podUsed(pod) + (n * output) / 2, podKvUsage(pod, nowMs) * capacity);
      cost += max(used + u + output - KV_SHARE * capacity, 0);
    }
    const slowness = podSlowness(pod);
    if (slowness > 0) cost *= slowness / slownessMean;
    costs[i] = cost / podWeight(pod);
  }
}

function leastRequest(nowMs: f64): void {
  for (let i: u32 = 0; i < count; i++) {
    costs[i] = (podInFlight(candidates[i], nowMs) + 1) / podWeight(candidates[i]);
  }
}

/** Smooth weighted round robin: every turn adds a pod's weight, and a pick takes the sum of all weights off the picked. */
function roundRobin(): void {
  for (let i: u32 = 0; i < count; i++) {
    const turn = podTurn(candidates[i]) + podWeight(candidates[i]);
    podTurnSet(candidates[i], turn);
    costs[i] = -turn;
  }
}
function roundRobinTake(): void {
  let sum: f64 = 0;
  for (let i: u32 = 0; i < count; i++) sum += podWeight(candidates[i]);
  podTurnSet(picked[0], podTurn(picked[0]) - sum);
}

/** Weighted rendezvous hashing: a key's pods stand in the same order everywhere, and only a lost pod's keys move. */
function firstBlockHash(firstKey: u64): void {
  for (let i: u32 = 0; i < count; i++) {
    const hash = mix64(firstKey ^ mix64(podIdOf(candidates[i])));
    const unit = (<f64>(hash >> 11) + 0.5) * (1.0 / 9007199254740992.0);
    costs[i] = -Math.log(unit) / podWeight(candidates[i]);
  }
}

/** Takes candidate i into the list, and out of the running. */
function take(i: u32): void {
  picked[pickedCount] = candidates[i];
  pickedCount++;
  costs[i] = Infinity;
}

/** Takes one of the candidates within `spread` of the cheapest, each as likely as the other. False when none is left. */
function takeCheapest(spread: f64): bool {
  let cheapest: f64 = Infinity;
  for (let i: u32 = 0; i < count; i++) {
    if (costs[i] < cheapest) cheapest = costs[i];
  }
  if (cheapest == Infinity) return false;
  const limit = cheapest + spread;
  let near: u32 = 0;
  for (let i: u32 = 0; i < count; i++) {
    if (costs[i] <= limit) near++;
  }
  let skip = near > 1 ? randomBelow(near) : 0;
  for (let i: u32 = 0; i < count; i++) {
    if (!(costs[i] <= limit)) continue;
    if (skip == 0) {
      take(i);
      return true;
    }
    skip--;
  }
  return false;
}

/**
 * Picks for a prompt of so many bytes, by a policy: up to three pods, best first, then the next best by cost. Returns how
 * many, 0 when no pod is ready. `firstKey` is the first block's key, 0 when there are no keys.
 */
export function policyPick(pool: u32, policy: u32, promptBytes: u32, firstKey: u64, nowMs: f64): u32 {
  pickedCount = 0;
  if (pool >= POOLS_MAX) return 0;
  pickedPool = pool;
  pickedBytes = promptBytes;
  collect(pool, nowMs, false);
  if (count == 0) collect(pool, nowMs, true);
  if (count == 0) return 0;
  let spread: f64 = 0;
  if (policy == POLICY_ROUND_ROBIN) {
    roundRobin();
  } else if (policy == POLICY_LEAST_REQUEST || (policy == POLICY_FIRST_BLOCK_HASH && firstKey == 0)) {
    leastRequest(nowMs);
  } else if (policy == POLICY_FIRST_BLOCK_HASH) {
    firstBlockHash(firstKey);
  } else {
    prefillCost(pool, promptBytes, nowMs);
    spread = SPREAD_TOKENS;
  }
  takeCheapest(spread);
  if (policy == POLICY_ROUND_ROBIN) roundRobinTake();
  while (pickedCount < PICKS_MAX && takeCheapest(0)) continue;
  return pickedCount;
}

/** Slot of the i-th best pod of the last pick. */
export function pickedPod(i: u32): u32 {
  return i < pickedCount ? picked[i] : 0;
}
/** How many tokens of the prompt it must compute: what loadDispatch() is to be given. */
export function pickedUncached(i: u32): u32 {
  return i < pickedCount ? <u32>uncachedOf(picked[i], pickedBytes, poolBytesPerToken(pickedPool)) : 0;
}
