// What the bytes of a body mean: which strings are prompt text, to which run of which message they belong, and what is skipped.
//
// The scanner (scan.ts) reads JSON and calls these functions where a key, string, scalar, object or array begins or ends. A place says
// where in a request the scanner stands; subtrees without meaning are skipped, and subtrees that are rendered as JSON (tools, tool calls,
// parts that are not text) are digested as minified structure: strings between the bytes FF and FE, which UTF-8 never
// has, and no white space. docs/KEYS.md says the same in tables.
import {
  capture,
  CAPTURE_BYTES,
  captured,
  fieldOpen,
  flatClose,
  isPlainItem,
  messageClose,
  messageOpen,
  nameClose,
  promptClose,
  promptOpen,
  roleCode,
  systemClose,
  systemOpen,
} from './message';
import {
  API_MESSAGES,
  isMediaKey,
  isSkippedInEntry,
  isTextType,
  KEY_GENERIC,
  KEY_INPUT,
  KEY_MEDIA,
  KEY_MESSAGES,
  KEY_MODEL,
  KEY_NAME,
  KEY_NONE,
  KEY_PART_TYPE,
  KEY_PROMPT,
  KEY_ROLE,
  KEY_SALT,
  KEY_SKIPPED,
  KEY_STREAM,
  KEY_SYSTEM,
  KEY_TEXT,
  KEY_TOOLS,
  KEY_TYPE,
  KIND_CALLS,
  KIND_CONTENT,
  KIND_NAME,
  KIND_PROMPT_IDS,
  KIND_PROMPT_TEXT,
  KIND_REASONING,
  KIND_TOOLS,
  kindOfKey,
  messageKey,
  partKey,
  ROLE_USER,
  topKey,
} from './names';
import {
  AT_API,
  AT_CAPTURE,
  AT_CAPTURE_BYTES,
  AT_DEPTH,
  AT_FLAT_IDS,
  AT_ITEM_TYPE,
  AT_KEY,
  AT_LAST_DIGEST,
  AT_NUMBER_VALUE,
  AT_PART_MARKED,
  AT_PART_TYPE,
  AT_PART_TYPE_BYTES,
  AT_PARTS_PLACE,
  AT_PLACE,
  AT_PROMPT_BYTES,
  AT_RAW_DEPTH,
  AT_RAW_PLACE,
  AT_ROLE,
  AT_RUN_KIND,
  AT_SEEN_MESSAGE,
  AT_SEEN_PART,
  AT_SEEN_TOP,
  AT_SKIP_DEPTH,
  AT_SKIP_PLACE,
  AT_STACK,
  AT_STREAM,
  AT_TOOLS_BYTES,
  AT_TOOLS_DIGEST,
} from './record';
import { mediaEnd, mediaStart, runByte, runBytes, runClose, runCloseWhole, runOpenWhole } from './text';

// Where the bytes of a string or number go.
export const SINK_NONE: u32 = 0;
export const SINK_TEXT: u32 = 1;
export const SINK_CAPTURE: u32 = 2;
export const SINK_PROBE: u32 = 3;
export const SINK_ID: u32 = 4;
// A key inside a part's structure: text, and captured.
export const SINK_KEY: u32 = 5;
// The beginning of a string that may be media: text that is looked at.
export const SINK_MEDIA: u32 = 6;

const PLACE_OUTSIDE: u32 = 0;
const PLACE_TOP: u32 = 1;
const PLACE_MESSAGES: u32 = 2;
const PLACE_MESSAGE: u32 = 3;
const PLACE_PARTS: u32 = 4;
const PLACE_PART: u32 = 5;
const PLACE_PROMPTS: u32 = 6;
const PLACE_IDS: u32 = 7;
const PLACE_SKIP: u32 = 8;
const PLACE_RAW: u32 = 9;

const STRING_BEGIN: u32 = 0xff;
const STRING_END: u32 = 0xfe;

/** Marks a key that bears on the prompt; false when it was there before, since then which one counts differs between parsers. */
function firstTime(rec: usize, at: usize, key: u32): bool {
  const seen = load<u32>(rec + at);
  const bit = (<u32>1) << key;
  store<u32>(rec + at, seen | bit);
  return (seen & bit) == 0;
}

export function keyStart(rec: usize): u32 {
  const place = load<u32>(rec, AT_PLACE);
  if (place == PLACE_SKIP) return SINK_NONE;
  if (place != PLACE_RAW) return capture(rec);
  const kind = load<u32>(rec, AT_RUN_KIND);
  if (kind == KIND_CONTENT || kind == KIND_REASONING) {
    runByte(rec, STRING_BEGIN);
    capture(rec);
    return SINK_KEY;
  }
  const isEntry = load<u32>(rec, AT_DEPTH) == load<u32>(rec, AT_RAW_DEPTH) + 2 && (load<u64>(rec, AT_STACK) & 2) == 0;
  if (isEntry) return capture(rec);
  runByte(rec, STRING_BEGIN);
  return SINK_TEXT;
}

/** Ends a key; false when it stands twice. */
export function keyEnd(rec: usize, sink: u32): bool {
  const name = rec + AT_CAPTURE;
  const bytes = load<u32>(rec, AT_CAPTURE_BYTES);
  let key = KEY_NONE;
  let isFirst = true;
  switch (load<u32>(rec, AT_PLACE)) {
    case PLACE_TOP:
      key = topKey(load<u32>(rec, AT_API), name, bytes);
      if (key != KEY_NONE && key != KEY_STREAM) isFirst = firstTime(rec, AT_SEEN_TOP, key);
      break;
    case PLACE_MESSAGE:
      key = messageKey(name, bytes);
      if (key != KEY_NONE) isFirst = firstTime(rec, AT_SEEN_MESSAGE, key);
      break;
    case PLACE_PART:
      key = partKey(name, bytes);
      if (key <= KEY_PART_TYPE) isFirst = firstTime(rec, AT_SEEN_PART, key);
      else if (key >= KEY_GENERIC) {
        store<u32>(rec, 1, AT_PART_MARKED);
        framed(rec);
      }
      break;
    case PLACE_RAW:
      if (sink == SINK_KEY && isMediaKey(name, bytes)) key = KEY_MEDIA;
      if (sink != SINK_CAPTURE) runByte(rec, STRING_END);
      else if (isSkippedInEntry(name, bytes)) key = KEY_SKIPPED;
      else framed(rec);
      break;
    default:
      break;
  }
  store<u32>(rec, key, AT_KEY);
  return isFirst;
}

/** The captured string as structure. */
function framed(rec: usize): void {
  runByte(rec, STRING_BEGIN);
  runBytes(rec, rec + AT_CAPTURE, captured(rec));
  runByte(rec, STRING_END);
}

export function stringStart(rec: usize): u32 {
  const key = load<u32>(rec, AT_KEY);
  switch (load<u32>(rec, AT_PLACE)) {
    case PLACE_TOP:
      if (key == KEY_MODEL || key == KEY_SALT) {
        runOpenWhole(rec, 0);
        return SINK_TEXT;
      }
      if (key == KEY_SYSTEM) return systemOpen(rec);
      if (key == KEY_PROMPT) return promptOpen(rec, KIND_PROMPT_TEXT);
      if (key != KEY_INPUT) return SINK_NONE;
      messageOpen(rec, ROLE_USER);
      return fieldOpen(rec, KIND_CONTENT);
    case PLACE_MESSAGE:
      if (key >= KEY_NAME) return fieldOpen(rec, kindOfKey(key));
      return key == KEY_NONE ? SINK_NONE : capture(rec);
    case PLACE_PARTS:
      return SINK_TEXT;
    case PLACE_PART:
      if (key == KEY_TEXT) {
        if (load<u32>(rec, AT_PARTS_PLACE) != PLACE_TOP || load<u32>(rec, AT_API) != API_MESSAGES) return SINK_TEXT;
        store<u32>(rec, 0, AT_CAPTURE_BYTES);
        return SINK_PROBE;
      }
      if (key == KEY_PART_TYPE) return capture(rec);
      return framedStart(rec, key);
    case PLACE_PROMPTS:
      flatClose(rec);
      return promptOpen(rec, KIND_PROMPT_TEXT);
    case PLACE_RAW:
      return framedStart(rec, key);
    default:
      return SINK_NONE;
  }
}

/** Begins a string of structure. */
function framedStart(rec: usize, key: u32): u32 {
  if (key == KEY_SKIPPED) return SINK_NONE;
  runByte(rec, STRING_BEGIN);
  if (key != KEY_MEDIA) return SINK_TEXT;
  mediaStart(rec);
  return SINK_MEDIA;
}

function framedEnd(rec: usize, key: u32): void {
  if (key == KEY_MEDIA) mediaEnd(rec);
  runByte(rec, STRING_END);
}

export function stringEnd(rec: usize, sink: u32): void {
  const key = load<u32>(rec, AT_KEY);
  store<u32>(rec, KEY_NONE, AT_KEY);
  switch (load<u32>(rec, AT_PLACE)) {
    case PLACE_TOP:
      if (key == KEY_MODEL || key == KEY_SALT) nameClose(rec, key);
      else if (key == KEY_SYSTEM) systemClose(rec);
      else if (key == KEY_PROMPT || key == KEY_INPUT) promptClose(rec);
      break;
    case PLACE_MESSAGE:
      if (key >= KEY_NAME) runClose(rec, 0);
      else if (key == KEY_ROLE) store<u64>(rec, roleCode(rec), AT_ROLE);
      else if (key == KEY_TYPE && !isPlainItem(rec)) store<u64>(rec, roleCode(rec), AT_ITEM_TYPE);
      break;
    case PLACE_PART:
      if (key == KEY_PART_TYPE) {
        memory.copy(rec + AT_PART_TYPE, rec + AT_CAPTURE, CAPTURE_BYTES);
        store<u32>(rec, load<u32>(rec, AT_CAPTURE_BYTES), AT_PART_TYPE_BYTES);
      } else if (key >= KEY_GENERIC) framedEnd(rec, key);
      else if (sink == SINK_PROBE) runBytes(rec, rec + AT_CAPTURE, load<u32>(rec, AT_CAPTURE_BYTES));
      break;
    case PLACE_PROMPTS:
      promptClose(rec);
      break;
    case PLACE_RAW:
      if (sink != SINK_NONE) framedEnd(rec, key);
      break;
    default:
      break;
  }
}

function skipEnter(rec: usize, place: u32): u32 {
  store<u32>(rec, load<u32>(rec, AT_DEPTH), AT_SKIP_DEPTH);
  store<u32>(rec, place, AT_SKIP_PLACE);
  return PLACE_SKIP;
}

function rawEnter(rec: usize, place: u32, isObject: bool): u32 {
  store<u32>(rec, load<u32>(rec, AT_DEPTH), AT_RAW_DEPTH);
  store<u32>(rec, place, AT_RAW_PLACE);
  runByte(rec, isObject ? 0x7b : 0x5b);
  return PLACE_RAW;
}

/** An object or array begins; the scanner raises the depth afterwards. */
export function open(rec: usize, isObject: bool): void {
  const place = load<u32>(rec, AT_PLACE);
  if (place == PLACE_SKIP) return;
  store<u32>(rec, openFrom(rec, place, load<u32>(rec, AT_KEY), isObject), AT_PLACE);
  store<u32>(rec, KEY_NONE, AT_KEY);
}

/** The place inside the object or array that begins at `place` as the value of `key`. */
function openFrom(rec: usize, place: u32, key: u32, isObject: bool): u32 {
  switch (place) {
    case PLACE_OUTSIDE:
      return isObject ? PLACE_TOP : skipEnter(rec, place);
    case PLACE_TOP:
      if (key == KEY_TOOLS) {
        runOpenWhole(rec, KIND_TOOLS);
        return rawEnter(rec, place, isObject);
      }
      if (isObject) return skipEnter(rec, place);
      if (key == KEY_MESSAGES || key == KEY_INPUT) return PLACE_MESSAGES;
      if (key == KEY_PROMPT) return PLACE_PROMPTS;
      if (key != KEY_SYSTEM) return skipEnter(rec, place);
      systemOpen(rec);
      store<u32>(rec, place, AT_PARTS_PLACE);
      return PLACE_PARTS;
    case PLACE_MESSAGES:
      if (!isObject) return skipEnter(rec, place);
      messageOpen(rec, 0);
      return PLACE_MESSAGE;
    case PLACE_MESSAGE: {
      if (key < KEY_NAME) return skipEnter(rec, place);
      const kind = kindOfKey(key);
      if (kind == KIND_NAME) return skipEnter(rec, place);
      fieldOpen(rec, kind);
      if (isObject || kind == KIND_CALLS) return rawEnter(rec, place, isObject);
      store<u32>(rec, place, AT_PARTS_PLACE);
      return PLACE_PARTS;
    }
    case PLACE_PARTS:
      if (!isObject) return skipEnter(rec, place);
      store<u32>(rec, 0, AT_SEEN_PART);
      store<u32>(rec, 0, AT_PART_MARKED);
      store<u32>(rec, 0, AT_PART_TYPE_BYTES);
      return PLACE_PART;
    case PLACE_PART:
      return key >= KEY_GENERIC ? rawEnter(rec, place, isObject) : skipEnter(rec, place);
    case PLACE_PROMPTS:
      flatClose(rec);
      if (isObject) return skipEnter(rec, place);
      promptOpen(rec, KIND_PROMPT_IDS);
      return PLACE_IDS;
    case PLACE_RAW:
      if (key == KEY_SKIPPED) return skipEnter(rec, place);
      runByte(rec, isObject ? 0x7b : 0x5b);
      return place;
    default:
      return skipEnter(rec, place);
  }
}

/** An object or array has ended; the scanner has lowered the depth before. */
export function close(rec: usize, isObject: bool): void {
  const place = load<u32>(rec, AT_PLACE);
  let outer = place;
  switch (place) {
    case PLACE_SKIP:
      if (load<u32>(rec, AT_DEPTH) == load<u32>(rec, AT_SKIP_DEPTH)) outer = load<u32>(rec, AT_SKIP_PLACE);
      break;
    case PLACE_RAW:
      runByte(rec, isObject ? 0x7d : 0x5d);
      if (load<u32>(rec, AT_DEPTH) == load<u32>(rec, AT_RAW_DEPTH)) outer = rawLeave(rec);
      break;
    case PLACE_TOP:
      outer = PLACE_OUTSIDE;
      break;
    case PLACE_MESSAGES:
      outer = PLACE_TOP;
      break;
    case PLACE_MESSAGE:
      messageClose(rec, 0);
      outer = PLACE_MESSAGES;
      break;
    case PLACE_PARTS:
      outer = load<u32>(rec, AT_PARTS_PLACE);
      if (outer == PLACE_TOP) systemClose(rec);
      else runClose(rec, 0);
      break;
    case PLACE_PART:
      partClose(rec);
      outer = PLACE_PARTS;
      break;
    case PLACE_PROMPTS:
      flatClose(rec);
      outer = PLACE_TOP;
      break;
    case PLACE_IDS:
      promptClose(rec);
      outer = PLACE_PROMPTS;
      break;
    default:
      break;
  }
  store<u32>(rec, outer, AT_PLACE);
  store<u32>(rec, KEY_NONE, AT_KEY);
}

function rawLeave(rec: usize): u32 {
  const place = load<u32>(rec, AT_RAW_PLACE);
  if (place == PLACE_MESSAGE) runClose(rec, 2);
  else if (place == PLACE_TOP) {
    const bytes = runCloseWhole(rec);
    if (bytes > 2) {
      store<u32>(rec, bytes, AT_TOOLS_BYTES);
      store<u64>(rec, load<u64>(rec, AT_LAST_DIGEST), AT_TOOLS_DIGEST);
      store<u32>(rec, load<u32>(rec, AT_PROMPT_BYTES) + bytes, AT_PROMPT_BYTES);
    }
  }
  return place;
}

/** Ends a content part. One that is more than text tells its type last, since `type` may stand anywhere in it. */
function partClose(rec: usize): void {
  const bytes = load<u32>(rec, AT_PART_TYPE_BYTES);
  if (load<u32>(rec, AT_PART_MARKED) == 0 && isTextType(rec + AT_PART_TYPE, bytes)) return;
  runByte(rec, STRING_END);
  runBytes(rec, rec + AT_PART_TYPE, bytes < CAPTURE_BYTES ? bytes : CAPTURE_BYTES);
  runByte(rec, STRING_END);
}

/** A comma in an array; between the members of an object none is digested, since their keys are framed. */
export function comma(rec: usize): void {
  if (load<u32>(rec, AT_PLACE) == PLACE_RAW) runByte(rec, 0x2c);
}

/** Where the bytes of a number go. */
export function numberStart(rec: usize): u32 {
  const place = load<u32>(rec, AT_PLACE);
  if (place == PLACE_PROMPTS && load<u32>(rec, AT_FLAT_IDS) == 0) {
    promptOpen(rec, KIND_PROMPT_IDS);
    store<u32>(rec, 1, AT_FLAT_IDS);
  }
  store<u32>(rec, 0, AT_NUMBER_VALUE);
  if (place == PLACE_IDS || place == PLACE_PROMPTS) return SINK_ID;
  return isScalarText(rec, place) ? SINK_TEXT : SINK_NONE;
}

export function numberEnd(rec: usize, sink: u32): void {
  if (sink == SINK_ID) {
    const value = load<u32>(rec, AT_NUMBER_VALUE);
    runByte(rec, value & 255);
    runByte(rec, (value >> 8) & 255);
    runByte(rec, (value >> 16) & 255);
    runByte(rec, value >> 24);
  }
  store<u32>(rec, KEY_NONE, AT_KEY);
}

/** true, false or null has been read: `text` holds its letters from the lowest byte up. */
export function literalEnd(rec: usize, text: u64): void {
  const place = load<u32>(rec, AT_PLACE);
  if (isScalarText(rec, place)) {
    for (; text != 0; text >>= 8) runByte(rec, <u32>(text & 255));
  } else if (place == PLACE_TOP && load<u32>(rec, AT_KEY) == KEY_STREAM) {
    store<u32>(rec, (text & 255) == 0x74 ? 1 : 0, AT_STREAM);
  }
  store<u32>(rec, KEY_NONE, AT_KEY);
}

function isScalarText(rec: usize, place: u32): bool {
  const key = load<u32>(rec, AT_KEY);
  return place == PLACE_RAW ? key != KEY_SKIPPED : place == PLACE_PART && key >= KEY_GENERIC;
}
