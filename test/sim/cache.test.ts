// The replica's block cache against a plain list of what vLLM's rules say: the longest unused free block is reused first, those that hold nothing
// known before all others; of several blocks of equal content the oldest one is shared.

import { expect, it } from 'vitest';
import { BlockCache } from '../../sim/cache.ts';
import { Random } from '../../sim/random.ts';

it('agrees with a naive one over a long random life', () => {
  const random = new Random(7);
  const blocks = 37;
  const cache = new BlockCache(blocks);
  const known = new Map<number, number[]>();
  const free = Array.from({ length: blocks }, (_, block) => block);
  const uses = free.map(() => 0);
  const held: number[][] = [];
  let twins = 0;
  // Few keys, so that they meet often; multiples of 2^32 differ in their upper half only.
  const keyOf = (): number => random.below(60) * (random.below(2) === 0 ? 1 : 2 ** 32);
  for (let step = 0; step < 20_000; step++) {
    const action = random.below(10);
    if (action < 4 && free.length > 0) {
      const block = free.shift()!;
      for (const [key, holders] of known) {
        if (holders.includes(block)) holders.splice(holders.indexOf(block), 1);
        if (holders.length === 0) known.delete(key);
      }
      expect(cache.take()).toBe(block);
      uses[block] = 1;
      held.push([block]);
      if (random.below(8) > 0) {
        const key = keyOf();
        cache.commit(block, key);
        known.set(key, [...(known.get(key) ?? []), block]);
        twins = Math.max(twins, known.get(key)!.length);
      }
    } else if (action < 6) {
      const key = keyOf();
      const block = known.get(key)?.[0];
      expect(cache.match([key], 1).hits).toBe(block === undefined ? 0 : 1);
      if (block !== undefined) {
        expect(cache.share(key)).toBe(block);
        if (uses[block] === 0) free.splice(free.indexOf(block), 1);
        uses[block]! += 1;
        held.push([block]);
      }
    } else if (action === 6 && held.length > 1) {
      // Sequences hold several blocks.
      const [one] = held.splice(random.below(held.length), 1);
      held[random.below(held.length)]!.push(...one!);
    } else if (held.length > 0) {
      const [given] = held.splice(random.below(held.length), 1);
      cache.release(given!);
      const empty: number[] = [];
      for (const block of given!.toReversed()) {
        if (--uses[block]! > 0) continue;
        const isKnown = [...known.values()].some((holders) => holders.includes(block));
        (isKnown ? free : empty).push(block);
      }
      free.unshift(...empty);
    }
    expect([cache.cachedBlocks, cache.freeBlocks]).toEqual([known.size, free.length]);
  }
  expect(cache.evictions).toBeGreaterThan(1000);
  expect(twins).toBeGreaterThan(2);
});
