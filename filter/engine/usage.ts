// Reads token counts from a response as it passes, JSON or server-sent events, wherever it is cut, without a tree.
//
// Inside a JSON string a quote is escaped, so the raw bytes `"name"`, a colon and digits are always a key and its value: text cannot fake them.
// Every name of interest ends in `ns"`, which is looked for 16 bytes at a time; a chunk of a stream mostly has none. The
// last value of a name wins: a response may echo its request before it tells its own usage, and a stream may tell usage often.

// prompt_tokens and completion_tokens are chat's and completions' names, input_tokens and output_tokens those of responses and messages.
const NAME_NONE: u32 = 0;
const NAME_PROMPT: u32 = 1;
const NAME_CACHED: u32 = 2;
const NAME_COMPLETION: u32 = 3;
// Only messages: there the prompt is input_tokens plus what was read from the cache plus what was written to it.
const NAME_CACHE_READ: u32 = 4;
const NAME_CACHE_WRITTEN: u32 = 5;

// A name with its quotes; the longest is cache_creation_input_tokens.
const NAME_BYTES: u32 = 29;

const AT_STATE: usize = 0;
const AT_NAME: usize = 4;
const AT_VALUE: usize = 8;
const AT_VALUES: usize = 12; // five i32, by name - 1
const AT_TAIL_BYTES: usize = 32;
const AT_TAIL: usize = 40; // the last NAME_BYTES bytes
const RECORD_BYTES: usize = 72;

const STATE_SEEK: u32 = 0;
const STATE_COLON: u32 = 1;
const STATE_VALUE: u32 = 2;
const STATE_DIGITS: u32 = 3;

let records: usize = 0;
let recordCount: u32 = 0;
// The end of the last chunk and the beginning of this one, NAME_BYTES of each at most.
const join: usize = memory.data(64, 16);

// The names with their quotes, one after the other, where each ends, and what it means.
const names: usize = memory.data(256);
const nameEnds: StaticArray<u32> = new StaticArray<u32>(8);
const nameCodes: StaticArray<u32> = new StaticArray<u32>(8);
let namesUsed: i32 = 0;

function add(name: string, code: u32): void {
  const from = namesUsed == 0 ? 0 : nameEnds[namesUsed - 1];
  for (let i = 0; i < name.length; i++) store<u8>(names + from + i, <u8>name.charCodeAt(i));
  nameEnds[namesUsed] = from + name.length;
  nameCodes[namesUsed] = code;
  namesUsed++;
}
add('"prompt_tokens"', NAME_PROMPT);
add('"input_tokens"', NAME_PROMPT);
add('"cached_tokens"', NAME_CACHED);
add('"cache_read_input_tokens"', NAME_CACHE_READ);
add('"cache_creation_input_tokens"', NAME_CACHE_WRITTEN);
add('"completion_tokens"', NAME_COMPLETION);
add('"output_tokens"', NAME_COMPLETION);

/** Reserves a record for each stream. The first call counts. */
export function usageInit(streams: u32): void {
  if (recordCount != 0) return;
  records = heap.alloc(RECORD_BYTES * <usize>streams);
  recordCount = streams;
  for (let i: u32 = 0; i < streams; i++) usageOpen(i);
}

function recordOf(slot: i32): usize {
  return <u32>slot < recordCount ? records + RECORD_BYTES * <usize>slot : 0;
}

/** Begins to read a response. The slot is the caller's number of the stream. */
export function usageOpen(slot: i32): void {
  const rec = recordOf(slot);
  if (rec == 0) return;
  memory.fill(rec, 0, RECORD_BYTES);
  for (let i: usize = 0; i < 5; i++) store<i32>(rec + AT_VALUES + (i << 2), -1);
}

/** Reads the next `length` bytes of the response. */
export function usageFeed(slot: i32, ptr: usize, length: u32): void {
  const rec = recordOf(slot);
  if (rec == 0 || length == 0) return;
  const end = ptr + length;
  let p = ptr;
  let state = load<u32>(rec, AT_STATE);
  const tail = load<u32>(rec, AT_TAIL_BYTES);
  if (state == STATE_SEEK) {
    // A name may lie across the cut, or right behind it with a backslash before it: look through the end of what came before
    // with the beginning of this.
    if (tail > 0) {
      const head = length < NAME_BYTES ? length : NAME_BYTES;
      memory.copy(join, rec + AT_TAIL, tail);
      memory.copy(join + tail, ptr, head);
      const found = seek(join, false, join, join + tail + head, tail);
      if (found != 0) {
        p = ptr + (found - join - tail);
        store<u32>(rec, nameFound, AT_NAME);
        state = STATE_COLON;
      }
    }
  }
  while (p < end) {
    if (state == STATE_SEEK) {
      p = seek(ptr, tail > 0, p, end, 0);
      if (p == 0) break;
      store<u32>(rec, nameFound, AT_NAME);
      state = STATE_COLON;
      continue;
    }
    const c = load<u8>(p);
    if (state == STATE_DIGITS) {
      if (c >= 0x30 && c <= 0x39) {
        const value = <u64>load<u32>(rec, AT_VALUE) * 10 + (c - 0x30);
        store<u32>(rec, value < 0x7fffffff ? <u32>value : 0x7fffffff, AT_VALUE);
        p++;
      } else {
        store<u32>(rec + AT_VALUES + ((<usize>load<u32>(rec, AT_NAME) - 1) << 2), load<u32>(rec, AT_VALUE));
        state = STATE_SEEK;
      }
    } else if (c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09) {
      p++;
    } else if (state == STATE_COLON && c == 0x3a) {
      state = STATE_VALUE;
      p++;
    } else if (state == STATE_VALUE && c >= 0x30 && c <= 0x39) {
      store<u32>(rec, 0, AT_VALUE);
      state = STATE_DIGITS;
    } else {
      state = STATE_SEEK;
    }
  }
  store<u32>(rec, state, AT_STATE);
  keepTail(rec, ptr, length);
}

/** Keeps the last bytes seen, which may be the beginning of a name. */
function keepTail(rec: usize, ptr: usize, length: u32): void {
  const tail = rec + AT_TAIL;
  if (length >= NAME_BYTES) {
    memory.copy(tail, ptr + length - NAME_BYTES, NAME_BYTES);
    store<u32>(rec, NAME_BYTES, AT_TAIL_BYTES);
    return;
  }
  const have = load<u32>(rec, AT_TAIL_BYTES);
  const keep = have + length <= NAME_BYTES ? have : NAME_BYTES - length;
  memory.copy(tail, tail + (have - keep), keep);
  memory.copy(tail + keep, ptr, length);
  store<u32>(rec, keep + length, AT_TAIL_BYTES);
}

let nameFound: u32 = NAME_NONE;

/**
 * Finds the first name that ends after `from` + `skip` bytes; returns the place after it, with its code in `nameFound`, or 0. Where bytes
 * before `begin` are out of sight (`isCut`), a name right at `begin` does not count.
 */
function seek(begin: usize, isCut: bool, from: usize, end: usize, skip: u32): usize {
  const n = i8x16.splat(0x6e);
  const s = i8x16.splat(0x73);
  const quote = i8x16.splat(0x22);
  let p = from;
  for (; p + 18 <= end; p += 16) {
    const hits = v128.and(
      v128.and(i8x16.eq(v128.load(p), n), i8x16.eq(v128.load(p, 1), s)),
      i8x16.eq(v128.load(p, 2), quote),
    );
    for (let mask = i8x16.bitmask(hits); mask != 0; mask &= mask - 1) {
      const after = p + 3 + ctz(mask);
      if (after > from + skip && isName(begin, isCut, after)) return after;
    }
  }
  for (; p + 3 <= end; p++) {
    if (load<u8>(p) != 0x6e || load<u8>(p, 1) != 0x73 || load<u8>(p, 2) != 0x22) continue;
    if (p + 3 > from + skip && isName(begin, isCut, p + 3)) return p + 3;
  }
  return 0;
}

/** Whether one of the names ends right before `after`, with a quote before it that is not escaped. */
function isName(begin: usize, isCut: bool, after: usize): bool {
  let from: u32 = 0;
  for (let i = 0; i < namesUsed; i++) {
    const to = nameEnds[i];
    const bytes = to - from;
    if (after - begin >= bytes && memory.compare(names + from, after - bytes, bytes) == 0) {
      if (after - bytes == begin ? isCut : load<u8>(after - bytes - 1) == 0x5c) return false;
      nameFound = nameCodes[i];
      return true;
    }
    from = to;
  }
  return false;
}

function valueOf(slot: i32, name: u32): i32 {
  const rec = recordOf(slot);
  return rec == 0 ? -1 : load<i32>(rec + AT_VALUES + ((<usize>name - 1) << 2));
}

/** Tokens of the whole prompt, cached ones included; -1 when the response did not tell. */
export function usagePromptTokens(slot: i32): i32 {
  const prompt = valueOf(slot, NAME_PROMPT);
  const read = valueOf(slot, NAME_CACHE_READ);
  const written = valueOf(slot, NAME_CACHE_WRITTEN);
  if (prompt < 0) return -1;
  const sum = <i64>prompt + (read > 0 ? read : 0) + (written > 0 ? written : 0);
  return sum < 0x7fffffff ? <i32>sum : 0x7fffffff;
}

export function usageCachedTokens(slot: i32): i32 {
  const read = valueOf(slot, NAME_CACHE_READ);
  return read >= 0 ? read : valueOf(slot, NAME_CACHED);
}

export function usageCompletionTokens(slot: i32): i32 {
  return valueOf(slot, NAME_COMPLETION);
}
