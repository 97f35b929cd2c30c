// A log line put together from parts in a static buffer: lineStart(), any number of line...(), lineLog(level). What does not
// fit is cut off, and the line then ends in three dots.

import { log } from './host';
import { Text, textBytes, textPtr } from './text';

const LINE_BYTES: usize = 1024;
const DOTS_BYTES: usize = 3;
const line: usize = memory.data(1024 + 3);
let lineBytes: usize = 0;
let isCut: bool = false;

export function lineStart(): void {
  lineBytes = 0;
  isCut = false;
}

export function lineBytesOf(ptr: usize, bytes: usize): void {
  const room = LINE_BYTES - lineBytes;
  if (bytes > room) isCut = true;
  const taken = bytes < room ? bytes : room;
  memory.copy(line + lineBytes, ptr, taken);
  lineBytes += taken;
}

export function lineText(value: Text): void {
  lineBytesOf(textPtr(value), textBytes(value));
}

export function lineNumber(value: i64): void {
  // 20 digits hold every 64-bit number; they are made from the last to the first.
  const digits = line + LINE_BYTES - 20;
  if (lineBytes > LINE_BYTES - 21) {
    isCut = true;
    return;
  }
  let rest: u64 = value < 0 ? <u64>0 - <u64>value : <u64>value;
  let at: usize = 20;
  do {
    at -= 1;
    store<u8>(digits + at, <u8>(0x30 + (rest % 10)));
    rest /= 10;
  } while (rest > 0);
  if (value < 0) {
    store<u8>(line + lineBytes, 0x2d);
    lineBytes += 1;
  }
  memory.copy(line + lineBytes, digits + at, 20 - at);
  lineBytes += 20 - at;
}

export function lineLog(level: u32): void {
  if (isCut) {
    memory.fill(line + lineBytes, 0x2e, DOTS_BYTES);
    lineBytes += DOTS_BYTES;
  }
  log(level, line, lineBytes);
  lineStart();
}
