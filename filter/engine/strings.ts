// Reads the strings of a body, which are nearly all of it: 16 bytes at a time up to a quote, a backslash or a control byte, and escapes
// decoded, so that escaped and plain text are the same text. Whole stripes of plain text that lie in one chunk are digested where they are.
import { fail, STATE_AFTER, STATE_AFTER_HIGH, STATE_COLON, STATE_ESCAPE, STATE_STRING, STATE_UNICODE } from './machine';
import { REASON_DUPLICATE_KEY, REASON_NOT_JSON } from './reasons';
import {
  AT_CAPTURE,
  AT_CAPTURE_BYTES,
  AT_FILL,
  AT_HEX,
  AT_HEX_LEFT,
  AT_HIGH,
  AT_IN_KEY,
  AT_LIMIT,
  AT_SINK,
  AT_STATE,
  AT_STRIPE,
} from './record';
import { sinkByte } from './message';
import { keyEnd, SINK_CAPTURE, SINK_NONE, SINK_TEXT, stringEnd } from './shape';
import { runByte, stripeDirect, stripeFull } from './text';

// 256 entries each: the byte that a simple escape stands for, or 0; the value of a hexadecimal digit, or 255.
const escapes: usize = memory.data(256);
const hexDigits: usize = memory.data(256);
const encoded: usize = memory.data(4);
// Sixteen FF, sixteen 00: read at 16 - n it keeps a vector's first n bytes.
const keepMask: usize = memory.data(32);
memory.fill(keepMask, 255, 16);
memory.fill(hexDigits, 255, 256);
for (let i: u32 = 0; i < 10; i++) store<u8>(hexDigits + 0x30 + i, <u8>i);
for (let i: u32 = 0; i < 6; i++) {
  store<u8>(hexDigits + 0x41 + i, <u8>(10 + i));
  store<u8>(hexDigits + 0x61 + i, <u8>(10 + i));
}
store<u8>(escapes + 0x22, 0x22);
store<u8>(escapes + 0x5c, 0x5c);
store<u8>(escapes + 0x2f, 0x2f);
store<u8>(escapes + 0x62, 0x08);
store<u8>(escapes + 0x66, 0x0c);
store<u8>(escapes + 0x6e, 0x0a);
store<u8>(escapes + 0x72, 0x0d);
store<u8>(escapes + 0x74, 0x09);

/** Bytes of a string, up to its closing quote, an escape or the end of the chunk. */
export function stringBytes(rec: usize, from: usize, end: usize): usize {
  const sink = load<u32>(rec, AT_SINK);
  let p = from;
  store<u32>(rec, STATE_STRING, AT_STATE);
  if (sink == SINK_TEXT) p = textBytes(rec, p, end);
  else if (sink == SINK_NONE) p = skipBytes(p, end);
  else {
    if (sink == SINK_CAPTURE && p + 16 <= end && load<u32>(rec, AT_CAPTURE_BYTES) == 0) {
      const v = v128.load(p);
      const mask = i8x16.bitmask(special(v));
      const bytes = mask == 0 ? 16 : <u32>ctz(mask);
      v128.store(rec + AT_CAPTURE, v128.and(v, v128.load(keepMask + 16 - bytes)));
      store<u32>(rec, bytes, AT_CAPTURE_BYTES);
      p += bytes;
    }
    while (p < end) {
      const c = load<u8>(p);
      if (c == 0x22 || c == 0x5c || c < 0x20) break;
      p++;
      const next = sinkByte(rec, sink, c);
      if (next != sink) {
        store<u32>(rec, next, AT_SINK);
        return p;
      }
    }
  }
  if (p >= end) return p;
  const c = load<u8>(p);
  if (c == 0x5c) {
    store<u32>(rec, STATE_ESCAPE, AT_STATE);
  } else if (c != 0x22) {
    fail(rec, REASON_NOT_JSON);
  } else if (load<u32>(rec, AT_IN_KEY)) {
    if (!keyEnd(rec, sink)) fail(rec, REASON_DUPLICATE_KEY);
    store<u32>(rec, STATE_COLON, AT_STATE);
  } else {
    stringEnd(rec, sink);
    store<u32>(rec, STATE_AFTER, AT_STATE);
  }
  return p + 1;
}

/** A mask of the lanes that end plain text: quote, backslash, control byte. Quote xor 2 is 20, so one comparison finds it and all controls. */
function special(v: v128): v128 {
  const low = i8x16.eq(i8x16.sub_sat_u(v128.xor(v, i8x16.splat(2)), i8x16.splat(0x20)), i8x16.splat(0));
  return v128.or(low, i8x16.eq(v, i8x16.splat(0x5c)));
}

/** Where the next quote, backslash or control byte stands, or `end`. */
function plainEnd(from: usize, end: usize): usize {
  let p = from;
  for (; p + 16 <= end; p += 16) {
    const mask = i8x16.bitmask(special(v128.load(p)));
    if (mask != 0) return p + ctz(mask);
  }
  for (; p < end; p++) {
    const c = load<u8>(p);
    if (c == 0x22 || c == 0x5c || c < 0x20) break;
  }
  return p;
}

/** Passes over a string that nobody wants, simple escapes in the chunk included. */
function skipBytes(from: usize, end: usize): usize {
  let p = plainEnd(from, end);
  while (p + 1 < end && load<u8>(p) == 0x5c && load<u8>(escapes + load<u8>(p, 1)) != 0) p = plainEnd(p + 2, end);
  return p;
}

/** A mask that is not zero when one of 64 bytes ends plain text. */
function special64(v0: v128, v1: v128, v2: v128, v3: v128): v128 {
  const two = i8x16.splat(2);
  const backslash = i8x16.splat(0x5c);
  const lowest = i8x16.min_u(
    i8x16.min_u(v128.xor(v0, two), v128.xor(v1, two)),
    i8x16.min_u(v128.xor(v2, two), v128.xor(v3, two)),
  );
  const escaped = v128.or(
    v128.or(i8x16.eq(v0, backslash), i8x16.eq(v1, backslash)),
    v128.or(i8x16.eq(v2, backslash), i8x16.eq(v3, backslash)),
  );
  return v128.or(escaped, i8x16.eq(i8x16.sub_sat_u(lowest, i8x16.splat(0x20)), i8x16.splat(0)));
}

/** How many of the next 256 bytes are plain text for certain: a multiple of 64. */
function plainBytes(p: usize): u32 {
  let plain: u32 = 0;
  for (; plain < 256; plain += 64) {
    const at = p + plain;
    if (v128.any_true(special64(v128.load(at), v128.load(at, 16), v128.load(at, 32), v128.load(at, 48)))) break;
  }
  return plain;
}

/** The four hexadecimal digits at `p`; above 0xffff when one of them is not a digit. */
function hexUnit(p: usize): u32 {
  const a = <u32>load<u8>(hexDigits + load<u8>(p));
  const b = <u32>load<u8>(hexDigits + load<u8>(p, 1));
  const c = <u32>load<u8>(hexDigits + load<u8>(p, 2));
  const d = <u32>load<u8>(hexDigits + load<u8>(p, 3));
  return (a | b | c | d) > 15 ? 0x10000 : (a << 12) | (b << 8) | (c << 4) | d;
}

/** Takes plain text and escapes into the run. Returns where it stopped: at a quote, an escape that needs care, a control byte or the end. */
function textBytes(rec: usize, from: usize, end: usize): usize {
  const stripe = rec + AT_STRIPE;
  let p = from;
  let fill = load<u32>(rec, AT_FILL);
  let limit = load<u32>(rec, AT_LIMIT);
  while (true) {
    if (fill == 0 && limit == 256 && p + 256 <= end) {
      const plain = plainBytes(p);
      if (plain == 256) {
        stripeDirect(rec, p);
        limit = load<u32>(rec, AT_LIMIT);
        p += 256;
        continue;
      }
      for (let i: u32 = 0; i < plain; i += 16) v128.store(stripe + i, v128.load(p + i));
      fill = plain;
      p += plain;
    }
    // Fill the stripe from here, 64 bytes at a time while they are plain text; then each round copies 16 and keeps those before the first
    // special one.
    while (fill + 64 <= limit && p + 64 <= end) {
      const v0 = v128.load(p);
      const v1 = v128.load(p, 16);
      const v2 = v128.load(p, 32);
      const v3 = v128.load(p, 48);
      v128.store(stripe + fill, v0);
      v128.store(stripe + fill, v1, 16);
      v128.store(stripe + fill, v2, 32);
      v128.store(stripe + fill, v3, 48);
      if (v128.any_true(special64(v0, v1, v2, v3))) break;
      fill += 64;
      p += 64;
    }
    let mask = 0;
    while (fill < limit && p + 16 <= end) {
      const v = v128.load(p);
      v128.store(stripe + fill, v);
      mask = i8x16.bitmask(special(v));
      if (mask != 0) {
        const n = <u32>ctz(mask);
        fill += n;
        p += n;
        break;
      }
      fill += 16;
      p += 16;
    }
    if (mask == 0 && fill < limit) {
      while (p < end && fill < limit) {
        const c = load<u8>(p);
        if (c == 0x22 || c == 0x5c || c < 0x20) break;
        store<u8>(stripe + fill, c);
        fill++;
        p++;
      }
    }
    if (fill < limit) {
      if (p + 1 >= end || load<u8>(p) != 0x5c) break;
      // Escapes often stand side by side: text in another script is all escapes in some clients' JSON.
      do {
        const plain = load<u8>(escapes + load<u8>(p, 1));
        if (plain != 0) {
          store<u8>(stripe + fill, plain);
          fill++;
          p += 2;
        } else {
          // A whole \u escape of a character below the surrogates' range that does not cross the stripe's end.
          const unit = p + 6 <= end && fill + 3 <= limit && load<u8>(p, 1) == 0x75 ? hexUnit(p + 2) : 0x10000;
          if (unit >= 0xd800) break;
          fill += utf8(stripe + fill, unit);
          p += 6;
        }
      } while (fill < limit && p + 1 < end && load<u8>(p) == 0x5c);
      if (fill < limit) {
        if (p + 1 < end && load<u8>(p) == 0x5c) break;
        continue;
      }
    }
    // What was copied beyond the stripe is read again.
    p -= fill - limit;
    store<u32>(rec, limit, AT_FILL);
    stripeFull(rec);
    fill = 0;
    limit = load<u32>(rec, AT_LIMIT);
  }
  store<u32>(rec, fill, AT_FILL);
  return p;
}

/** Writes a character as UTF-8. Returns its bytes. */
function utf8(at: usize, code: u32): u32 {
  if (code < 0x80) {
    store<u8>(at, <u8>code);
    return 1;
  }
  if (code < 0x800) {
    store<u8>(at, <u8>(0xc0 | (code >> 6)));
    store<u8>(at, <u8>(0x80 | (code & 63)), 1);
    return 2;
  }
  if (code < 0x10000) {
    store<u8>(at, <u8>(0xe0 | (code >> 12)));
    store<u8>(at, <u8>(0x80 | ((code >> 6) & 63)), 1);
    store<u8>(at, <u8>(0x80 | (code & 63)), 2);
    return 3;
  }
  store<u8>(at, <u8>(0xf0 | (code >> 18)));
  store<u8>(at, <u8>(0x80 | ((code >> 12) & 63)), 1);
  store<u8>(at, <u8>(0x80 | ((code >> 6) & 63)), 2);
  store<u8>(at, <u8>(0x80 | (code & 63)), 3);
  return 4;
}

/** One byte after a backslash. Returns 1 when it was consumed, else 0. */
export function escapeByte(rec: usize, state: u32, c: u32): u32 {
  if (state == STATE_AFTER_HIGH && c == 0x5c) {
    store<u32>(rec, STATE_ESCAPE, AT_STATE);
    return 1;
  }
  if (state == STATE_UNICODE) {
    const digit = <u32>load<u8>(hexDigits + c);
    if (digit > 15) {
      fail(rec, REASON_NOT_JSON);
      return 1;
    }
    const unit = (load<u32>(rec, AT_HEX) << 4) | digit;
    const left = load<u32>(rec, AT_HEX_LEFT) - 1;
    store<u32>(rec, unit, AT_HEX);
    store<u32>(rec, left, AT_HEX_LEFT);
    if (left == 0) store<u32>(rec, codeUnit(rec, unit), AT_STATE);
    return 1;
  }
  // Anything but another \u after a high surrogate leaves it alone.
  if (load<u32>(rec, AT_HIGH) != 0 && c != 0x75) {
    store<u32>(rec, 0, AT_HIGH);
    codePoint(rec, 0xfffd);
  }
  if (state == STATE_AFTER_HIGH) {
    if (load<u32>(rec, AT_HIGH) != 0) {
      store<u32>(rec, 0, AT_HIGH);
      codePoint(rec, 0xfffd);
    }
    store<u32>(rec, STATE_STRING, AT_STATE);
    return 0;
  }
  if (c == 0x75) {
    store<u32>(rec, 0, AT_HEX);
    store<u32>(rec, 4, AT_HEX_LEFT);
    store<u32>(rec, STATE_UNICODE, AT_STATE);
    return 1;
  }
  const plain = load<u8>(escapes + c);
  if (plain == 0) fail(rec, REASON_NOT_JSON);
  else put(rec, plain);
  store<u32>(rec, STATE_STRING, AT_STATE);
  return 1;
}

/** A whole \u escape. Returns the next state. */
function codeUnit(rec: usize, unit: u32): u32 {
  const high = load<u32>(rec, AT_HIGH);
  store<u32>(rec, 0, AT_HIGH);
  const isLow = (unit & 0xfc00) == 0xdc00;
  if (high != 0 && isLow) {
    codePoint(rec, 0x10000 + ((high & 0x3ff) << 10) + (unit & 0x3ff));
    return STATE_STRING;
  }
  if (high != 0) codePoint(rec, 0xfffd);
  if ((unit & 0xfc00) == 0xd800) {
    store<u32>(rec, unit, AT_HIGH);
    return STATE_AFTER_HIGH;
  }
  codePoint(rec, isLow ? 0xfffd : unit);
  return STATE_STRING;
}

/** A decoded character into the string's sink. */
function codePoint(rec: usize, code: u32): void {
  const bytes = utf8(encoded, code);
  for (let i: u32 = 0; i < bytes; i++) put(rec, load<u8>(encoded + i));
}

/** A decoded byte into the string's sink. */
function put(rec: usize, byte: u32): void {
  const sink = load<u32>(rec, AT_SINK);
  if (sink == SINK_TEXT) runByte(rec, byte);
  else store<u32>(rec, sinkByte(rec, sink, byte), AT_SINK);
}
