// A byte string that can be refilled, for the texts that the filter keeps, compares and builds: names, addresses, keys.
//
// The host speaks UTF-8 and AssemblyScript strings are UTF-16 objects that must be converted and allocated. A Bytes is
// reserved once and filled again and again, so that no request costs an allocation. (Constant texts that are only
// handed to the host are a Text of proxy-wasm/text.ts.)

/** A byte string of at most `capacity` bytes in memory reserved once: `ptr` never changes. */
export class Bytes {
  ptr: usize;
  length: u32 = 0;
  capacity: u32;

  constructor(capacity: u32) {
    this.capacity = capacity;
    this.ptr = heap.alloc(capacity);
  }

  /** Adds one byte; false when it is full, which leaves it as it was. */
  append(c: u8): bool {
    if (this.length >= this.capacity) return false;
    store<u8>(this.ptr + this.length, c);
    this.length++;
    return true;
  }

  /** Adds `length` bytes, or as many of them as there is room for. */
  appendBytes(ptr: usize, length: u32): void {
    const room = this.capacity - this.length;
    const count = length < room ? length : room;
    memory.copy(this.ptr + this.length, ptr, count);
    this.length += count;
  }

  appendAll(other: Bytes): void {
    this.appendBytes(other.ptr, other.length);
  }

  /** Adds a whole number in decimal. */
  appendNumber(value: u64): void {
    let divisor: u64 = 1;
    while (value / divisor >= 10) divisor *= 10;
    while (divisor > 0) {
      this.append(<u8>(0x30 + ((value / divisor) % 10)));
      divisor /= 10;
    }
  }

  /** Adds the characters of an ASCII string. */
  appendString(value: string): void {
    for (let i = 0; i < value.length; i++) this.append(<u8>value.charCodeAt(i));
  }

  equals(ptr: usize, length: u32): bool {
    return this.length == length && bytesEqual(this.ptr, ptr, length);
  }

  toString(): string {
    return String.UTF8.decodeUnsafe(this.ptr, this.length);
  }
}

/** A Bytes that holds `value`; called while a module or a plugin starts, since it allocates. */
export function bytesOf(value: string): Bytes {
  const length = <u32>String.UTF8.byteLength(value);
  const text = new Bytes(length);
  String.UTF8.encodeUnsafe(changetype<usize>(value), value.length, text.ptr);
  text.length = length;
  return text;
}

export function copyBytes(into: Bytes, ptr: usize, length: u32): void {
  into.length = 0;
  into.appendBytes(ptr, length);
}

export function bytesEqual(a: usize, b: usize, length: u32): bool {
  for (let i: u32 = 0; i < length; i++) {
    if (load<u8>(a + i) != load<u8>(b + i)) return false;
  }
  return true;
}
