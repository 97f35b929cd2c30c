// Writing a frame into a region that the caller owns. Sections open by themselves when their first record is written and
// must come in ascending order of type. Every function answers false when the record does not fit or would stand in the
// wrong order; the frame then stays as it was, and frameEnd() still makes a valid frame of what had been written.
import { FRAME_BYTES_MAX, FRAME_KEY_NAME_BYTES_MAX, FRAME_NAME_BYTES_MAX, FRAME_TOUCH_KEYS_MAX } from './limits';
import { frameCheckOf, touchBytesOf } from './frame-check';
import {
  FRAME_MAGIC,
  FRAME_VERSION,
  FRAME_HEADER_BYTES,
  SECTION_HEADER_BYTES,
  FLAGS_KNOWN,
  SECTION_ADAPTERS,
  SECTION_ALIASES,
  SECTION_POOL,
  SECTION_SECRET,
  SECTION_ENDPOINTS,
  SECTION_LOAD,
  SECTION_METRICS,
  SECTION_TOUCHES,
  SECTION_OUTCOMES,
  SECTION_GATEWAY,
  ADAPTER_BYTES,
  ALIAS_BYTES,
  POOL_BYTES,
  POOL_KEY_BYTES,
  SECRET_BYTES,
  ENDPOINT_BYTES,
  LOAD_BYTES,
  METRICS_BYTES,
  TOUCHES_HEADER_BYTES,
  TOUCH_BYTES,
  OUTCOMES_HEADER_BYTES,
  OUTCOME_BYTES,
  OUTCOME_KIND_BYTES,
  OUTCOME_KIND_COUNTERS,
  GATEWAY_BYTES,
  OUTCOME_COUNTERS,
} from './frame-layout';

let start: usize = 0;
let limit: usize = 0;
let cursor: usize = 0;
let section: usize = 0;
let sectionType: u16 = 0;
let record: usize = 0;

/** Begins a frame in a region of so many bytes; false when not even the header fits. */
export function frameBegin(
  region: usize,
  capacity: u32,
  kind: u16,
  epoch: u64,
  sequence: u64,
  poolHash: u64,
  settingsVersion: u32,
  flags: u32,
): bool {
  start = 0;
  section = 0;
  sectionType = 0;
  record = 0;
  if (capacity < FRAME_HEADER_BYTES) return false;
  start = region;
  limit = region + (min<u32>(capacity, FRAME_BYTES_MAX) & ~7);
  cursor = region + FRAME_HEADER_BYTES;
  store<u32>(region, FRAME_MAGIC);
  store<u16>(region, FRAME_VERSION, 4);
  store<u16>(region, kind, 6);
  store<u64>(region, 0, 8);
  store<u64>(region, epoch, 16);
  store<u64>(region, sequence, 24);
  store<u64>(region, poolHash, 32);
  store<u32>(region, settingsVersion, 40);
  store<u32>(region, flags & FLAGS_KNOWN, 44);
  return true;
}

/** Changes the sequence of the frame being written: a delta learns only while it is filled how far it reaches. */
export function frameSequenceSet(sequence: u64): void {
  if (start != 0) store<u64>(start, sequence, 24);
}
export function frameFlagsSet(flags: u32): void {
  if (start != 0) store<u32>(start, flags & FLAGS_KNOWN, 44);
}

/** Bytes that still fit. */
export function frameRoom(): u32 {
  return start == 0 ? 0 : <u32>(limit - cursor);
}

/** Closes the frame: its length and check are written. Answers its bytes, 0 when no frame had been begun. */
export function frameEnd(): u32 {
  if (start == 0) return 0;
  const bytes = <u32>(cursor - start);
  store<u32>(start, bytes, 8);
  store<u32>(start, frameCheckOf(start, bytes), 12);
  start = 0;
  record = 0;
  return bytes;
}

// Makes room for a record of a section, zeroed, and opens the section when it is not the open one. The record is left in
// record; the section's length is kept right all the time.
function reserve(type: u16, bytes: u32, prefixBytes: u32): bool {
  if (start == 0 || type < sectionType) return false;
  const opens = type != sectionType;
  const needed = bytes + (opens ? SECTION_HEADER_BYTES + prefixBytes : 0);
  if (needed > <u32>(limit - cursor)) return false;
  memory.fill(cursor, 0, needed);
  if (opens) {
    section = cursor;
    sectionType = type;
    store<u16>(section, type);
    store<u32>(section, prefixBytes, 4);
    cursor += SECTION_HEADER_BYTES + prefixBytes;
  }
  record = cursor;
  cursor += bytes;
  store<u32>(section, load<u32>(section, 4) + bytes, 4);
  return true;
}

function reserveSingle(type: u16, bytes: u32): bool {
  return type > sectionType && reserve(type, bytes, 0);
}

/** Opens a section that may stay empty, so that an empty list can be told from an absent one. */
export function writeSection(type: u16): bool {
  const list =
    type == SECTION_ENDPOINTS ||
    type == SECTION_LOAD ||
    type == SECTION_METRICS ||
    type == SECTION_ADAPTERS ||
    type == SECTION_ALIASES;
  if (type == SECTION_TOUCHES) return reserve(type, 0, TOUCHES_HEADER_BYTES);
  if (type == SECTION_OUTCOMES) return reserve(type, 0, OUTCOMES_HEADER_BYTES);
  return list && reserve(type, 0, 0);
}

export function writePool(
  mode: u8,
  policy: u8,
  toolsPosition: u8,
  blockBytes: u32,
  windowBytes: u32,
  syncIntervalMs: u32,
  bytesPerToken: f32,
  weightPrefix: f32,
  weightQueue: f32,
  weightKv: f32,
): bool {
  if (!reserveSingle(SECTION_POOL, POOL_BYTES)) return false;
  store<u8>(record, mode);
  store<u8>(record, policy, 1);
  store<u8>(record, toolsPosition, 2);
  store<u32>(record, blockBytes, 4);
  store<u32>(record, windowBytes, 8);
  store<u32>(record, syncIntervalMs, 12);
  store<f32>(record, bytesPerToken, 16);
  store<f32>(record, weightPrefix, 20);
  store<f32>(record, weightQueue, 24);
  store<f32>(record, weightKv, 28);
  return true;
}

/** Right after writePool(): where a policy's key comes from. The name is copied; it must be 1 to FRAME_KEY_NAME_BYTES_MAX bytes of visible ASCII. */
export function writePolicyKey(source: u8, name: usize, nameBytes: u32): bool {
  if (sectionType != SECTION_POOL || load<u32>(section, 4) != POOL_BYTES) return false;
  if (nameBytes == 0 || nameBytes > FRAME_KEY_NAME_BYTES_MAX) return false;
  if (!reserve(SECTION_POOL, POOL_KEY_BYTES + ((nameBytes + 7) & ~7), 0)) return false;
  store<u8>(record, source);
  store<u32>(record, nameBytes, 4);
  memory.copy(record + POOL_KEY_BYTES, name, nameBytes);
  return true;
}

/** Copies the 32 bytes of a secret. */
export function writeSecret(secret: usize): bool {
  if (!reserveSingle(SECTION_SECRET, SECRET_BYTES)) return false;
  memory.copy(record, secret, SECRET_BYTES);
  return true;
}

/** The 16 address bytes are copied from address. */
export function writeEndpoint(
  podId: u32,
  port: u16,
  flags: u16,
  address: usize,
  weight: f32,
  capacityTokens: u32,
  startedSeconds: f64,
): bool {
  if (!reserve(SECTION_ENDPOINTS, ENDPOINT_BYTES, 0)) return false;
  store<u32>(record, podId);
  store<u16>(record, port, 4);
  store<u16>(record, flags, 6);
  memory.copy(record + 8, address, 16);
  store<f32>(record, weight, 24);
  store<u32>(record, capacityTokens, 28);
  store<f64>(record, startedSeconds, 32);
  return true;
}

export function writeLoad(
  podId: u32,
  inFlight: u32,
  prefillTokens: u32,
  usedTokens: u32,
  ageMs: u32,
  slowness: f32,
): bool {
  if (!reserve(SECTION_LOAD, LOAD_BYTES, 0)) return false;
  store<u32>(record, podId);
  store<u32>(record, inFlight, 4);
  store<u32>(record, prefillTokens, 8);
  store<u32>(record, usedTokens, 12);
  store<u32>(record, ageMs, 16);
  store<f32>(record, slowness, 20);
  return true;
}

export function writeMetrics(
  podId: u32,
  running: u32,
  waiting: u32,
  kvUsage: f32,
  ageMs: u32,
  flags: u32,
  ttftMs: f32,
  ttftRequests: u32,
): bool {
  if (!reserve(SECTION_METRICS, METRICS_BYTES, 0)) return false;
  store<u32>(record, podId);
  store<u32>(record, running, 4);
  store<u32>(record, waiting, 8);
  store<f32>(record, kvUsage, 12);
  store<u32>(record, ageMs, 16);
  store<u32>(record, flags, 20);
  store<f32>(record, ttftMs, 24);
  store<u32>(record, ttftRequests, 28);
  return true;
}

export function writeAlias(name: u32, group: u32): bool {
  if (!reserve(SECTION_ALIASES, ALIAS_BYTES, 0)) return false;
  store<u32>(record, name);
  store<u32>(record, group, 4);
  return true;
}

export function writeAdapter(podId: u32, hash: u32): bool {
  if (!reserve(SECTION_ADAPTERS, ADAPTER_BYTES, 0)) return false;
  store<u32>(record, podId);
  store<u32>(record, hash, 4);
  return true;
}

function countTouches(records: u32, keys: u32): void {
  const head = section + SECTION_HEADER_BYTES;
  store<u32>(head, load<u32>(head) + records);
  store<u32>(head, load<u32>(head, 4) + keys, 4);
}

/**
 * Writes a touch with room for count keys, which writeTouchKey() must then fill. With parentKey and no keys it renews
 * the chain that ends in parentKey; with TOUCH_CLEAR it forgets the pod.
 */
export function writeTouch(podId: u32, flags: u16, timeMs: f64, parentKey: u64, count: u32): bool {
  if (count > FRAME_TOUCH_KEYS_MAX) return false;
  if (!reserve(SECTION_TOUCHES, touchBytesOf(count), TOUCHES_HEADER_BYTES)) return false;
  store<u32>(record, podId);
  store<u16>(record, flags, 4);
  store<u16>(record, <u16>count, 6);
  store<f64>(record, timeMs, 8);
  store<u64>(record, parentKey, 16);
  countTouches(1, count);
  return true;
}

/** Sets key and weight number index of the touch just written. */
export function writeTouchKey(index: u32, key: u64, weightBytes: u32): void {
  if (record == 0 || sectionType != SECTION_TOUCHES || record == cursor) return;
  const count = load<u16>(record, 6) as u32;
  if (index >= count) return;
  const keys = record + TOUCH_BYTES;
  store<u64>(keys + index * 8, key);
  store<u32>(keys + count * 8 + index * 4, weightBytes);
}

/** Where the record that was written last lies, and its bytes, until the next one or frameEnd(); 0: there is none. */
export function writtenRecord(): usize {
  return record;
}
export function writtenRecordBytes(): u32 {
  return record == 0 ? 0 : <u32>(cursor - record);
}

/** Copies a touch record as touchRecord() gives it. */
export function writeTouchRecord(from: usize, bytes: u32): bool {
  if (bytes < TOUCH_BYTES) return false;
  const count = load<u16>(from, 6) as u32;
  if (count > FRAME_TOUCH_KEYS_MAX || touchBytesOf(count) != bytes) return false;
  if (!reserve(SECTION_TOUCHES, bytes, TOUCHES_HEADER_BYTES)) return false;
  memory.copy(record, from, bytes);
  countTouches(1, count);
  return true;
}

/** Copies all touch records of a checked frame at once: the region of touchesRecords() with its counts. */
export function writeTouchRecords(from: usize, bytes: u32, records: u32, keys: u32): bool {
  if ((bytes & 7) != 0 || bytes < records * TOUCH_BYTES) return false;
  if (!reserve(SECTION_TOUCHES, bytes, TOUCHES_HEADER_BYTES)) return false;
  memory.copy(record, from, bytes);
  record = cursor;
  countTouches(records, keys);
  return true;
}

/** Begins the outcomes, with the sender's own bytes per token and how many tokens of usage that rests on. */
export function writeOutcomes(bytesPerToken: f32, ratioTokens: u32): bool {
  if (!reserve(SECTION_OUTCOMES, 0, OUTCOMES_HEADER_BYTES)) return false;
  store<f32>(section, bytesPerToken, 16);
  store<u32>(section, ratioTokens, 20);
  return true;
}

function countOutcome(offset: usize): void {
  store<u32>(section + offset, load<u32>(section + offset, SECTION_HEADER_BYTES) + 1, SECTION_HEADER_BYTES);
}

/** Begins a pod's record, whose counters writeOutcomeTotal() then sets. Pods come before kinds. */
export function writeOutcome(podId: u32, resets: u32, ttftMsSum: f64): bool {
  if (sectionType == SECTION_OUTCOMES && load<u32>(section, 12) != 0) return false;
  if (!reserve(SECTION_OUTCOMES, OUTCOME_BYTES, OUTCOMES_HEADER_BYTES)) return false;
  countOutcome(0);
  store<u32>(record, podId);
  store<u32>(record, resets, 4);
  store<f64>(record, ttftMsSum, 112);
  return true;
}

/** Begins the record of one kind of requests, whose counters writeOutcomeTotal() then sets. */
export function writeOutcomeKind(api: u8, language: u8): bool {
  if (!reserve(SECTION_OUTCOMES, OUTCOME_KIND_BYTES, OUTCOMES_HEADER_BYTES)) return false;
  countOutcome(4);
  store<u8>(record, api);
  store<u8>(record, language, 1);
  return true;
}

/** Sets a counter of the record that was begun last. */
export function writeOutcomeTotal(counter: u32, total: u64): void {
  if (record == 0 || sectionType != SECTION_OUTCOMES || record == cursor) return;
  if (counter >= (load<u32>(section, 12) != 0 ? OUTCOME_KIND_COUNTERS : OUTCOME_COUNTERS)) return;
  store<u64>(record + 8 + counter * 8, total);
}

/** The name is copied; it must be 1 to FRAME_NAME_BYTES_MAX bytes of visible ASCII. */
export function writeGateway(incarnation: u64, touchesNext: u64, workers: u32, name: usize, nameBytes: u32): bool {
  if (nameBytes == 0 || nameBytes > FRAME_NAME_BYTES_MAX) return false;
  if (!reserveSingle(SECTION_GATEWAY, GATEWAY_BYTES + ((nameBytes + 7) & ~7))) return false;
  store<u64>(record, incarnation);
  store<u64>(record, touchesNext, 8);
  store<u32>(record, workers, 16);
  store<u32>(record, nameBytes, 20);
  memory.copy(record + GATEWAY_BYTES, name, nameBytes);
  return true;
}
