// What the compiler calls before a trap: it says where in the log, without allocating, since memory may be the trouble.
// Named by the compiler option `--use abort=PATH/proxy-wasm/abort/abort`, in place of the import env.abort that no
// proxy-wasm host provides.

import { proxy_log } from './env';
import { LOG_CRITICAL } from './status';

const LINE_BYTES: i32 = 512;
const line: usize = memory.data(LINE_BYTES);
let lineBytes: usize = 0;

export function abort(message: string | null, file: string | null, row: u32, column: u32): void {
  lineBytes = 0;
  put('abort: ');
  if (message !== null) put(message);
  put(' at ');
  if (file !== null) put(file);
  put(':');
  putNumber(row);
  put(':');
  putNumber(column);
  proxy_log(LOG_CRITICAL, line, lineBytes);
  unreachable();
}

// The compiler's messages and file names are ASCII; anything else becomes a question mark.
function put(value: string): void {
  const ptr = changetype<usize>(value);
  for (let i = 0; i < value.length; i++) {
    const unit = load<u16>(ptr + ((<usize>i) << 1));
    putByte(unit < 0x80 ? <u8>unit : 0x3f);
  }
}

function putNumber(value: u32): void {
  let unit: u32 = 1;
  while (value / unit >= 10) unit *= 10;
  for (; unit > 0; unit /= 10) putByte(<u8>(0x30 + ((value / unit) % 10)));
}

function putByte(byte: u8): void {
  if (lineBytes >= <usize>LINE_BYTES) return;
  store<u8>(line + lineBytes, byte);
  lineBytes += 1;
}
