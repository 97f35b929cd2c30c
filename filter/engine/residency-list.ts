// Each pod's list of nodes in order of time, and how exact the times in it are.
//
// A touch renews every block of a chain from the deepest one up to the first, which for a long prompt are hundreds. But order matters only at the
// old end, where blocks fall out, and there a little of the time for which a pod keeps its blocks makes no difference. So a chain that was touched
// so shortly before is left where it stands, and only what is new is put in front of it. For that a node keeps its lag: by how
// much the blocks before it in its chain may have been touched earlier than it. All of them are held, and not touched before the node's
// time less its lag, as long as something older than that is still in the list and nothing as new as that has gone. What is left alone does not come any nearer to the present by
// what is put behind it, so errors do not add up: every block stands at most the slack before its last use.
import {
  CHAIN_BLOCKS_MAX,
  LAG_BITS,
  LAG_UNIT_BITS,
  SLACK_SHARE,
  SLACK_UNITS_MAX,
  POD_BITS,
  TOUCH_STEPS_MAX,
} from './limits';
import {
  entryAt,
  entryDepth,
  nodeAt,
  nodeEntry,
  nodeNewer,
  nodeOlder,
  nodeTime,
  podAt,
  podBytes,
  podCapacity,
  podGone,
  podOldest,
} from './residency-store';

const DEPTH_MAX: u32 = CHAIN_BLOCKS_MAX - 1;
/** The lag of a node of which it is not known that all blocks before it are held. */
export const LAG_NONE: u32 = (1 << LAG_BITS) - 1;

let steps: i32 = 0;
/** The lag of what the touch at hand renews. */
let lag: u32 = 0;

export let misplacedCount: u64 = 0;

export function listInit(): void {
  misplacedCount = 0;
}

/** Begins a touch: what it may spend on searching places, and the lag of the nodes that it renews. */
export function listBegin(lagOfTouch: u32): void {
  steps = TOUCH_STEPS_MAX;
  lag = lagOfTouch;
}

// How exact times are.

function nodeLag(node: u32): u32 {
  return (<u32>load<u16>(nodeAt(node))) >> POD_BITS;
}

/** The lag that stands for so many units of time, rounded up. */
function lagOf(units: u64): u32 {
  return <u32>min((units + ((1 << LAG_UNIT_BITS) - 1)) >> LAG_UNIT_BITS, LAG_NONE);
}

/** All blocks before this node are held and were touched at this time or later; 0 = that is not known. */
export function nodeBase(pod: u32, node: u32): u64 {
  const away = nodeLag(node);
  const back = (<u64>away) << LAG_UNIT_BITS;
  const time = nodeTime(node);
  if (away == LAG_NONE || time <= back) return 0;
  // The oldest alone does not tell: what is touched late may be older than what has gone.
  return time - back > max(nodeTime(podOldest(pod)), podGone(pod)) ? time - back : 0;
}

/** The lag of what a touch at `time` puts behind blocks that were touched at `base` or later, or LAG_NONE when these are to be touched again. */
export function lagBehind(pod: u32, base: u64, time: u64): u32 {
  if (base >= time) return 0;
  if (base == 0) return LAG_NONE;
  const age = <f64>(time - nodeTime(podOldest(pod)));
  // Until it is full, a pod will keep what it has for longer than it has had it.
  const kept = (age * <f64>podCapacity(pod)) / <f64>podBytes(pod);
  const slack = min(kept * SLACK_SHARE, <f64>SLACK_UNITS_MAX);
  return <f64>(time - base) <= slack ? lagOf(time - base) : LAG_NONE;
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

export function placeOf(time: u64, depth: u32): u64 {
  return (time << 13) | (<u64>(DEPTH_MAX - depth));
}
export function edgeSet(pod: u32, place: u64, key: u64): void {
  store<u64>(podAt(pod), place, 56);
  store<u64>(podAt(pod), key, 64);
}
/** Whether a place is one that the pod's capacity has cut off. */
export function beyondEdge(pod: u32, place: u64, key: u64): bool {
  const edge = load<u64>(podAt(pod), 56);
  return place < edge || (place == edge && key <= load<u64>(podAt(pod), 64));
}

export function unlink(pod: u32, node: u32): void {
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
export function link(pod: u32, node: u32, entry: u32, time: u64): void {
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
  setTime(node, time, pod, lag);
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

/** Renews a node's place, unless the pod is known to have used it later. */
export function renewNode(pod: u32, node: u32, entry: u32, time: u64): void {
  const held = nodeTime(node);
  if (held < time) {
    unlink(pod, node);
    link(pod, node, entry, time);
  } else if (lag != LAG_NONE) {
    const known = min(lag + lagOf(held - time), LAG_NONE);
    if (known < nodeLag(node)) setTime(node, held, pod, known);
  }
}

function setTime(node: u32, time: u64, pod: u32, lagOfNode: u32): void {
  store<u64>(nodeAt(node), (time << 16) | (<u64>((lagOfNode << POD_BITS) | pod)));
}
