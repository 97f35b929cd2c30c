// Constant text for host calls. The ABI wants UTF-8 and AssemblyScript strings are UTF-16, so every text is encoded once,
// at start or on configuration, into memory outside the garbage collector, and passed about as one word.
//
//   Text -> | u32 bytes | bytes x UTF-8 |
//
//   pairs() makes the ABI's serialised map, for the headers of a call:
//   | u32 n | n x { u32 nameBytes, u32 valueBytes } | n x { name, 0, value, 0 } |

export type Text = usize;

// The text of no bytes, which needs no memory.
export const TEXT_EMPTY: Text = memory.data<u32>([0]);

export function textPtr(text: Text): usize {
  return text + 4;
}

export function textBytes(text: Text): usize {
  return load<u32>(text);
}

// Encodes a string. Allocates: for start-up and configuration.
export function text(value: string): Text {
  const bytes = String.UTF8.byteLength(value);
  const made = reserve(bytes);
  String.UTF8.encodeUnsafe(changetype<usize>(value), value.length, textPtr(made));
  return made;
}

// Keeps a copy of bytes. Allocates: for start-up and configuration.
export function textOf(ptr: usize, bytes: usize): Text {
  const made = reserve(bytes);
  memory.copy(textPtr(made), ptr, bytes);
  return made;
}

// Gives a text's memory back.
export function textFree(value: Text): void {
  if (value != TEXT_EMPTY) heap.free(value);
}

export function textEquals(value: Text, ptr: usize, bytes: usize): bool {
  return textBytes(value) == bytes && memory.compare(textPtr(value), ptr, bytes) == 0;
}

// A property path such as ['request', 'path']: its parts with a zero byte between them.
export function path(parts: string[]): Text {
  return text(parts.join('\0'));
}

// A serialised header map of names and values in turn. Allocates: for start-up and configuration.
export function pairs(flat: string[]): Text {
  const n = flat.length >> 1;
  let bytes = 4 + n * 8;
  for (let i = 0; i < n * 2; i++) bytes += String.UTF8.byteLength(flat[i]) + 1;
  const made = reserve(bytes);
  const start = textPtr(made);
  store<u32>(start, n);
  let at = start + 4 + n * 8;
  for (let i = 0; i < n * 2; i++) {
    const value = flat[i];
    const length = String.UTF8.encodeUnsafe(changetype<usize>(value), value.length, at);
    store<u32>(start + 4 + i * 4, <u32>length);
    store<u8>(at + length, 0);
    at += length + 1;
  }
  return made;
}

function reserve(bytes: usize): Text {
  const made = heap.alloc(4 + bytes);
  store<u32>(made, <u32>bytes);
  return made;
}
