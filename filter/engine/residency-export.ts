// What a pod holds, as touch records of the wire, newest first: for the snapshot of a new member.
//
// Blocks of one prompt stand together in the list, the first block newest; so the walk from newest to oldest gives
// chains in their own order, parents before children, and a snapshot cut short keeps what matters most. Whoever
// applies the records in any order gets the same list.
//
//   record | podId u32 | flags u16 = 0 | count u16 | time f64 ms | parent key u64 | count keys u64 | count weights u32 |
//          padded to 8 bytes (docs/WIRE.md, section 6)
import { CHAIN_BLOCKS_MAX } from './limits';
import {
  POOL_NONE,
  entryAt,
  entryDepth,
  entryParent,
  entryWeight,
  nodeEntry,
  nodeOlder,
  nodePod,
  nodeTime,
  podNewest,
  podPool,
} from './residency-store';
import { timeMsOf } from './residency-time';

const RECORD_BYTES: u32 = 24;
const KEY_BYTES: u32 = 12;
/** The cursor after the last record. */
export const EXPORT_DONE: u64 = u64.MAX_VALUE;

let next: u64 = EXPORT_DONE;
let records: u32 = 0;
let keysTotal: u32 = 0;
// Where the last call stopped, so that the next one need not search: used only if the node still stands there.
let heldNode: u32 = 0;
let heldPod: u32 = 0;

/** Cursor for the next call of residencyExport(), or EXPORT_DONE. */
export function exportNext(): u64 {
  return next;
}
/** Records that the last call wrote, and the keys in them. */
export function exportRecords(): u32 {
  return records;
}
export function exportKeys(): u32 {
  return keysTotal;
}

/**
 * Writes records for what `pod` holds into `room` bytes at `ptr`, from a cursor on (0 = from the newest), and returns how
 * many bytes it wrote. Records name the pod `podId`. Room for one record of one key (40 bytes) is needed to get on.
 *
 * A cursor names a place in the order of time, so touches between two calls do no harm: what moved meanwhile is newer than
 * the cursor and its touch is sent anyway.
 */
export function residencyExport(pod: u32, podId: u32, cursor: u64, ptr: usize, room: u32): u32 {
  records = 0;
  keysTotal = 0;
  next = EXPORT_DONE;
  if (podPool(pod) == POOL_NONE || cursor == EXPORT_DONE) return 0;
  let node = start(pod, cursor);
  let used: u32 = 0;
  while (node != 0) {
    const fits = room - used < RECORD_BYTES ? 0 : (room - used - RECORD_BYTES) / KEY_BYTES;
    const count = runLength(node, min(fits, CHAIN_BLOCKS_MAX));
    const bytes = (RECORD_BYTES + count * KEY_BYTES + 7) & ~7;
    if (count == 0 || used + bytes > room) {
      if (count > 1 && used + bytes - 8 <= room) {
        node = write(node, count - 1, podId, ptr + used);
        used += (RECORD_BYTES + (count - 1) * KEY_BYTES + 7) & ~7;
      }
      stop(pod, node);
      return used;
    }
    node = write(node, count, podId, ptr + used);
    used += bytes;
  }
  return used;
}

/** How many nodes from this one to older ones are one chain of one touch. */
function runLength(first: u32, most: u32): u32 {
  if (most == 0) return 0;
  let count: u32 = 1;
  let node = first;
  while (count < most) {
    const older = nodeOlder(node);
    if (older == 0 || nodeTime(older) != nodeTime(first)) break;
    if (entryParent(nodeEntry(older)) != load<u64>(entryAt(nodeEntry(node)))) break;
    node = older;
    count++;
  }
  return count;
}

/** Writes one record and returns the node after it. */
function write(first: u32, count: u32, podId: u32, at: usize): u32 {
  store<u32>(at, podId);
  store<u16>(at, 0, 4);
  store<u16>(at, <u16>count, 6);
  store<f64>(at, timeMsOf(nodeTime(first)), 8);
  store<u64>(at, entryParent(nodeEntry(first)), 16);
  const weights = at + RECORD_BYTES + count * 8;
  let node = first;
  for (let i: u32 = 0; i < count; i++) {
    const entry = nodeEntry(node);
    store<u64>(at + RECORD_BYTES + i * 8, load<u64>(entryAt(entry)));
    store<u32>(weights + i * 4, entryWeight(entry));
    node = nodeOlder(node);
  }
  if ((count & 1) != 0) store<u32>(weights + count * 4, 0);
  records++;
  keysTotal += count;
  return node;
}

/** A place in the order: time, then depth. Never 0, which asks for the newest. */
function placeOf(node: u32): u64 {
  return ((nodeTime(node) << 13) | (<u64>entryDepth(nodeEntry(node)))) + 1;
}

function stop(pod: u32, node: u32): void {
  heldPod = pod;
  heldNode = node;
  next = placeOf(node);
}

function start(pod: u32, cursor: u64): u32 {
  if (cursor == 0) return podNewest(pod);
  if (heldNode != 0 && heldPod == pod && nodePod(heldNode) == pod && placeOf(heldNode) == cursor) return heldNode;
  const place = cursor - 1;
  const time = place >> 13;
  const depth = <u32>(place & 8191);
  let node = podNewest(pod);
  while (node != 0) {
    const nodeAge = nodeTime(node);
    if (nodeAge < time || (nodeAge == time && entryDepth(nodeEntry(node)) >= depth)) return node;
    node = nodeOlder(node);
  }
  return 0;
}
