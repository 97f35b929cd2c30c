// The headers of the request or answer at hand, read by one host call: a host call that brings bytes costs as much as ten that bring none.
//
// They are good during the callback for these headers. A header map that finds no room here is asked for header by header.
import { headerNamed, headerPairsInto, resultBytes, resultPtr } from './proxy-wasm/host';
import { STATUS_OK } from './proxy-wasm/status';
import { Text, textBytes, textPtr } from './proxy-wasm/text';
import { HEADERS_BYTES_MAX } from './engine/limits';

const pairs: usize = heap.alloc(HEADERS_BYTES_MAX);
let current: u32 = 0;
let isRead: bool = false;
let count: u32 = 0;
let end: usize = 0;
/** Where the texts behind the pair that was found last begin. */
let nextTexts: usize = 0;

/** The value that was found last. */
export let valuePtr: usize = 0;
export let valueBytes: u32 = 0;

/** Reads the headers, HEADERS_REQUEST or HEADERS_RESPONSE. To be called first in the callback for them. */
export function headersRead(map: u32): void {
  current = map;
  isRead = headerPairsInto(map, pairs, HEADERS_BYTES_MAX) == STATUS_OK && resultBytes >= 4;
  count = isRead ? load<u32>(pairs) : 0;
  end = pairs + resultBytes;
  if (<usize>count > resultBytes / 10) isRead = false;
}

/** Finds a header by its name in lower case. */
export function headerFind(name: Text): bool {
  return headerFindBytes(textPtr(name), <u32>textBytes(name));
}

/** The same for a name that is not a constant. */
export function headerFindBytes(name: usize, nameBytes: u32): bool {
  return headerFindFrom(name, nameBytes, 0) != 0;
}

/**
 * Finds a header among those from the `from`-th on, since a name may stand more than once. Returns where to go on, or 0 when there is
 * none. Header by header there is one only, with all values in it.
 */
export function headerFindFrom(name: usize, nameBytes: u32, from: u32): u32 {
  if (!isRead) return from == 0 && askHost(name, nameBytes) ? 1 : 0;
  let texts = from == 0 ? pairs + 4 + ((<usize>count) << 3) : nextTexts;
  for (let i = from; i < count; i++) {
    const bytes = load<u32>(pairs + 4 + ((<usize>i) << 3));
    const itsValueBytes = load<u32>(pairs + 8 + ((<usize>i) << 3));
    const next = <u64>texts + bytes + itsValueBytes + 2;
    if (next > <u64>end) return 0;
    if (bytes == nameBytes && memory.compare(texts, name, nameBytes) == 0) {
      valuePtr = texts + bytes + 1;
      valueBytes = itsValueBytes;
      nextTexts = <usize>next;
      return i + 1;
    }
    texts = <usize>next;
  }
  return 0;
}

function askHost(name: usize, nameBytes: u32): bool {
  if (headerNamed(current, name, nameBytes) != STATUS_OK) return false;
  valuePtr = resultPtr;
  valueBytes = <u32>resultBytes;
  return true;
}
