// The pairs of requests that say what block keys must do, and how a pair is judged. Every implementation runs the same ones: the oracle,
// engine.wasm, filter.wasm in a proxy-wasm host, and a real Envoy.
import { existsSync, readFileSync } from 'node:fs';

export interface KeysOf {
  keys: bigint[];
  ends: number[];
  reason: string | null;
}

export type ReadKeys = (path: string, body: string, toolsPosition?: 'auto' | 'after-system' | 'first') => KeysOf;

export interface Expectation {
  /** Every key is equal, and there are some. */
  same?: true;
  /** The keys of all blocks wholly inside the first n bytes of prompt text are equal, and none beyond. */
  sharedPrefixBytes?: number;
  /** Exactly so many keys in common; 0 in all cases. */
  sharedKeys?: number;
  minSharedKeys?: number;
  /** This body yields no keys and a reason. */
  unscannable?: 'a' | 'b';
}

export interface PrefixCase {
  name: string;
  path: string;
  a: string;
  b: string;
  expect: Expectation;
  toolsPosition?: 'after-system' | 'first';
  why: string;
}

const sharedCases = new URL('../../shared/cases/prefix.json', import.meta.url);
const ownCases = new URL('vectors/prefix.json', import.meta.url);

/** The project's own pairs, and those beside the checkout where they are. */
export function loadCases(): { cases: PrefixCase[]; hasShared: boolean } {
  const own = JSON.parse(readFileSync(ownCases, 'utf8')) as PrefixCase[];
  const hasShared = existsSync(sharedCases);
  const shared = hasShared ? (JSON.parse(readFileSync(sharedCases, 'utf8')) as PrefixCase[]) : [];
  return { cases: [...shared, ...own], hasShared };
}

/** Reads both bodies of a case and judges them. Returns what is wrong, or nothing. */
export function compareKeys(one: PrefixCase, read: ReadKeys): string[] {
  const a = read(one.path, one.a, one.toolsPosition);
  const b = read(one.path, one.b, one.toolsPosition);
  const wrong: string[] = [];
  const { expect } = one;
  if (expect.unscannable !== undefined) {
    const bad = expect.unscannable === 'a' ? a : b;
    if (bad.keys.length > 0) wrong.push(`${bad.keys.length} keys of a body that cannot be read`);
    if (bad.reason === null) wrong.push('no reason of a body that cannot be read');
    return wrong;
  }
  for (const [name, side] of [
    ['a', a],
    ['b', b],
  ] as const) {
    if (side.reason !== null) wrong.push(`${name} has reason ${side.reason}`);
    if (side.keys.length === 0) wrong.push(`${name} has no keys`);
    if (side.keys.length !== side.ends.length)
      wrong.push(`${name} has ${side.keys.length} keys and ${side.ends.length} ends`);
    if (side.keys.includes(0n)) wrong.push(`${name} has a key that is 0`);
  }
  if (wrong.length > 0) return wrong;

  let prefix = 0;
  while (prefix < a.keys.length && a.keys[prefix] === b.keys[prefix]) prefix += 1;
  const inB = new Set(b.keys);
  const common = a.keys.filter((key) => inB.has(key)).length;
  if (common !== prefix) wrong.push(`${common} keys in common, but only the first ${prefix} are equal`);
  if (expect.same && (prefix !== a.keys.length || prefix !== b.keys.length)) {
    wrong.push(`${prefix} equal keys of ${a.keys.length} and ${b.keys.length}`);
  }
  if (expect.sharedKeys !== undefined && common !== expect.sharedKeys) {
    wrong.push(`${common} keys in common, expected ${expect.sharedKeys}`);
  }
  if (expect.minSharedKeys !== undefined && prefix < expect.minSharedKeys) {
    wrong.push(`${prefix} equal keys, expected at least ${expect.minSharedKeys}`);
  }
  if (expect.sharedPrefixBytes !== undefined) wrong.push(...comparePrefix(a, b, prefix, expect.sharedPrefixBytes));
  return wrong;
}

/**
 * Keys up to `prefixBytes` must be equal. Where a prompt ends inside a block, that block has a key only in the longer prompt, so the
 * counts may differ by one.
 */
function comparePrefix(a: KeysOf, b: KeysOf, prefix: number, prefixBytes: number): string[] {
  const insideA = a.ends.filter((end) => end <= prefixBytes).length;
  const insideB = b.ends.filter((end) => end <= prefixBytes).length;
  const wrong: string[] = [];
  if (Math.abs(insideA - insideB) > 1) wrong.push(`${insideA} and ${insideB} keys in the first ${prefixBytes} bytes`);
  if (prefix < Math.min(insideA, insideB)) {
    wrong.push(`${prefix} equal keys of ${Math.min(insideA, insideB)} in the first ${prefixBytes} bytes`);
  }
  if (prefix > Math.max(insideA, insideB)) wrong.push(`${prefix} equal keys, beyond the first ${prefixBytes} bytes`);
  for (let i = 0; i < prefix; i++) {
    if (a.ends[i] !== b.ends[i]) wrong.push(`equal key ${i} ends at ${a.ends[i]} and ${b.ends[i]}`);
  }
  return wrong;
}
