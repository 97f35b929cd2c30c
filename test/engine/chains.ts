// Chains of block keys for tests: a prompt is a path of small numbers, and equal beginnings give equal keys, as with real prompts.

export interface Chain {
  keys: bigint[];
  weights: number[];
  ends: number[];
}

const MASK = (1n << 64n) - 1n;

export function chainOf(path: readonly number[], salt = 0x5ca1ab1e0ddba11n): Chain {
  const chain: Chain = { keys: [], weights: [], ends: [] };
  let key = salt;
  let end = 0;
  for (const step of path) {
    key = ((key ^ BigInt(step + 1)) * 0x9e3779b97f4a7c15n) & MASK;
    key ^= key >> 29n;
    const weight = 100 + Number(key % 200n);
    end += weight;
    chain.keys.push(key);
    chain.weights.push(weight);
    chain.ends.push(end);
  }
  return chain;
}

/** Reads touch records as the wire carries them. */
export function readTouches(bytes: Uint8Array): {
  podId: number;
  timeMs: number;
  parentKey: bigint;
  keys: bigint[];
  weights: number[];
}[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const touches = [];
  for (let at = 0; at < bytes.byteLength;) {
    const count = view.getUint16(at + 6, true);
    const keys = Array.from({ length: count }, (_, i) => view.getBigUint64(at + 24 + i * 8, true));
    const weights = Array.from({ length: count }, (_, i) => view.getUint32(at + 24 + count * 8 + i * 4, true));
    const parentKey = view.getBigUint64(at + 16, true);
    touches.push({ podId: view.getUint32(at, true), timeMs: view.getFloat64(at + 8, true), parentKey, keys, weights });
    at += (24 + count * 12 + 7) & ~7;
  }
  return touches;
}
