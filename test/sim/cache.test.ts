// The replica's block cache against a plain list of what vLLM's rules say: the longest unused free block is reused first, the first block of equal
// content stays the known one.

import { expect, it } from 'vitest';
import { BlockCache } from '../../sim/cache.ts';
import { Random } from '../../sim/random.ts';

it('agrees with a naive one over a long random life', () => {
  const random = new Random(7);
  const blocks = 37;
  const cache = new BlockCache(blocks);
  const known = new Map<number, number>();
  const free = Array.from({ length: blocks }, (_, block) => block);
  const uses = free.map(() => 0);
  const held: number[][] = [];
  // Few keys, so that they meet often; multiples of 2^32 differ in their upper half only.
  const keyOf = (): number => random.below(60) * (random.below(2) === 0 ? 1 : 2 ** 32);
  for (let step = 0; step < 20_000; step++) {
    const action = random.below(10);
    if (action < 4 && free.length > 0) {
      const block = free.shift()!;
      for (const [key, holder] of known) if (holder === block) known.delete(key);
      expect(cache.take()).toBe(block);
      uses[block] = 1;
      held.push([block]);
      const key = keyOf();
      cache.commit(block, key);
      if (!known.has(key)) known.set(key, block);
    } else if (action < 6) {
      const key = keyOf();
      const block = known.get(key);
      expect(cache.match([key], 1).hits).toBe(block === undefined ? 0 : 1);
      if (block !== undefined) {
        expect(cache.share(key)).toBe(block);
        if (uses[block] === 0) free.splice(free.indexOf(block), 1);
        uses[block]! += 1;
        held.push([block]);
      }
    } else if (held.length > 0) {
      const [given] = held.splice(random.below(held.length), 1);
      cache.release(given!);
      for (const block of given!.toReversed()) if (--uses[block]! === 0) free.push(block);
    }
    expect([cache.cachedBlocks, cache.freeBlocks]).toEqual([known.size, free.length]);
  }
  expect(cache.evictions).toBeGreaterThan(1000);
});
