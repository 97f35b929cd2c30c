// The pods of all pools: which slot stands for which pod, set up in the table and in the load counters together.
//
// The control plane names a pod by a number that is the same everywhere (podId); inside one VM a pod is a slot, because tables are
// indexed by it. A slot is not given to another pod while requests of its last one are still counted in it, as long as
// any other is free.
import { aliasesClear } from './aliases';
import { CAPACITY_TOKENS_DEFAULT, PODS_MAX, POOLS_MAX } from './limits';
import {
  loadCapacitySet,
  loadInit,
  loadPodIdle,
  loadPodOpen,
  podCapacityTokens,
  podFlagsSet,
  podIdOf,
  podWeightSet,
} from './load';
import { poolBytesPerToken, poolsInit } from './pool';
import { mix64, randomSeed, randomUnit } from './random';
import { regretInit } from './regret';
import {
  residencyInit,
  residencyPodAdd,
  residencyPodCapacity,
  residencyPodPool,
  residencyPodRemove,
  residencyPods,
  residencyPodWords,
  residencyPoolWord,
} from './residency';
import { POOL_NONE } from './residency-store';

const INDEX_SLOTS: u32 = PODS_MAX * 4;
const CAPACITY_DRIFT: f64 = 0.02;

// Open addressing by pool and podId; a value is slot + 1.
const index = new StaticArray<u32>(INDEX_SLOTS);
// The ratio that a pool's capacities in bytes were made with.
const appliedRatio = new StaticArray<f64>(POOLS_MAX);

/** Reserves everything for so many pods and blocks, and empties it. Called while a program starts. */
export function tableInit(pods: u32, nodes: u32, seed: u64): void {
  randomSeed(seed);
  poolsInit();
  for (let pool: u32 = 0; pool < POOLS_MAX; pool++) aliasesClear(pool);
  residencyInit(pods, nodes);
  loadInit();
  regretInit();
  for (let i: u32 = 0; i < INDEX_SLOTS; i++) index[i] = 0;
  for (let pool: u32 = 0; pool < POOLS_MAX; pool++) appliedRatio[pool] = poolBytesPerToken(pool);
}

function indexOf(pool: u32, podId: u32): u32 {
  return (<u32>mix64(((<u64>pool) << 32) | (<u64>podId))) & (INDEX_SLOTS - 1);
}
function indexAdd(slot: u32, pool: u32, podId: u32): void {
  let i = indexOf(pool, podId);
  while (index[i] != 0) i = (i + 1) & (INDEX_SLOTS - 1);
  index[i] = slot + 1;
}
function indexRebuild(): void {
  for (let i: u32 = 0; i < INDEX_SLOTS; i++) index[i] = 0;
  const slots = residencyPods();
  for (let slot: u32 = 0; slot < slots; slot++) {
    const pool = residencyPodPool(slot);
    if (pool != POOL_NONE) indexAdd(slot, pool, podIdOf(slot));
  }
}

/** The slot of a pod, or -1. */
export function podFind(pool: u32, podId: u32): i32 {
  let i = indexOf(pool, podId);
  while (index[i] != 0) {
    const slot = index[i] - 1;
    if (podIdOf(slot) == podId && residencyPodPool(slot) == pool) return <i32>slot;
    i = (i + 1) & (INDEX_SLOTS - 1);
  }
  return -1;
}

function freeSlot(): i32 {
  const slots = residencyPods();
  let busy: i32 = -1;
  for (let slot: u32 = 0; slot < slots; slot++) {
    if (residencyPodPool(slot) != POOL_NONE) continue;
    if (loadPodIdle(slot)) return <i32>slot;
    if (busy < 0) busy = <i32>slot;
  }
  return busy;
}

/**
 * Adds a pod or changes a known one, and returns its slot; -1 when all are in use or `podId` is 0. capacityTokens 0 =
 * unknown. Flags are POD_READY and POD_DRAIN.
 */
export function podSet(pool: u32, podId: u32, capacityTokens: f64, weight: f64, flags: u32): i32 {
  if (pool >= POOLS_MAX || podId == 0) return -1;
  let slot = podFind(pool, podId);
  if (slot < 0) {
    slot = freeSlot();
    if (slot < 0) return -1;
    loadPodOpen(slot, podId, randomUnit());
    residencyPodAdd(slot, pool, bytesOf(pool, capacityTokens));
    indexAdd(slot, pool, podId);
  } else if (podCapacityTokens(slot) != capacityTokens) {
    residencyPodCapacity(slot, bytesOf(pool, capacityTokens));
  }
  loadCapacitySet(slot, capacityTokens);
  podWeightSet(slot, weight);
  podFlagsSet(slot, flags);
  return slot;
}

/** Forgets a pod. Requests still in flight there are counted on in the slot until they end. */
export function podRemove(slot: u32): void {
  if (residencyPodPool(slot) == POOL_NONE) return;
  residencyPodRemove(slot);
  podFlagsSet(slot, 0);
  indexRebuild();
}

function bytesOf(pool: u32, capacityTokens: f64): u64 {
  const tokens = capacityTokens > 0 && capacityTokens < 1e12 ? capacityTokens : CAPACITY_TOKENS_DEFAULT;
  return <u64>(tokens * poolBytesPerToken(pool));
}

/** Sizes the pods of a pool anew once the learned bytes per token have moved by more than 2 %. Called at each tick. */
export function poolCapacityRefresh(pool: u32): void {
  if (pool >= POOLS_MAX) return;
  const ratio = poolBytesPerToken(pool);
  if (Math.abs(ratio / appliedRatio[pool] - 1) <= CAPACITY_DRIFT) return;
  appliedRatio[pool] = ratio;
  const slotWords = residencyPodWords();
  for (let word: u32 = 0; word < slotWords; word++) {
    let rest = residencyPoolWord(pool, word);
    while (rest != 0) {
      const slot = word * 64 + <u32>ctz(rest);
      rest &= rest - 1;
      residencyPodCapacity(slot, bytesOf(pool, podCapacityTokens(slot)));
    }
  }
}
