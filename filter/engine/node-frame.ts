// The wire format as engine.wasm exports it to Node, with two regions of one whole frame each to pass frames through.
import { FRAME_BYTES_MAX } from './limits';

export * from './frame';

const FRAME_SCRATCH_BYTES: usize = 1024;

let input: usize = 0;
let output: usize = 0;
let scratch: usize = 0;

/** Where the host puts the frame that frameCheck() shall look at. */
export function frameInput(): usize {
  if (input == 0) input = heap.alloc(FRAME_BYTES_MAX);
  return input;
}

/** Where the host lets a frame be written. */
export function frameOutput(): usize {
  if (output == 0) output = heap.alloc(FRAME_BYTES_MAX);
  return output;
}

/** A little room for names, addresses and secrets that the writers copy. */
export function frameScratch(): usize {
  if (scratch == 0) scratch = heap.alloc(FRAME_SCRATCH_BYTES);
  return scratch;
}
export * from './node-touches';
