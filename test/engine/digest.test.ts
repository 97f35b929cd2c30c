// The keyed hashes against what was published and against a slow reference: everything that keys promise rests on them.
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import { localSecret } from '../../control-plane/engine/keys.ts';
import { deriveKeys, digest, nhSum, sipHash } from '../oracle/keys.ts';

interface HashExports {
  memory: { buffer: ArrayBuffer };
  keysInput(): number;
  secretSet(pool: number, pointer: number): void;
  secretClear(pool: number): void;
  secretKnown(pool: number): number;
  sipHash(k0: bigint, k1: bigint, pointer: number, lengthBytes: number, c: number, d: number): bigint;
  chainStep(keysPointer: number, state: bigint, value: bigint, tag: bigint): bigint;
  stripeDigest(pool: number, bytes: number): bigint;
  poolKeyWord(pool: number, at: number): bigint;
}

let engine: HashExports;
beforeAll(async () => {
  engine = (await loadEngine<HashExports>()).exports;
});

function put(bytes: Uint8Array): number {
  const at = engine.keysInput();
  new Uint8Array(engine.memory.buffer).set(bytes, at);
  return at;
}

const K0 = 0x0706050403020100n;
const K1 = 0x0f0e0d0c0b0a0908n;
const counting = (length: number): Uint8Array => Uint8Array.from({ length }, (_, i) => i);

// From the vectors published with SipHash-2-4 and with Rust's SipHash-1-3: key 00 01 ... 0f, message 00 01 ... of the given length.
const published: [c: number, d: number, lengthBytes: number, hash: string][] = [
  [2, 4, 0, '310e0edd47db6f72'],
  [2, 4, 1, 'fd67dc93c539f874'],
  [2, 4, 7, '37d1018bf50002ab'],
  [2, 4, 8, '6224939a79f5f593'],
  [2, 4, 15, 'e545be4961ca29a1'],
  [2, 4, 32, 'ce7cf2722f512771'],
  [2, 4, 63, '724506eb4c328a95'],
  [1, 3, 0, 'dcc40f055801acab'],
  [1, 3, 1, '93ca577df39bf4c9'],
  [1, 3, 7, '4011b19b987d92d3'],
  [1, 3, 8, '8e9a298d11959036'],
  [1, 3, 24, '8c9c3467b2ae64f4'],
];

describe('SipHash', () => {
  test.each(published)('SipHash-%i-%i of %i bytes', (c, d, lengthBytes, hash) => {
    const expected = Buffer.from(hash, 'hex').readBigUInt64LE();
    const at = put(counting(lengthBytes));
    expect(BigInt.asUintN(64, engine.sipHash(K0, K1, at, lengthBytes, c, d))).toBe(expected);
    expect(sipHash(K0, K1, counting(lengthBytes), c, d)).toBe(expected);
  });
});

describe('a pool’s keys', () => {
  test('are derived from all of its secret', () => {
    engine.secretSet(1, put(localSecret));
    const { words } = deriveKeys(localSecret);
    expect(words.map((_, i) => BigInt.asUintN(64, engine.poolKeyWord(1, i)))).toEqual(words);
    for (let at = 0; at < 32; at++) {
      const other = localSecret.slice();
      other[at]! ^= 1;
      expect(deriveKeys(other).words.filter((word) => words.includes(word))).toEqual([]);
    }
  });
  test('are gone when the secret is cleared, and are each pool’s own', () => {
    engine.secretSet(1, put(localSecret));
    engine.secretSet(2, put(counting(32)));
    expect(engine.poolKeyWord(1, 0)).not.toBe(engine.poolKeyWord(2, 0));
    engine.secretClear(1);
    expect([engine.secretKnown(1), engine.secretKnown(2), engine.secretKnown(8)]).toEqual([0, 1, 0]);
    expect(engine.poolKeyWord(1, 0)).toBe(0n);
  });
});

describe('text digests', () => {
  const keys = deriveKeys(localSecret);

  test('NH is the sum of products that its paper defines', () => {
    // Written out for one unit whose words are 1 to 8, by hand.
    const stripe = new Uint8Array(Uint32Array.of(1, 2, 3, 4, 5, 6, 7, 8).buffer);
    const k = (i: number): bigint => keys.nh[i]!;
    const low = (x: bigint): bigint => x & 0xffffffffn;
    const byHand =
      low(1n + k(0)) * low(5n + k(4)) +
      low(2n + k(1)) * low(6n + k(5)) +
      low(3n + k(2)) * low(7n + k(6)) +
      low(4n + k(3)) * low(8n + k(7));
    expect(nhSum(keys.nh, stripe, 0)).toBe(BigInt.asUintN(64, byHand));
  });

  test('of the engine are the reference’s, for every length of a stripe', () => {
    engine.secretSet(0, put(localSecret));
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 256 }), (text) => {
        const padded = new Uint8Array(288);
        padded.set(text);
        put(padded);
        expect(BigInt.asUintN(64, engine.stripeDigest(0, text.length))).toBe(digest(keys, text));
      }),
      { numRuns: 500 },
    );
  });

  test('tell texts apart that differ in one bit or in zeros at the end', () => {
    const seen = new Set<bigint>();
    const text = counting(96);
    for (let bit = 0; bit < 96 * 8; bit++) {
      const other = text.slice();
      other[bit >> 3]! ^= 1 << (bit & 7);
      seen.add(digest(keys, other));
    }
    for (let lengthBytes = 0; lengthBytes < 64; lengthBytes++) seen.add(digest(keys, new Uint8Array(lengthBytes)));
    expect(seen.size).toBe(96 * 8 + 64);
  });
});
