// Validation of a frame: everything that is later read is proved here, once, so that reading cannot fail.
import { FRAME_BYTES_MAX, FRAME_KEY_NAME_BYTES_MAX, FRAME_NAME_BYTES_MAX, FRAME_TOUCH_KEYS_MAX } from './limits';
import {
  FRAME_MAGIC,
  FRAME_VERSION,
  FRAME_HEADER_BYTES,
  SECTION_HEADER_BYTES,
  KIND_REPORT,
  KIND_SEGMENT,
  FLAGS_KNOWN,
  SECTION_POOL,
  SECTION_SECRET,
  SECTION_ENDPOINTS,
  SECTION_LOAD,
  SECTION_TOUCHES,
  SECTION_OUTCOMES,
  SECTION_GATEWAY,
  SECTION_ADAPTERS,
  SECTION_ALIASES,
  SECTIONS,
  POOL_BYTES,
  POOL_KEY_BYTES,
  KEY_SOURCE_COOKIE,
  SECRET_BYTES,
  ENDPOINT_BYTES,
  LOAD_BYTES,
  METRICS_BYTES,
  TOUCHES_HEADER_BYTES,
  TOUCH_BYTES,
  OUTCOMES_HEADER_BYTES,
  OUTCOME_BYTES,
  OUTCOME_KIND_BYTES,
  KIND_APIS,
  LANGUAGES,
  GATEWAY_BYTES,
  ADAPTER_BYTES,
  ALIAS_BYTES,
  TOUCH_CLEAR,
  FRAME_OK,
  FRAME_ERROR_SHORT,
  FRAME_ERROR_MAGIC,
  FRAME_ERROR_VERSION,
  FRAME_ERROR_KIND,
  FRAME_ERROR_LENGTH,
  FRAME_ERROR_CHECK,
  FRAME_ERROR_FLAGS,
  FRAME_ERROR_SECTION,
  FRAME_ERROR_SECTION_LENGTH,
  FRAME_ERROR_COUNT,
  FRAME_ERROR_VALUE,
  FRAME_ERROR_NOT_ALLOWED,
  FRAME_ERROR_NO_GATEWAY,
} from './frame-layout';

// Which sections may stand in which kind: bit t for section type t.
const ALLOWED_REPORT: u32 = 0b111011000; // endpoints, load, touches, outcomes, gateway
const ALLOWED_DELTA: u32 = 0b11101111110; // pool, secret, endpoints, load, metrics, touches, gateway, adapters, aliases
const ALLOWED_SEGMENT: u32 = 0b11111111110; // workers of one gateway share everything

// The frame that was checked last: its base, and the payload address and record count of each section (0 = absent).
// frame-read.ts reads these; walk is the position among the touches: the next record and the current one.
export let frameBase: usize = 0;
export const payloads = new StaticArray<usize>(SECTIONS + 1);
export const counts = new StaticArray<u32>(SECTIONS + 1);
export const walk = new StaticArray<usize>(2);

/** Name hash of a pool: FNV-1a over its bytes, 64 bits; 0 is replaced by 1, for 0 means no pool. */
export function framePoolHashOf(name: usize, nameBytes: u32): u64 {
  let hash: u64 = 0xcbf29ce484222325;
  for (let i: u32 = 0; i < nameBytes; i++) {
    hash = (hash ^ (load<u8>(name + i) as u64)) * 0x100000001b3;
  }
  return hash == 0 ? 1 : hash;
}

const P1: u64 = 0x9e3779b185ebca87;
const P2: u64 = 0xc2b2ae3d27d4eb4f;
const P3: u64 = 0x165667b19e3779f9;
const P4: u64 = 0x85ebca77c2b2ae63;
const P5: u64 = 0x27d4eb2f165667c5;

function lane(accumulator: u64, word: u64): u64 {
  return rotl<u64>(accumulator + word * P2, 31) * P1;
}

/**
 * The check: the low half of XXH64 over everything after the check field, seeded with the first 8 bytes (magic, version
 * and kind); the length is part of XXH64. It finds torn writes, truncation, flipped bits and frames pasted together
 * wrongly. It does not protect against a sender who wants to lie: that is the work of the token and of mesh identity.
 */
export function frameCheckOf(frame: usize, bytes: u32): u32 {
  const length: u32 = bytes - 16;
  const end = frame + bytes;
  const seed = load<u64>(frame);
  let at = frame + 16;
  let hash: u64;
  if (length >= 32) {
    let a = seed + P1 + P2;
    let b = seed + P2;
    let c = seed;
    let d = seed - P1;
    for (const last = end - 32; at <= last; at += 32) {
      a = lane(a, load<u64>(at));
      b = lane(b, load<u64>(at, 8));
      c = lane(c, load<u64>(at, 16));
      d = lane(d, load<u64>(at, 24));
    }
    hash = rotl<u64>(a, 1) + rotl<u64>(b, 7) + rotl<u64>(c, 12) + rotl<u64>(d, 18);
    hash = (hash ^ lane(0, a)) * P1 + P4;
    hash = (hash ^ lane(0, b)) * P1 + P4;
    hash = (hash ^ lane(0, c)) * P1 + P4;
    hash = (hash ^ lane(0, d)) * P1 + P4;
  } else {
    hash = seed + P5;
  }
  hash += length as u64;
  for (; at < end; at += 8) {
    hash = rotl<u64>(hash ^ lane(0, load<u64>(at)), 27) * P1 + P4;
  }
  hash = (hash ^ (hash >> 33)) * P2;
  hash = (hash ^ (hash >> 29)) * P3;
  return (hash ^ (hash >> 32)) as u32;
}

// A number that is neither NaN, infinite nor below zero; every float on the wire must be one.
function sound32(value: f32): bool {
  return value >= 0 && value - value == 0;
}

function sound64(value: f64): bool {
  return value >= 0 && value - value == 0;
}

/** A name in visible ASCII, filled up with zeros: it ends up in logs, labels and header look-ups. */
function soundName(name: usize, nameBytes: u32, padded: u32): bool {
  for (let i: u32 = 0; i < padded; i++) {
    const char = load<u8>(name + i);
    if (i < nameBytes ? char < 0x21 || char > 0x7e : char != 0) return false;
  }
  return true;
}

/** Where a policy's key comes from: source, three zero bytes, u32 bytes of the name, the name. */
function checkPoolKey(at: usize, bytes: u32): u32 {
  if (bytes < POOL_KEY_BYTES) return FRAME_ERROR_COUNT;
  const source = load<u32>(at);
  const nameBytes = load<u32>(at, 4);
  if (source == 0 || source > KEY_SOURCE_COOKIE) return FRAME_ERROR_VALUE;
  if (nameBytes == 0 || nameBytes > FRAME_KEY_NAME_BYTES_MAX) return FRAME_ERROR_VALUE;
  const padded = (nameBytes + 7) & ~7;
  if (bytes != POOL_KEY_BYTES + padded) return FRAME_ERROR_COUNT;
  return soundName(at + POOL_KEY_BYTES, nameBytes, padded) ? FRAME_OK : FRAME_ERROR_VALUE;
}

function checkPool(at: usize, bytes: u32): u32 {
  if (bytes < POOL_BYTES) return FRAME_ERROR_COUNT;
  const blockBytes = load<u32>(at, 4);
  const syncIntervalMs = load<u32>(at, 12);
  if (load<u8>(at) > 2 || load<u8>(at, 2) > 2 || load<u8>(at, 3) != 0) return FRAME_ERROR_VALUE;
  if (blockBytes < 16 || blockBytes > 65536 || syncIntervalMs == 0 || syncIntervalMs > 60000) return FRAME_ERROR_VALUE;
  for (let offset: usize = 16; offset < 32; offset += 4) {
    if (!sound32(load<f32>(at + offset))) return FRAME_ERROR_VALUE;
  }
  if (bytes > POOL_BYTES) {
    const code = checkPoolKey(at + POOL_BYTES, bytes - POOL_BYTES);
    if (code != FRAME_OK) return code;
  }
  counts[SECTION_POOL] = 1;
  return FRAME_OK;
}

function checkRecord(type: u16, at: usize): bool {
  if (load<u32>(at) == 0) return false;
  if (type == SECTION_ENDPOINTS) {
    return load<u16>(at, 4) != 0 && load<u16>(at, 6) <= 3 && sound32(load<f32>(at, 24)) && sound64(load<f64>(at, 32));
  }
  if (type == SECTION_LOAD) return sound32(load<f32>(at, 20));
  if (type == SECTION_ADAPTERS || type == SECTION_ALIASES) return load<u32>(at, 4) != 0;
  return sound32(load<f32>(at, 12)) && load<u32>(at, 20) <= 15 && sound32(load<f32>(at, 24)); // metrics
}

function recordBytesOf(type: u16): u32 {
  if (type == SECTION_ENDPOINTS) return ENDPOINT_BYTES;
  if (type == SECTION_ADAPTERS) return ADAPTER_BYTES;
  if (type == SECTION_ALIASES) return ALIAS_BYTES;
  return type == SECTION_LOAD ? LOAD_BYTES : METRICS_BYTES;
}

function checkRecords(type: u16, at: usize, bytes: u32): u32 {
  const size = recordBytesOf(type);
  const count = bytes / size;
  if (count * size != bytes) return FRAME_ERROR_COUNT;
  for (let i: u32 = 0; i < count; i++) {
    if (!checkRecord(type, at + i * size)) return FRAME_ERROR_VALUE;
  }
  counts[type] = count;
  return FRAME_OK;
}

/** Bytes of a touch record with so many keys: 24, then the keys, then their weights, then zeros up to 8. */
export function touchBytesOf(count: u32): u32 {
  return TOUCH_BYTES + count * 8 + ((count * 4 + 7) & ~7);
}

function checkTouch(at: usize, count: u32): bool {
  const flags = load<u16>(at, 4);
  if (load<u32>(at) == 0 || flags > 1 || !sound64(load<f64>(at, 8))) return false;
  if (flags == TOUCH_CLEAR) return count == 0 && load<u64>(at, 16) == 0;
  if (count == 0) return load<u64>(at, 16) != 0;
  const keys = at + TOUCH_BYTES;
  for (let i: u32 = 0; i < count; i++) {
    if (load<u64>(keys + i * 8) == 0) return false;
  }
  return (count & 1) == 0 || load<u32>(keys + count * 12) == 0;
}

function checkTouches(at: usize, bytes: u32): u32 {
  if (bytes < TOUCHES_HEADER_BYTES) return FRAME_ERROR_COUNT;
  const records = load<u32>(at);
  let keys: u32 = 0;
  let found: u32 = 0;
  let cursor = at + TOUCHES_HEADER_BYTES;
  const end = at + bytes;
  // Each turn advances by at least one record header, so the bytes of the section bound the loop.
  while (cursor < end) {
    if (end - cursor < TOUCH_BYTES) return FRAME_ERROR_COUNT;
    const count = load<u16>(cursor, 6) as u32;
    if (count > FRAME_TOUCH_KEYS_MAX) return FRAME_ERROR_COUNT;
    const size = touchBytesOf(count);
    if (end - cursor < size) return FRAME_ERROR_COUNT;
    if (!checkTouch(cursor, count)) return FRAME_ERROR_VALUE;
    cursor += size;
    keys += count;
    found++;
  }
  if (found != records || keys != load<u32>(at, 4)) return FRAME_ERROR_COUNT;
  counts[SECTION_TOUCHES] = records;
  return FRAME_OK;
}

function checkOutcomes(at: usize, bytes: u32): u32 {
  if (bytes < OUTCOMES_HEADER_BYTES) return FRAME_ERROR_COUNT;
  const pods = load<u32>(at);
  const kinds = load<u32>(at, 4);
  const wanted = OUTCOMES_HEADER_BYTES + <u64>pods * OUTCOME_BYTES + <u64>kinds * OUTCOME_KIND_BYTES;
  if (<u64>bytes != wanted) return FRAME_ERROR_COUNT;
  if (!sound32(load<f32>(at, 8))) return FRAME_ERROR_VALUE;
  let record = at + OUTCOMES_HEADER_BYTES;
  for (let i: u32 = 0; i < pods; i++) {
    if (load<u32>(record) == 0 || !sound64(load<f64>(record, 112))) return FRAME_ERROR_VALUE;
    record += OUTCOME_BYTES;
  }
  for (let i: u32 = 0; i < kinds; i++) {
    if (load<u8>(record) >= <u8>KIND_APIS || load<u8>(record, 1) >= <u8>LANGUAGES) return FRAME_ERROR_VALUE;
    if (load<u16>(record, 2) != 0 || load<u32>(record, 4) != 0) return FRAME_ERROR_VALUE;
    record += OUTCOME_KIND_BYTES;
  }
  counts[SECTION_OUTCOMES] = pods;
  return FRAME_OK;
}

function checkGateway(at: usize, bytes: u32): u32 {
  if (bytes < GATEWAY_BYTES) return FRAME_ERROR_COUNT;
  const nameBytes = load<u32>(at, 20);
  if (nameBytes == 0 || nameBytes > FRAME_NAME_BYTES_MAX) return FRAME_ERROR_VALUE;
  const padded = (nameBytes + 7) & ~7;
  if (bytes != GATEWAY_BYTES + padded) return FRAME_ERROR_COUNT;
  if (!soundName(at + GATEWAY_BYTES, nameBytes, padded)) return FRAME_ERROR_VALUE;
  counts[SECTION_GATEWAY] = 1;
  return FRAME_OK;
}

function checkSection(type: u16, at: usize, bytes: u32): u32 {
  payloads[type] = at;
  if (type == SECTION_POOL) return checkPool(at, bytes);
  if (type == SECTION_GATEWAY) return checkGateway(at, bytes);
  if (type == SECTION_TOUCHES) return checkTouches(at, bytes);
  if (type == SECTION_OUTCOMES) return checkOutcomes(at, bytes);
  if (type == SECTION_SECRET) {
    counts[SECTION_SECRET] = 1;
    return bytes == SECRET_BYTES ? FRAME_OK : FRAME_ERROR_COUNT;
  }
  return checkRecords(type, at, bytes);
}

function allowedIn(kind: u16): u32 {
  if (kind == KIND_REPORT) return ALLOWED_REPORT;
  return kind == KIND_SEGMENT ? ALLOWED_SEGMENT : ALLOWED_DELTA;
}

function checkSections(frame: usize, bytes: u32, allowed: u32): u32 {
  let at = frame + FRAME_HEADER_BYTES;
  const end = frame + bytes;
  let last: u16 = 0;
  // Types ascend, so there are at most SECTIONS turns.
  while (at < end) {
    const type = load<u16>(at);
    const length = load<u32>(at, 4);
    if (type <= last || type > SECTIONS || load<u16>(at, 2) != 0) return FRAME_ERROR_SECTION;
    if (((allowed >> type) & 1) == 0) return FRAME_ERROR_NOT_ALLOWED;
    at += SECTION_HEADER_BYTES;
    if ((length & 7) != 0 || length > <u32>(end - at)) return FRAME_ERROR_SECTION_LENGTH;
    const code = checkSection(type, at, length);
    if (code != FRAME_OK) return code;
    at += length;
    last = type;
  }
  return FRAME_OK;
}

/** Drops the current frame; every accessor reads zero until the next frameCheck(). */
export function frameForget(): void {
  frameBase = 0;
  walk[0] = 0;
  walk[1] = 0;
  for (let type: u32 = 0; type <= SECTIONS; type++) {
    payloads[type] = 0;
    counts[type] = 0;
  }
}

function checkAll(frame: usize, available: u32): u32 {
  if (available < FRAME_HEADER_BYTES) return FRAME_ERROR_SHORT;
  if (load<u32>(frame) != FRAME_MAGIC) return FRAME_ERROR_MAGIC;
  if (load<u16>(frame, 4) != FRAME_VERSION) return FRAME_ERROR_VERSION;
  const kind = load<u16>(frame, 6);
  if (kind < KIND_REPORT || kind > KIND_SEGMENT) return FRAME_ERROR_KIND;
  const bytes = load<u32>(frame, 8);
  if (bytes < FRAME_HEADER_BYTES || bytes > available || bytes > FRAME_BYTES_MAX || (bytes & 7) != 0) {
    return FRAME_ERROR_LENGTH;
  }
  if (load<u32>(frame, 12) != frameCheckOf(frame, bytes)) return FRAME_ERROR_CHECK;
  if ((load<u32>(frame, 44) & ~FLAGS_KNOWN) != 0) return FRAME_ERROR_FLAGS;
  const code = checkSections(frame, bytes, allowedIn(kind));
  if (code != FRAME_OK) return code;
  return kind == KIND_REPORT && counts[SECTION_GATEWAY] == 0 ? FRAME_ERROR_NO_GATEWAY : FRAME_OK;
}

/**
 * Validates the frame at the start of a region; what follows the frame is not looked at, so that a body may carry
 * several, each frameBytes() long. On any answer but FRAME_OK there is no current frame and every accessor reads zero.
 * The region must stay as it is while the accessors are used.
 */
export function frameCheck(frame: usize, available: u32): u32 {
  frameForget();
  const code = checkAll(frame, available);
  if (code == FRAME_OK) frameBase = frame;
  else frameForget();
  return code;
}
