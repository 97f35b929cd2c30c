// Residency, load and policy as engine.wasm exports them to Node, with a region to pass keys and records through.
import { CHAIN_BLOCKS_MAX } from './limits';

export * from './adapters';
export * from './residency';
export * from './residency-export';
export * from './random';
export * from './pool';
export * from './pods';
export * from './load';
export * from './match';
export * from './policy';

// Keys of 8 bytes, then ends or weights of 4 bytes: a whole chain fits.
let keysRegion: usize = 0;
let numbersRegion: usize = 0;

/** Where the host puts up to CHAIN_BLOCKS_MAX keys. */
export function tableKeys(): usize {
  if (keysRegion == 0) keysRegion = heap.alloc(<usize>CHAIN_BLOCKS_MAX * 8);
  return keysRegion;
}
/** Where the host puts their ends or weights. */
export function tableNumbers(): usize {
  if (numbersRegion == 0) numbersRegion = heap.alloc(<usize>CHAIN_BLOCKS_MAX * 4);
  return numbersRegion;
}
