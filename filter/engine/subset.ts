// The pods that the request at hand may go to, where a part of the gateway before the filter has named some. It bounds the candidates of
// every policy (policy-candidates.ts), and is forgotten after the pick.
import { PODS_MAX } from './limits';

const WORDS: u32 = PODS_MAX / 64;

const mask = new StaticArray<u64>(WORDS);
let isBounded: bool = false;

/** From here on no pod is allowed but those that are named. */
export function subsetBegin(): void {
  isBounded = true;
  for (let word: u32 = 0; word < WORDS; word++) mask[word] = 0;
}

export function subsetAdd(pod: u32): void {
  if (pod < PODS_MAX) mask[pod >> 6] = mask[pod >> 6] | ((<u64>1) << (pod & 63));
}

/** All pods are allowed again. */
export function subsetEnd(): void {
  isBounded = false;
}

/** Which of the 64 pods from 64 * word on are allowed, one bit each. */
export function subsetWord(word: u32): u64 {
  return isBounded && word < WORDS ? mask[word] : u64.MAX_VALUE;
}
