// The memory under residency.ts: entries, nodes and pod records, their hashes, and the lists in order of time.
//
// An entry is a key that at least one pod holds; a node is one pod's holding of it. Both are found by hash.
//
//   entry  | key u64 | chain u32 | depth:13 bytes:19 | parent u64 | holders: one bit a pod, 64 a word |
//   node   | time:48 pod:16 | entry u32 | older u32 | newer u32 | chain u32 |
//   pod    | bytes u64 | capacity u64 | blocks u32 | oldest u32 | newest u32 | finger u32 |
//          | sum of mixed keys u64 | cleared at u64 | pool u32 | reserve u32 | edge u64 | edge key u64 |
//
// A pod's edge is the newest place in its list (time:48, depth from deep to shallow:13; then key) that its capacity has cut
// off. Later touches older than it are not let in, or what small gaps let in would depend on the order of arrival.
//
// Index 0 means none, and times count in 1/64 ms. Everything is reserved by residencyInit(). The functions here take
// pods, nodes and entries that the caller has checked or that the table itself holds.
import {
  BLOCK_BYTES_MAX,
  CHAIN_BLOCKS_MAX,
  HEADS_BYTES_MAX,
  PODS_MAX,
  POOLS_MAX,
  TABLE_BYTES_MAX,
  TOUCH_STEPS_MAX,
} from './limits';
import { mix64 } from './random';

/** The pool of a pod slot that is not in use. */
export const POOL_NONE: u32 = 0xffffffff;

const GOLDEN: u64 = 0x9e3779b97f4a7c15;
const SPREAD: u32 = 0x9e3779b1;
/** So many oldest blocks are looked at together before they go. */
const AHEAD: u32 = 16;
/** What was loaded for no other reason than that it will be used soon. */
export const loadedAhead: usize = memory.data(4, 4);
const BYTES_BITS: u32 = 19;
const DEPTH_MAX: u32 = CHAIN_BLOCKS_MAX - 1;
const NODE_BYTES: usize = 24;
const POD_BYTES: usize = 80;
const FULLEST_EVERY: u32 = 64;
const RESERVE_SHARE: f64 = 0.5;

export let podsMax: u32 = 0;
export let nodesMax: u32 = 0;
/** Words of 64 pods. */
export let words: u32 = 0;
let entryBytes: usize = 0;

let memoryBase: usize = 0;
export let memoryBytes: usize = 0;
let pods: usize = 0;
let nodes: usize = 0;
let entries: usize = 0;
let entryHeads: usize = 0;
let entryShift: u64 = 63;
let nodeHeads: usize = 0;
let nodeMask: u32 = 0;
let poolMasks: usize = 0;
/** Room for one word of working space per word of pods, and two numbers per pod, for lookups. */
export let alive: usize = 0;
export let matchedBytes: usize = 0;
export let matchedKeys: usize = 0;

let nodeFree: u32 = 0;
let entryFree: u32 = 0;
export let nodesUsed: u32 = 0;
export let entriesUsed: u32 = 0;
let steps: i32 = 0;
/** The node that is next newer than the one touched last: of a prompt's chain, mostly the block before. 0 = none. */
let next: u32 = 0;
let fullest: u32 = 0;
let fullestAge: u32 = 0;

export let evictedCount: u64 = 0;
export let exhaustedCount: u64 = 0;
export let misplacedCount: u64 = 0;
export let orphanCount: u64 = 0;

/**
 * Reserves the table for `podCount` pods that hold at most `nodeCount` blocks together, and empties it. Called while a
 * program starts: it is the only function here that allocates.
 */
export function residencyInit(podCount: u32, nodeCount: u32): void {
  podsMax = (min(max(podCount, 1), PODS_MAX) + 63) & ~63;
  words = podsMax >> 6;
  entryBytes = (24 + ((<usize>words) << 3) + 31) & ~31;
  const nodesFit = <u32>(TABLE_BYTES_MAX / (NODE_BYTES + entryBytes + HEADS_BYTES_MAX));
  nodesMax = min(max(nodeCount, 1), nodesFit);
  const entryBits = max(<u32>32 - clz(nodesMax - 1), <u32>1);
  const nodeBits = max(entryBits - 1, <u32>1);
  entryShift = 64 - entryBits;
  nodeMask = ((<u32>1) << nodeBits) - 1;
  const entryRoom = (<usize>nodesMax + 1) * entryBytes;
  const nodeRoom = (<usize>nodesMax + 1) * NODE_BYTES;
  const entryHeadRoom = (<usize>4) << entryBits;
  const nodeHeadRoom = (<usize>4) << nodeBits;
  const podRoom = <usize>podsMax * (POD_BYTES + 8) + <usize>words * 8 * (POOLS_MAX + 1);
  const total = entryRoom + nodeRoom + entryHeadRoom + nodeHeadRoom + podRoom + 5 * 64;
  if (total != memoryBytes) {
    if (memoryBase != 0) heap.free(memoryBase);
    memoryBase = heap.alloc(total);
    memoryBytes = total;
  }
  memory.fill(memoryBase, 0, total);
  entries = (memoryBase + 63) & ~63;
  nodes = (entries + entryRoom + 63) & ~63;
  entryHeads = (nodes + nodeRoom + 63) & ~63;
  nodeHeads = (entryHeads + entryHeadRoom + 63) & ~63;
  pods = (nodeHeads + nodeHeadRoom + 63) & ~63;
  poolMasks = pods + <usize>podsMax * POD_BYTES;
  alive = poolMasks + <usize>words * 8 * POOLS_MAX;
  matchedBytes = alive + <usize>words * 8;
  matchedKeys = matchedBytes + <usize>podsMax * 4;
  for (let i: u32 = 1; i < nodesMax; i++) {
    store<u32>(nodeAt(i), i + 1, 20);
    store<u32>(entryAt(i), i + 1, 8);
  }
  nodeFree = 1;
  entryFree = 1;
  nodesUsed = 0;
  entriesUsed = 0;
  fullest = 0;
  fullestAge = 0;
  for (let pod: u32 = 0; pod < podsMax; pod++) store<u32>(podAt(pod), POOL_NONE, 48);
  evictedCount = 0;
  exhaustedCount = 0;
  misplacedCount = 0;
  orphanCount = 0;
}
export function orphanNote(): void {
  orphanCount++;
}

// Pod records.

function podAt(pod: u32): usize {
  return pods + <usize>pod * POD_BYTES;
}
export function podBytes(pod: u32): u64 {
  return load<u64>(podAt(pod));
}
export function podCapacity(pod: u32): u64 {
  return load<u64>(podAt(pod), 8);
}
export function podBlocks(pod: u32): u32 {
  return load<u32>(podAt(pod), 16);
}
export function podOldest(pod: u32): u32 {
  return load<u32>(podAt(pod), 20);
}
export function podNewest(pod: u32): u32 {
  return load<u32>(podAt(pod), 24);
}
export function podDigest(pod: u32): u64 {
  return load<u64>(podAt(pod), 32);
}
export function podCleared(pod: u32): u64 {
  return load<u64>(podAt(pod), 40);
}
export function podClearedSet(pod: u32, time: u64): void {
  store<u64>(podAt(pod), time, 40);
}
/** The pool of any number: POOL_NONE for a slot that is not in use or not there. */
export function podPool(pod: u32): u32 {
  return pod < podsMax ? load<u32>(podAt(pod), 48) : POOL_NONE;
}
export function podCapacitySet(pod: u32, capacityBytes: u64): void {
  if (capacityBytes > podCapacity(pod)) edgeSet(pod, 0, 0);
  store<u64>(podAt(pod), capacityBytes, 8);
  podTrim(pod);
}
/** Sets how many bytes of a pod's capacity its requests in flight need for their answers; the next touch makes room. */
export function podReserveSet(pod: u32, bytes: f64): void {
  if (podPool(pod) == POOL_NONE) return;
  const most = min(<f64>podCapacity(pod) * RESERVE_SHARE, <f64>u32.MAX_VALUE);
  store<u32>(podAt(pod), <u32>min(bytes, most), 52);
}
/** Sets up an empty slot. */
export function podOpen(pod: u32, pool: u32, capacityBytes: u64): void {
  store<u64>(podAt(pod), capacityBytes, 8);
  store<u32>(podAt(pod), pool, 48);
  const mask = poolWordAt(pool, pod >> 6);
  store<u64>(mask, load<u64>(mask) | ((<u64>1) << (pod & 63)));
}
export function podClose(pod: u32): void {
  while (podOldest(pod) != 0) evictOldest(pod);
  const mask = poolWordAt(podPool(pod), pod >> 6);
  store<u64>(mask, load<u64>(mask) & ~((<u64>1) << (pod & 63)));
  memory.fill(podAt(pod), 0, POD_BYTES);
  store<u32>(podAt(pod), POOL_NONE, 48);
}
/** Address of 64 pods of a pool, one bit each, from pod 64 * word on. */
export function poolWordAt(pool: u32, word: u32): usize {
  return poolMasks + ((<usize>(pool * words + word)) << 3);
}

// Entries.

export function entryAt(entry: u32): usize {
  return entries + <usize>entry * entryBytes;
}
function entryBucket(key: u64): usize {
  return entryHeads + ((<usize>((key * GOLDEN) >> entryShift)) << 2);
}
/** The first entry of the chain that a key belongs to. */
export function entryHead(key: u64): u32 {
  return load<u32>(entryBucket(key));
}
/** The entry of a key at or after `first` in its chain; 0 = nobody holds it. */
export function entryFrom(first: u32, key: u64): u32 {
  let entry = first;
  while (entry != 0) {
    const at = entryAt(entry);
    if (load<u64>(at) == key) return entry;
    entry = load<u32>(at, 8);
  }
  return 0;
}
export function entryFind(key: u64): u32 {
  return entryFrom(entryHead(key), key);
}
export function entryParent(entry: u32): u64 {
  return load<u64>(entryAt(entry), 16);
}
export function entryWeight(entry: u32): u32 {
  return load<u32>(entryAt(entry), 12) & BLOCK_BYTES_MAX;
}
export function entryDepth(entry: u32): u32 {
  return load<u32>(entryAt(entry), 12) >> BYTES_BITS;
}
export function entryHolds(entry: u32, pod: u32): bool {
  return ((load<u64>(entryAt(entry) + (((<usize>pod) >> 6) << 3), 24) >> (pod & 63)) & 1) != 0;
}

function entryCreate(key: u64, parent: u64, weightBytes: u32, depth: u32): u32 {
  const entry = entryFree;
  const at = entryAt(entry);
  entryFree = load<u32>(at, 8);
  entriesUsed++;
  const bucket = entryBucket(key);
  store<u64>(at, key);
  store<u32>(at, load<u32>(bucket), 8);
  store<u32>(at, (min(depth, DEPTH_MAX) << BYTES_BITS) | min(max(weightBytes, 1), BLOCK_BYTES_MAX), 12);
  store<u64>(at, parent, 16);
  store<u32>(bucket, entry);
  return entry;
}

/** Takes a pod off an entry, and frees the entry after its last holder. */
function entryRelease(entry: u32, pod: u32): void {
  const at = entryAt(entry);
  const word = at + (((<usize>pod) >> 6) << 3);
  store<u64>(word, load<u64>(word, 24) & ~((<u64>1) << (pod & 63)), 24);
  for (let i: u32 = 0; i < words; i++) {
    if (load<u64>(at + ((<usize>i) << 3), 24) != 0) return;
  }
  let link = entryBucket(load<u64>(at));
  while (load<u32>(link) != entry) link = entryAt(load<u32>(link)) + 8;
  store<u32>(link, load<u32>(at, 8));
  store<u32>(at, entryFree, 8);
  entryFree = entry;
  entriesUsed--;
}

// Nodes.

function nodeAt(node: u32): usize {
  return nodes + <usize>node * NODE_BYTES;
}
/** Entries are numbered side by side in a prompt, and so lie their nodes' buckets: a pod's part of the table begins somewhere of its own. */
function nodeBucket(pod: u32, entry: u32): usize {
  return nodeHeads + ((<usize>((entry + pod * SPREAD) & nodeMask)) << 2);
}
export function nodeTime(node: u32): u64 {
  return load<u64>(nodeAt(node)) >> 16;
}
/** The pod of a node; a freed node has none. */
export function nodePod(node: u32): u32 {
  const at = nodeAt(node);
  return load<u32>(at, 8) == 0 ? POOL_NONE : <u32>load<u16>(at);
}
export function nodeEntry(node: u32): u32 {
  return load<u32>(nodeAt(node), 8);
}
export function nodeOlder(node: u32): u32 {
  return load<u32>(nodeAt(node), 12);
}
export function nodeNewer(node: u32): u32 {
  return load<u32>(nodeAt(node), 16);
}
function nodeFind(pod: u32, entry: u32): u32 {
  let node = load<u32>(nodeBucket(pod, entry));
  while (node != 0) {
    const at = nodeAt(node);
    if (load<u32>(at, 8) == entry && <u32>load<u16>(at) == pod) return node;
    node = load<u32>(at, 20);
  }
  return 0;
}

/** Whether a node stands before (is older than) a place in the order of time, depth and key. */
function isOlder(node: u32, time: u64, depth: u32, key: u64): bool {
  const nodeAge = nodeTime(node);
  if (nodeAge != time) return nodeAge < time;
  const entry = nodeEntry(node);
  const entryDeep = entryDepth(entry);
  if (entryDeep != depth) return entryDeep > depth;
  return load<u64>(entryAt(entry)) < key;
}

function placeOf(time: u64, depth: u32): u64 {
  return (time << 13) | (<u64>(DEPTH_MAX - depth));
}
function edgeSet(pod: u32, place: u64, key: u64): void {
  store<u64>(podAt(pod), place, 56);
  store<u64>(podAt(pod), key, 64);
}
/** Whether a place is one that the pod's capacity has cut off. */
function beyondEdge(pod: u32, place: u64, key: u64): bool {
  const edge = load<u64>(podAt(pod), 56);
  return place < edge || (place == edge && key <= load<u64>(podAt(pod), 64));
}

function unlink(pod: u32, node: u32): void {
  const record = podAt(pod);
  const older = nodeOlder(node);
  const newer = nodeNewer(node);
  if (older == 0) store<u32>(record, newer, 20);
  else store<u32>(nodeAt(older), newer, 16);
  if (newer == 0) store<u32>(record, older, 24);
  else store<u32>(nodeAt(newer), older, 12);
  if (load<u32>(record, 28) == node) store<u32>(record, older != 0 ? older : newer, 28);
}

/** Puts a node at its place by time: mostly at the end, else searched from the end or the last such place. */
function link(pod: u32, node: u32, entry: u32, time: u64): void {
  const record = podAt(pod);
  const newest = load<u32>(record, 24);
  const depth = entryDepth(entry);
  const key = load<u64>(entryAt(entry));
  let older = newest;
  if (newest != 0 && !isOlder(newest, time, depth, key)) {
    older = placeBefore(record, newest, time, depth, key);
    store<u32>(record, node, 28);
  }
  const newer = older == 0 ? load<u32>(record, 20) : nodeNewer(older);
  const at = nodeAt(node);
  store<u64>(at, (time << 16) | (<u64>pod));
  store<u32>(at, older, 12);
  store<u32>(at, newer, 16);
  if (older == 0) store<u32>(record, node, 20);
  else store<u32>(nodeAt(older), node, 16);
  if (newer == 0) store<u32>(record, node, 24);
  else store<u32>(nodeAt(newer), node, 12);
}

/** The newest node that is older than the given place, or 0. `newest` is not older. */
function placeBefore(record: usize, newest: u32, time: u64, depth: u32, key: u64): u32 {
  let node = newest;
  const finger = load<u32>(record, 28);
  if (finger != 0) {
    const fingerTime = nodeTime(finger);
    const away = fingerTime < time ? time - fingerTime : fingerTime - time;
    if (away < nodeTime(newest) - time) node = finger;
  }
  while (isOlder(node, time, depth, key)) {
    const newer = nodeNewer(node);
    if (newer == 0 || !isOlder(newer, time, depth, key)) return node;
    if (--steps < 0) {
      misplacedCount++;
      return node;
    }
    node = newer;
  }
  while (node != 0 && !isOlder(node, time, depth, key)) {
    if (--steps < 0) {
      misplacedCount++;
      return node;
    }
    node = nodeOlder(node);
  }
  return node;
}

export function evictOldest(pod: u32): void {
  const node = podOldest(pod);
  if (node == 0) return;
  const record = podAt(pod);
  const at = nodeAt(node);
  const entry = load<u32>(at, 8);
  unlink(pod, node);
  let hop = nodeBucket(pod, entry);
  while (load<u32>(hop) != node) hop = nodeAt(load<u32>(hop)) + 20;
  store<u32>(hop, load<u32>(at, 20));
  store<u32>(at, 0, 8);
  store<u32>(at, nodeFree, 20);
  nodeFree = node;
  nodesUsed--;
  store<u64>(record, load<u64>(record) - entryWeight(entry));
  store<u32>(record, load<u32>(record, 16) - 1, 16);
  store<u64>(record, load<u64>(record, 32) - mix64(load<u64>(entryAt(entry))), 32);
  entryRelease(entry, pod);
  evictedCount++;
}

/** Makes room when all nodes are in use: the pod that holds the most blocks, found again from time to time, gives one. */
function evictFullest(pod: u32): void {
  if (fullestAge == 0 || podBlocks(fullest) == 0) {
    fullest = 0;
    for (let i: u32 = 1; i < podsMax; i++) {
      if (podBlocks(i) > podBlocks(fullest)) fullest = i;
    }
    fullestAge = FULLEST_EVERY;
  }
  fullestAge--;
  exhaustedCount++;
  evictOldest(podBlocks(pod) >= podBlocks(fullest) ? pod : fullest);
}

/** Begins a touch: what touchOne() may spend on searching places from here on. */
export function touchBegin(): void {
  steps = TOUCH_STEPS_MAX;
  next = 0;
}

/** Marks one block as held by a pod at a time, unless the pod is known to have used it later. */
export function touchOne(pod: u32, time: u64, key: u64, parent: u64, weightBytes: u32, depth: u32): void {
  if (touchNext(pod, time, key) != 0) return;
  let entry = entryFind(key);
  if (entry != 0 && entryHolds(entry, pod)) {
    const held = nodeFind(pod, entry);
    if (held != 0) touchHeld(pod, time, held, entry);
    return;
  }
  if (beyondEdge(pod, placeOf(time, entry == 0 ? min(depth, DEPTH_MAX) : entryDepth(entry)), key)) return;
  if (nodeFree == 0 || nodesUsed >= nodesMax) {
    evictFullest(pod);
    entry = entryFind(key);
  }
  if (entry == 0) entry = entryCreate(key, parent, weightBytes, depth);
  const word = entryAt(entry) + (((<usize>pod) >> 6) << 3);
  store<u64>(word, load<u64>(word, 24) | ((<u64>1) << (pod & 63)), 24);
  const node = nodeFree;
  const at = nodeAt(node);
  nodeFree = load<u32>(at, 20);
  nodesUsed++;
  const bucket = nodeBucket(pod, entry);
  store<u32>(at, entry, 8);
  store<u32>(at, load<u32>(bucket), 20);
  store<u32>(bucket, node);
  link(pod, node, entry, time);
  const record = podAt(pod);
  store<u64>(record, load<u64>(record) + entryWeight(entry));
  store<u32>(record, load<u32>(record, 16) + 1, 16);
  store<u64>(record, load<u64>(record, 32) + mix64(key), 32);
}

/** Touches the block next to the one touched last if it is this one, without a search: a chain's blocks stand side by side. Returns its entry. */
export function touchNext(pod: u32, time: u64, key: u64): u32 {
  const node = next;
  next = 0;
  if (node == 0) return 0;
  const entry = nodeEntry(node);
  if (load<u64>(entryAt(entry)) != key) return 0;
  touchHeld(pod, time, node, entry);
  return entry;
}

function touchHeld(pod: u32, time: u64, node: u32, entry: u32): void {
  next = nodeNewer(node);
  if (nodeTime(node) >= time) return;
  unlink(pod, node);
  link(pod, node, entry, time);
}

/** Loads what evictions will need: many loads at once wait for memory together, and one by one each for itself. */
function loadOldest(pod: u32): void {
  let sum: u32 = 0;
  let node = podOldest(pod);
  for (let i: u32 = 0; i < AHEAD && node != 0; i++) {
    sum ^= entryHead(load<u64>(entryAt(nodeEntry(node))));
    node = nodeNewer(node);
  }
  store<u32>(loadedAhead, sum);
}
/** Evicts what no longer fits. A touch ends with it, and not before: what is oldest may begin the very prompt. */
export function podTrim(pod: u32): void {
  const capacity = podCapacity(pod) - load<u32>(podAt(pod), 52);
  for (let i: u32 = 0; podBytes(pod) > capacity; i++) {
    if (i % AHEAD == 2) loadOldest(pod);
    const oldest = podOldest(pod);
    const place = placeOf(nodeTime(oldest), entryDepth(nodeEntry(oldest)));
    const key = load<u64>(entryAt(nodeEntry(oldest)));
    if (!beyondEdge(pod, place, key)) edgeSet(pod, place, key);
    evictOldest(pod);
  }
}
