// Which pod holds which block: one least-recently-used list per pod over block keys, weighed in bytes of prompt text.
//
// Everyone applies the same events to the same engine: a touch (a pod was given a prompt), a clear, a capacity, a
// removal. A list is ordered by time of the last touch, then depth from deep to shallow, then key, and a node's time
// never goes back. So what a pod holds after some touches does not depend on the order in which they arrived: it is
// the newest nodes that fit its capacity. (Where the table itself is full, or where a touch finds its place only after
// TOUCH_STEPS_MAX steps, that can differ; both are counted.)
//
// Any pod number, key, length and time is accepted; what makes no sense changes nothing.
import { CHAIN_BLOCKS_MAX, POOLS_MAX } from './limits';
import { mix64 } from './random';
import {
  POOL_NONE,
  alive,
  entriesUsed,
  entryAt,
  entryDepth,
  entryFind,
  entryFrom,
  entryHead,
  entryHolds,
  entryParent,
  entryWeight,
  evictOldest,
  evictedCount,
  exhaustedCount,
  loadedAhead,
  matchedBytes,
  matchedKeys,
  memoryBytes,
  misplacedCount,
  nodeEntry,
  nodeNewer,
  nodeTime,
  nodesMax,
  nodesUsed,
  orphanCount,
  orphanNote,
  podBlocks,
  podBytes,
  podCapacity,
  podCapacitySet,
  podCleared,
  podClearedSet,
  podClose,
  podDigest,
  podOldest,
  podOpen,
  podPool,
  podTrim,
  podsMax,
  poolWordAt,
  touchBegin,
  touchNext,
  touchOne,
  words,
} from './residency-store';
import { timeUnits } from './residency-time';

export { POOL_NONE, residencyInit } from './residency-store';

const BATCH: u32 = 16;
const WEIGHTS: bool = false;
const ENDS: bool = true;
const batch = memory.data(64, 16);
const answer = memory.data(16, 8);
const ANSWER: u64 = 0x616e73776572;
/** The keys of the last lookup. */
let lookedUp: usize = 0;

// Pods.

/** Pod slots of the table: the asked number, rounded up to a multiple of 64. */
export function residencyPods(): u32 {
  return podsMax;
}
/** Words of 64 pods each, for residencyPoolWord(). */
export function residencyPodWords(): u32 {
  return words;
}
/** The pool of a pod, or POOL_NONE. */
export function residencyPodPool(pod: u32): u32 {
  return podPool(pod);
}
/** 64 pods of a pool, one bit each, from pod 64 * word on. */
export function residencyPoolWord(pool: u32, word: u32): u64 {
  return pool < POOLS_MAX && word < words ? load<u64>(poolWordAt(pool, word)) : 0;
}
function inUse(pod: u32): bool {
  return podPool(pod) != POOL_NONE;
}

/** Puts a pod into a pool with nothing held; a slot in use is emptied first. False when slot or pool is out of range. */
export function residencyPodAdd(pod: u32, pool: u32, capacityBytes: u64): bool {
  if (pod >= podsMax || pool >= POOLS_MAX) return false;
  residencyPodRemove(pod);
  podOpen(pod, pool, capacityBytes);
  return true;
}

/** Forgets a pod and frees its slot. */
export function residencyPodRemove(pod: u32): void {
  if (inUse(pod)) podClose(pod);
}

/** Changes how many bytes a pod can hold; what no longer fits goes, oldest first. */
export function residencyPodCapacity(pod: u32, capacityBytes: u64): void {
  if (inUse(pod)) podCapacitySet(pod, capacityBytes);
}

/** Forgets what a pod held at `timeMs`: it goes, and touches up to that time that still arrive are ignored. */
export function residencyPodClear(pod: u32, timeMs: f64): void {
  if (!inUse(pod)) return;
  const time = timeUnits(timeMs);
  if (time > podCleared(pod)) podClearedSet(pod, time);
  while (podOldest(pod) != 0 && nodeTime(podOldest(pod)) <= time) evictOldest(pod);
}

export function residencyPodBytes(pod: u32): u64 {
  return inUse(pod) ? podBytes(pod) : 0;
}
export function residencyPodCapacityBytes(pod: u32): u64 {
  return inUse(pod) ? podCapacity(pod) : 0;
}
export function residencyPodBlocks(pod: u32): u32 {
  return inUse(pod) ? podBlocks(pod) : 0;
}
/** A number for the set of keys that a pod holds, whatever their order: equal sets have equal numbers. */
export function residencyPodDigest(pod: u32): u64 {
  return inUse(pod) ? podDigest(pod) : 0;
}
/** The same over keys, weights, times and their order. It walks the list. */
export function residencyPodOrderDigest(pod: u32): u64 {
  if (!inUse(pod)) return 0;
  let digest: u64 = 0;
  let node = podOldest(pod);
  while (node != 0) {
    const entry = nodeEntry(node);
    digest = mix64(digest + load<u64>(entryAt(entry)));
    digest = mix64(digest + (nodeTime(node) << 16) + entryWeight(entry));
    node = nodeNewer(node);
  }
  return digest;
}

/** Whether a pod holds a key, whatever stands before it. */
export function residencyHolds(pod: u32, key: u64): bool {
  if (!inUse(pod)) return false;
  const entry = entryFind(key);
  return entry != 0 && entryHolds(entry, pod);
}
/** Whether any pod holds a key. */
export function residencyKnows(key: u64): bool {
  return entryFind(key) != 0;
}

// Counters.

export function residencyNodes(): u32 {
  return nodesMax;
}
export function residencyNodesUsed(): u32 {
  return nodesUsed;
}
export function residencyEntriesUsed(): u32 {
  return entriesUsed;
}
export function residencyBytesReserved(): u32 {
  return <u32>memoryBytes;
}
/** Blocks that a pod no longer holds: evicted, cleared or gone with it. */
export function residencyEvicted(): u64 {
  return evictedCount;
}
/** Those of them that went because the table was full, not the pod. */
export function residencyExhausted(): u64 {
  return exhaustedCount;
}
/** Nodes whose place by time was not reached within the bound. */
export function residencyMisplaced(): u64 {
  return misplacedCount;
}
/** Touches whose parent key was not known here. */
export function residencyOrphans(): u64 {
  return orphanCount;
}

// Touches.

/**
 * A pod was given blocks from..n-1 of a chain, at a time: `ends[i]` is the number of prompt bytes up to and including
 * block i. The blocks before them are touched too, from `parentKey` up; it is used when `from` is 0, and 0 begins a prompt.
 */
export function residencyTouch(
  pod: u32,
  timeMs: f64,
  parentKey: u64,
  keys: StaticArray<u64>,
  ends: StaticArray<u32>,
  from: u32,
  n: u32,
): void {
  const length = min(n, min(<u32>keys.length, <u32>ends.length));
  if (from >= length) return;
  const first = from * 8;
  const before = from == 0 ? parentKey : load<u64>(changetype<usize>(keys) + first - 8);
  const startBytes = from == 0 ? 0 : load<u32>(changetype<usize>(ends) + from * 4 - 4);
  touch(
    pod,
    timeMs,
    before,
    changetype<usize>(keys) + first,
    changetype<usize>(ends) + from * 4,
    length - from,
    ENDS,
    startBytes,
  );
}

/**
 * The same with the weight of each block, as a touch record of the wire carries it: `count` keys and weights. Returns how
 * many bytes of them the pod did not hold before.
 */
export function residencyTouchAt(pod: u32, timeMs: f64, parentKey: u64, keys: usize, weights: usize, count: u32): u32 {
  return touch(pod, timeMs, parentKey, keys, weights, count, WEIGHTS, 0);
}

/**
 * A request on a pod is over: what ends in `deepestKey` is touched again, and the answer behind it, which is in the engine's
 * cache, too, and whose text nobody here has read, stands in the list as one block of so many bytes. Returns that block's
 * key, by which no prompt will ask.
 */
export function residencyTouchAnswer(pod: u32, timeMs: f64, deepestKey: u64, bytes: u32): u64 {
  const key = residencyAnswerKey(deepestKey);
  store<u64>(answer, key);
  store<u32>(answer, bytes, 8);
  touch(pod, timeMs, deepestKey, answer, answer + 8, 1, WEIGHTS, 0);
  return key;
}
function residencyAnswerKey(deepestKey: u64): u64 {
  return max(mix64(deepestKey ^ ANSWER), 1);
}

/** Touches again what ends in `deepestKey`, from there up to the first block. */
export function residencyTouchChain(pod: u32, timeMs: f64, deepestKey: u64): void {
  touch(pod, timeMs, deepestKey, 0, 0, 0, WEIGHTS, 0);
}

function touch(
  pod: u32,
  timeMs: f64,
  parentKey: u64,
  keys: usize,
  weights: usize,
  count: u32,
  ends: bool,
  startBytes: u32,
): u32 {
  if (!inUse(pod)) return 0;
  const time = timeUnits(timeMs);
  if (time <= podCleared(pod)) return 0;
  const before = podBytes(pod);
  const length = min(count, CHAIN_BLOCKS_MAX);
  const parent = parentKey == 0 ? 0 : entryFind(parentKey);
  const depth = parent == 0 ? 0 : entryDepth(parent) + 1;
  if (parent == 0 && parentKey != 0) orphanNote();
  touchBegin();
  loadHeads(keys, length);
  for (let i = length; i > 0; i--) {
    const key = load<u64>(keys + (i - 1) * 8);
    if (key == 0) continue;
    const parentOf = i == 1 ? parentKey : load<u64>(keys + (i - 2) * 8);
    let weight = load<u32>(weights + (i - 1) * 4);
    if (ends) weight -= i == 1 ? startBytes : load<u32>(weights + (i - 2) * 4);
    touchOne(pod, time, key, parentOf, weight, depth + i - 1);
  }
  // Where the table is full, the pod may have lost more than it was given.
  const after = podBytes(pod);
  let key = parentKey;
  for (let i: u32 = 0; key != 0 && i < CHAIN_BLOCKS_MAX; i++) key = touchAbove(pod, time, key);
  podTrim(pod);
  return after > before ? <u32>(after - before) : 0;
}

/** Loads what touches will need: many loads at once wait for memory together, and one by one each for itself. */
function loadHeads(keys: usize, count: u32): void {
  let sum: u32 = 0;
  for (let i: u32 = 0; i < count; i++) sum ^= entryHead(load<u64>(keys + i * 8));
  store<u32>(loadedAhead, sum);
}

/** Touches a block above in a chain, unless nobody holds it any more. Returns the key of the block before it, 0 for none. */
function touchAbove(pod: u32, time: u64, key: u64): u64 {
  let entry = touchNext(pod, time, key);
  if (entry != 0) return entryParent(entry);
  entry = entryFind(key);
  if (entry == 0) return 0;
  const above = entryParent(entry);
  touchOne(pod, time, key, above, entryWeight(entry), entryDepth(entry));
  return above;
}

// Lookup.

/**
 * For each pod of the pool, how much of a prompt it holds from its start: matchBytes() and matchKeys(). Returns the most
 * bytes that one holds. `ends` as in residencyTouch().
 */
export function residencyLookup(pool: u32, keys: StaticArray<u64>, ends: StaticArray<u32>, n: u32): u32 {
  const length = min(n, min(<u32>keys.length, <u32>ends.length));
  return residencyLookupAt(pool, changetype<usize>(keys), changetype<usize>(ends), length);
}

export function residencyLookupAt(pool: u32, keys: usize, ends: usize, n: u32): u32 {
  lookedUp = keys;
  if (pool >= POOLS_MAX || words == 0) return 0;
  let first: u32 = words;
  let last: u32 = 0;
  for (let w: u32 = 0; w < words; w++) {
    const members = load<u64>(poolWordAt(pool, w));
    store<u64>(alive + w * 8, members);
    if (members != 0) {
      if (first == words) first = w;
      last = w + 1;
    }
  }
  if (first == words) return 0;
  const length = min(n, CHAIN_BLOCKS_MAX);
  let matched: u32 = 0;
  let bytes: u32 = 0;
  let any: u64 = 1;
  while (matched < length && any != 0) {
    const size = min(length - matched, BATCH);
    for (let i: u32 = 0; i < size; i++) store<u32>(batch + i * 4, entryHead(load<u64>(keys + (matched + i) * 8)));
    for (let i: u32 = 0; i < size; i++) {
      const entry = entryFrom(load<u32>(batch + i * 4), load<u64>(keys + matched * 8));
      if (entry == 0) {
        any = 0;
        break;
      }
      const holders = entryAt(entry) + 24;
      any = 0;
      for (let w = first; w < last; w++) {
        const before = load<u64>(alive + w * 8);
        const after = before & load<u64>(holders + w * 8);
        any |= after;
        if (after != before) {
          store<u64>(alive + w * 8, after);
          record(w, before ^ after, bytes, matched);
        }
      }
      if (any == 0) break;
      bytes = load<u32>(ends + matched * 4);
      matched++;
    }
  }
  for (let w = first; w < last; w++) record(w, load<u64>(alive + w * 8), bytes, matched);
  return bytes;
}

/** Notes the match of the pods in one word that hold no more than this. */
function record(word: u32, members: u64, bytes: u32, keys: u32): void {
  let rest = members;
  while (rest != 0) {
    const pod = word * 64 + <u32>ctz(rest);
    rest &= rest - 1;
    store<u32>(matchedBytes + pod * 4, bytes);
    store<u32>(matchedKeys + pod * 4, keys);
  }
}

/** What the last lookup found for a pod of its pool. */
export function matchBytes(pod: u32): u32 {
  return pod < podsMax ? load<u32>(matchedBytes + pod * 4) : 0;
}
export function matchKeys(pod: u32): u32 {
  return pod < podsMax ? load<u32>(matchedKeys + pod * 4) : 0;
}
/** The last block that it found there; 0 = none. The keys that were looked up must still be where they were. */
export function matchLastKey(pod: u32): u64 {
  const keys = matchKeys(pod);
  return keys == 0 ? 0 : load<u64>(lookedUp + (keys - 1) * 8);
}
