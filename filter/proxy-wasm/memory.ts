// Where the host's results land. The host asks proxy_on_memory_allocate for room before it writes a result; answering from
// a static region, always the same one, keeps a request free of allocation and so the VM free of garbage collection.
//
//   usual landing   a static scratch of SCRATCH_BYTES; a result there lives until the next call that returns bytes
//   landAt()        a region of the caller's for the next result, which then needs no copy (host.ts `...Into` calls)
//
// A result that does not fit is refused: the host is told there is no memory, and the call returns
// STATUS_INVALID_MEMORY_ACCESS. Nothing is cut short, nothing traps. A larger buffer can be read in pieces, since buffer
// calls take a start and a length; a larger shared-data value or header cannot be read.

import { abort } from './abort';

// Holds a shared-data value or a call's answer of 1 MiB in one piece, and any header Envoy lets through (60 KiB by default).
export const SCRATCH_BYTES: i32 = 1 << 20;

const scratch: usize = memory.data(SCRATCH_BYTES, 16);

let landing: usize = scratch;
let landingBytes: usize = <usize>SCRATCH_BYTES;
let refused: u32 = 0;

// Lets the next result land at `ptr`, if it is no longer than `bytes`.
export function landAt(ptr: usize, bytes: usize): void {
  landing = ptr;
  landingBytes = bytes;
}

// Lets results land in the scratch again.
export function landInScratch(): void {
  landing = scratch;
  landingBytes = <usize>SCRATCH_BYTES;
}

// Whether the region the host answered with lies where it was told to write.
export function landed(ptr: usize, bytes: usize): bool {
  return bytes == 0 || (ptr == landing && bytes <= landingBytes);
}

// How many results were refused for want of room since the VM started.
export function resultsRefused(): u32 {
  return refused;
}

// Part of the ABI: the filter's entry file exports it.
export function proxy_on_memory_allocate(bytes: usize): usize {
  if (bytes > landingBytes) {
    refused += 1;
    return 0;
  }
  return landing;
}

// Part of the ABI: the export whose name tells the host which version this module speaks.
export function proxy_abi_version_0_2_1(): void {}

// The abort handler is named on the compiler's command line only; this keeps its file part of every program.
export const abortHandler: (message: string | null, file: string | null, line: u32, column: u32) => void = abort;
