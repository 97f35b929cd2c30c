// A VM's memory as the host sees it: reads and writes that fail as a status, and results placed where the filter says.

import { Status } from './abi.ts';

export class VmMemory {
  readonly #memory: WebAssembly.Memory;
  readonly #allocate: (bytes: number) => number;

  constructor(memory: WebAssembly.Memory, allocate: (bytes: number) => number) {
    this.#memory = memory;
    this.#allocate = allocate;
  }

  get bytes(): number {
    return this.#memory.buffer.byteLength;
  }

  /** A copy of a region, or undefined if it is not all inside the memory. */
  read(ptr: number, bytes: number): Uint8Array | undefined {
    const [start, length] = [ptr >>> 0, bytes >>> 0];
    if (start + length > this.bytes) return undefined;
    return new Uint8Array(this.#memory.buffer, start, length).slice();
  }

  writeU32(ptr: number, value: number): boolean {
    if ((ptr >>> 0) + 4 > this.bytes) return false;
    new DataView(this.#memory.buffer).setUint32(ptr >>> 0, value, true);
    return true;
  }

  writeU64(ptr: number, value: bigint): boolean {
    if ((ptr >>> 0) + 8 > this.bytes) return false;
    new DataView(this.#memory.buffer).setBigUint64(ptr >>> 0, value, true);
    return true;
  }

  write(ptr: number, bytes: Uint8Array): boolean {
    if ((ptr >>> 0) + bytes.length > this.bytes) return false;
    new Uint8Array(this.#memory.buffer).set(bytes, ptr >>> 0);
    return true;
  }

  /** Hands a result over: asks the filter for room, copies, and writes where and how long. */
  answer(value: Uint8Array, ptrOut: number, bytesOut: number): number {
    let ptr = 0;
    if (value.length > 0) {
      ptr = this.#allocate(value.length) >>> 0;
      if (ptr === 0 || !this.write(ptr, value)) return Status.invalidMemoryAccess;
    }
    return this.writeU32(ptrOut, ptr) && this.writeU32(bytesOut, value.length) ? Status.ok : Status.invalidMemoryAccess;
  }
}
