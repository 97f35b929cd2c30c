// Finds the first token in an event stream that begins before the engine does, wherever it is cut.
//
// A real vLLM sends the events `response.created` and `response.in_progress` at once, with the request's own text in them, and queues the prompt
// only then; other engines begin messages that way. What carries a piece of an answer is named so: its event's type ends in
// `.delta` or `_delta`. In the bytes that is `.delta` or `_delta` before a quote or the end of a line, where text that is
// repeated inside a JSON string has a backslash.

const FOUND: u32 = 7;
// `delta`, one byte each, lowest first.
const WORD: u64 = 0x61746c6564;

/** State of a stream that has had no piece of an answer. */
export const DELTA_NONE: u32 = 0;

/** Reads the next bytes; gives the state for the next call. */
export function deltaFeed(state: u32, ptr: usize, length: u32): u32 {
  if (state == FOUND) return FOUND;
  let seen = state;
  for (let p = ptr, end = ptr + length; p < end; p++) {
    const c = <u32>load<u8>(p);
    if (c == 0x2e || c == 0x5f) {
      seen = 1;
    } else if (seen == 6) {
      if (c == 0x22 || c == 0x0a || c == 0x0d) return FOUND;
      seen = 0;
    } else if (seen != 0) {
      seen = <u32>((WORD >> ((<u64>(seen - 1)) << 3)) & 0xff) == c ? seen + 1 : 0;
    }
  }
  return seen;
}

/** Whether the stream has had one. */
export function deltaFound(state: u32): bool {
  return state == FOUND;
}
