// Reads a request body as it passes: a byte machine over JSON that keeps its state from chunk to chunk, wherever the body is cut.
//
// It builds no tree and copies nothing but text that is cut by escapes or chunks. Structure is read byte by byte; strings, which
// are nearly all of a body, 16 bytes at a time. It checks JSON as engines do, so a body that an engine would refuse yields no keys. What the
// bytes mean is shape.ts's business, what becomes of text text.ts's.
import { DEPTH_MAX, KEY_BLOCK_BYTES_DEFAULT, KEY_BLOCK_BYTES_MAX, KEY_BLOCK_BYTES_MIN, POOLS_MAX } from './limits';
import {
  fail,
  STATE_AFTER,
  STATE_AFTER_HIGH,
  STATE_BOM_2,
  STATE_BOM_3,
  STATE_COLON,
  STATE_ESCAPE,
  STATE_FIRST_ELEMENT,
  STATE_FIRST_KEY,
  STATE_KEY,
  STATE_LITERAL,
  STATE_NUMBER,
  STATE_START,
  STATE_STRING,
  STATE_UNICODE,
  STATE_VALUE,
} from './machine';
import { REASON_NONE, REASON_NOT_JSON, REASON_NO_PROMPT, REASON_TOO_DEEP, REASON_TRUNCATED } from './reasons';
import {
  AT_DEPTH,
  AT_IN_KEY,
  AT_LITERAL,
  AT_LITERAL_AT,
  AT_MODEL,
  AT_MODEL_BYTES,
  AT_NUMBER,
  AT_NUMBER_VALUE,
  AT_PROMPT_BYTES,
  AT_REASON,
  AT_SINK,
  AT_STACK,
  AT_STATE,
  AT_STREAM,
  recordClose,
  recordOf,
  recordOpen,
  recordsInit,
} from './record';
import { close, comma, keyStart, literalEnd, numberEnd, numberStart, open, SINK_TEXT, stringStart } from './shape';
import { escapeByte, stringBytes } from './strings';
import { runByte } from './text';

export { API_CHAT, API_COMPLETIONS, API_MESSAGES, API_NONE, API_OTHER, API_RESPONSES, apiOfPath } from './names';

const TRUE: u64 = 0x65757274;
const FALSE: u64 = 0x65736c6166;
const NULL: u64 = 0x6c6c756e;

// 256 entries: the class of a number's byte.
const numberClasses: usize = memory.data(256);
// The grammar of numbers: next state by state and class; 255 is no transition.
//   states   0 start  1 after minus  2 zero  3 integer  4 after point  5 fraction  6 after e  7 after e sign  8 exponent
//   classes  0 other  1 zero  2 one to nine  3 minus  4 plus  5 point  6 e
const NUMBER_NONE: u32 = 255;
const numberNext: usize = memory.data<u8>([
  255, 2, 3, 1, 255, 255, 255, 255, 255, 2, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 4, 6, 255, 255, 3, 3,
  255, 255, 4, 6, 255, 255, 5, 5, 255, 255, 255, 255, 255, 255, 5, 5, 255, 255, 255, 6, 255, 255, 8, 8, 7, 7, 255, 255,
  255, 255, 8, 8, 255, 255, 255, 255, 255, 255, 8, 8, 255, 255, 255, 255, 255,
]);
// States 2, 3, 5 and 8 may end a number.
const NUMBER_ENDS: u32 = 0x12c;

store<u8>(numberClasses + 0x30, 1);
for (let i: u32 = 1; i < 10; i++) store<u8>(numberClasses + 0x30 + i, 2);
store<u8>(numberClasses + 0x2d, 3);
store<u8>(numberClasses + 0x2b, 4);
store<u8>(numberClasses + 0x2e, 5);
store<u8>(numberClasses + 0x45, 6);
store<u8>(numberClasses + 0x65, 6);

const blockBytesOf: StaticArray<u32> = new StaticArray<u32>(POOLS_MAX);
const windowBytesOf: StaticArray<u32> = new StaticArray<u32>(POOLS_MAX);

/** Reserves the reader's tables: `streams` requests at once, and pages of 64 words for what they find. The first call counts. */
export function scanInit(streams: u32, digestPages: u32): void {
  recordsInit(streams, digestPages);
}

/** Sets a pool's block size (64 to 4096, a multiple of 64; 0 or anything else is the default) and window in bytes (0: the whole prompt). */
export function scanPoolSet(pool: u32, blockBytes: u32, windowBytes: u32): void {
  if (pool >= POOLS_MAX) return;
  const isGood = blockBytes >= KEY_BLOCK_BYTES_MIN && blockBytes <= KEY_BLOCK_BYTES_MAX && (blockBytes & 63) == 0;
  blockBytesOf[pool] = isGood ? blockBytes : KEY_BLOCK_BYTES_DEFAULT;
  windowBytesOf[pool] = windowBytes;
}

export function scanWindowBytes(pool: u32): u32 {
  return pool < POOLS_MAX ? windowBytesOf[pool] : 0;
}

/** Begins to read a request of a pool. Returns its slot, or -1 when all are taken. */
export function scanOpen(pool: u32, api: u32): i32 {
  if (pool >= POOLS_MAX) return -1;
  const blockBytes = blockBytesOf[pool];
  return recordOpen(pool, api, blockBytes == 0 ? KEY_BLOCK_BYTES_DEFAULT : blockBytes);
}

export function scanClose(slot: i32): void {
  recordClose(slot);
}

/** Whether the body asks for a streamed answer. */
export function scanStream(slot: i32): bool {
  const rec = recordOf(slot);
  return rec != 0 && load<u32>(rec, AT_STREAM) != 0;
}

/** Bytes of prompt text, tools included. */
export function scanPromptBytes(slot: i32): u32 {
  const rec = recordOf(slot);
  return rec == 0 ? 0 : load<u32>(rec, AT_PROMPT_BYTES);
}

/** The model's name, up to MODEL_BYTES_MAX of it; empty when there is none or it is 256 bytes or longer. */
export function scanModelPtr(slot: i32): usize {
  const rec = recordOf(slot);
  return rec == 0 ? 0 : rec + AT_MODEL;
}

export function scanModelBytes(slot: i32): u32 {
  const rec = recordOf(slot);
  return rec == 0 ? 0 : load<u32>(rec, AT_MODEL_BYTES);
}

/** Ends the reading. Returns REASON_NONE when the body was good, else why it is not read. */
export function scanEnd(slot: i32): u32 {
  const rec = recordOf(slot);
  if (rec == 0) return REASON_NO_PROMPT;
  const reason = load<u32>(rec, AT_REASON);
  if (reason != REASON_NONE) return reason;
  const state = load<u32>(rec, AT_STATE);
  const isNumber = state == STATE_NUMBER && (NUMBER_ENDS >> load<u32>(rec, AT_NUMBER)) & 1;
  if (load<u32>(rec, AT_DEPTH) != 0 || (state != STATE_AFTER && !isNumber)) return REASON_TRUNCATED;
  return load<u32>(rec, AT_PROMPT_BYTES) == 0 ? REASON_NO_PROMPT : REASON_NONE;
}

/** Reads the next `length` bytes of the body. */
export function scanFeed(slot: i32, ptr: usize, length: u32): void {
  const rec = recordOf(slot);
  if (rec == 0) return;
  const end = ptr + length;
  let p = ptr;
  let state = load<u32>(rec, AT_STATE);
  while (p < end && load<u32>(rec, AT_REASON) == REASON_NONE) {
    switch (state) {
      case STATE_STRING:
        p = stringBytes(rec, p, end);
        state = load<u32>(rec, AT_STATE);
        break;
      case STATE_ESCAPE:
      case STATE_UNICODE:
      case STATE_AFTER_HIGH:
        p += escapeByte(rec, state, load<u8>(p));
        state = load<u32>(rec, AT_STATE);
        break;
      case STATE_NUMBER:
        p = numberBytes(rec, p, end);
        state = load<u32>(rec, AT_STATE);
        break;
      case STATE_LITERAL:
        state = literalByte(rec, load<u8>(p));
        p++;
        break;
      default: {
        const c = load<u8>(p);
        if (c != 0x20 && c != 0x0a && c != 0x0d && c != 0x09) state = structureByte(rec, state, c);
        else if (state == STATE_START) state = STATE_VALUE;
        else if (state < STATE_VALUE) fail(rec, REASON_NOT_JSON);
        // A number's first byte is read again by the number's grammar.
        if (state != STATE_NUMBER) p++;
        break;
      }
    }
  }
  store<u32>(rec, state, AT_STATE);
}

/** One byte of structure. Returns the next state. */
function structureByte(rec: usize, state: u32, c: u32): u32 {
  switch (state) {
    case STATE_START:
      if (c == 0xef) return STATE_BOM_2;
      return valueByte(rec, c);
    case STATE_BOM_2:
      if (c == 0xbb) return STATE_BOM_3;
      break;
    case STATE_BOM_3:
      if (c == 0xbf) return STATE_VALUE;
      break;
    case STATE_FIRST_ELEMENT:
      if (c == 0x5d) return leave(rec, false);
      return valueByte(rec, c);
    case STATE_VALUE:
      return valueByte(rec, c);
    case STATE_FIRST_KEY:
      if (c == 0x7d) return leave(rec, true);
      return keyByte(rec, c);
    case STATE_KEY:
      return keyByte(rec, c);
    case STATE_COLON:
      if (c == 0x3a) return STATE_VALUE;
      break;
    case STATE_AFTER: {
      if (load<u32>(rec, AT_DEPTH) == 0) break;
      const isObject = (load<u64>(rec, AT_STACK) & 1) != 0;
      if (c == 0x2c) {
        if (isObject) return STATE_KEY;
        comma(rec);
        return STATE_VALUE;
      }
      if (c == <u32>(isObject ? 0x7d : 0x5d)) return leave(rec, isObject);
      break;
    }
    default:
      break;
  }
  fail(rec, REASON_NOT_JSON);
  return state;
}

function keyByte(rec: usize, c: u32): u32 {
  if (c != 0x22) {
    fail(rec, REASON_NOT_JSON);
    return STATE_KEY;
  }
  store<u32>(rec, 1, AT_IN_KEY);
  store<u32>(rec, keyStart(rec), AT_SINK);
  return STATE_STRING;
}

/** The first byte of a value. */
function valueByte(rec: usize, c: u32): u32 {
  switch (c) {
    case 0x22:
      store<u32>(rec, 0, AT_IN_KEY);
      store<u32>(rec, stringStart(rec), AT_SINK);
      return STATE_STRING;
    case 0x7b:
      return enter(rec, true);
    case 0x5b:
      return enter(rec, false);
    case 0x74:
      return literalStart(rec, TRUE);
    case 0x66:
      return literalStart(rec, FALSE);
    case 0x6e:
      return literalStart(rec, NULL);
    default:
      if (load<u8>(numberClasses + c) == 0) {
        fail(rec, REASON_NOT_JSON);
        return STATE_VALUE;
      }
      store<u32>(rec, 0, AT_NUMBER);
      store<u32>(rec, numberStart(rec), AT_SINK);
      return STATE_NUMBER;
  }
}

function enter(rec: usize, isObject: bool): u32 {
  const depth = load<u32>(rec, AT_DEPTH);
  if (depth >= DEPTH_MAX) {
    fail(rec, REASON_TOO_DEEP);
    return STATE_VALUE;
  }
  open(rec, isObject);
  store<u32>(rec, depth + 1, AT_DEPTH);
  store<u64>(rec, (load<u64>(rec, AT_STACK) << 1) | (isObject ? 1 : 0), AT_STACK);
  return isObject ? STATE_FIRST_KEY : STATE_FIRST_ELEMENT;
}

function leave(rec: usize, isObject: bool): u32 {
  store<u32>(rec, load<u32>(rec, AT_DEPTH) - 1, AT_DEPTH);
  store<u64>(rec, load<u64>(rec, AT_STACK) >> 1, AT_STACK);
  close(rec, isObject);
  return STATE_AFTER;
}

function literalStart(rec: usize, text: u64): u32 {
  store<u32>(rec, text == TRUE ? 0 : text == FALSE ? 1 : 2, AT_LITERAL);
  store<u32>(rec, 8, AT_LITERAL_AT);
  return STATE_LITERAL;
}

/** One letter of true, false or null after its first. */
function literalByte(rec: usize, c: u32): u32 {
  const which = load<u32>(rec, AT_LITERAL);
  const text = which == 0 ? TRUE : which == 1 ? FALSE : NULL;
  const at = load<u32>(rec, AT_LITERAL_AT);
  if (((text >> at) & 255) != c) {
    fail(rec, REASON_NOT_JSON);
    return STATE_LITERAL;
  }
  store<u32>(rec, at + 8, AT_LITERAL_AT);
  if (text >> (at + 8)) return STATE_LITERAL;
  literalEnd(rec, text);
  return STATE_AFTER;
}

/** Bytes of a number. Returns where it stopped; the byte that ends a number is not consumed. */
function numberBytes(rec: usize, from: usize, end: usize): usize {
  const sink = load<u32>(rec, AT_SINK);
  let state = load<u32>(rec, AT_NUMBER);
  let id = load<u32>(rec, AT_NUMBER_VALUE);
  let p = from;
  while (p < end) {
    const c = <u32>load<u8>(p);
    const next = <u32>load<u8>(numberNext + state * 8 + load<u8>(numberClasses + c));
    if (next == NUMBER_NONE) {
      if (load<u8>(numberClasses + c) != 0 || !((NUMBER_ENDS >> state) & 1)) fail(rec, REASON_NOT_JSON);
      store<u32>(rec, id, AT_NUMBER_VALUE);
      numberEnd(rec, sink);
      store<u32>(rec, STATE_AFTER, AT_STATE);
      return p;
    }
    state = next;
    if (sink == SINK_TEXT) runByte(rec, c);
    id = id * 10 + (c - 0x30);
    p++;
  }
  store<u32>(rec, state, AT_NUMBER);
  store<u32>(rec, id, AT_NUMBER_VALUE);
  store<u32>(rec, STATE_NUMBER, AT_STATE);
  return p;
}
