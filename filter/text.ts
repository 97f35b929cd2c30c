// Bytes with a length, for the texts that the filter keeps, compares and sends: names, addresses, log lines.
//
// The host speaks UTF-8 bytes and AssemblyScript strings are UTF-16 objects that must be converted and allocated;
// a Text is reserved once and filled again and again, so that no request costs an allocation.

/** A byte string in memory reserved once. `ptr` never changes. */
export class Text {
  ptr: usize;
  length: u32 = 0;
  capacity: u32;

  constructor(capacity: u32) {
    this.capacity = capacity;
    this.ptr = heap.alloc(capacity);
  }

  /** Adds one byte; false when the text is full, which leaves it as it was. */
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

  appendText(other: Text): void {
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

  equals(ptr: usize, length: u32): bool {
    return this.length == length && bytesEqual(this.ptr, ptr, length);
  }

  toString(): string {
    return String.UTF8.decodeUnsafe(this.ptr, this.length);
  }
}

/** A Text that holds `value`; called while a module or a plugin starts, since it allocates. */
export function textOf(value: string): Text {
  const length = <u32>String.UTF8.byteLength(value);
  const text = new Text(length);
  String.UTF8.encodeUnsafe(changetype<usize>(value), value.length, text.ptr);
  text.length = length;
  return text;
}

export function copyText(into: Text, ptr: usize, length: u32): void {
  into.length = 0;
  into.appendBytes(ptr, length);
}

export function bytesEqual(a: usize, b: usize, length: u32): bool {
  for (let i: u32 = 0; i < length; i++) {
    if (load<u8>(a + i) != load<u8>(b + i)) return false;
  }
  return true;
}
