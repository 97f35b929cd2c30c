// A capacity that no engine tells is learned from what usage says of matches: against a replica's own cache, with the engine's own table and
// judgement, one request after the other.
import { expect, test } from 'vitest';
import { LearnedCapacity } from '../../control-plane/capacity.ts';
import { Table } from '../../control-plane/engine/table.ts';
import { BlockCache } from '../../sim/cache.ts';
import { Random } from '../../sim/random.ts';

const ENGINE_TOKENS = 40_000;
const BLOCK_TOKENS = 16;
const BYTES_PER_TOKEN = 4;
/** A block of ours is 256 bytes, 64 tokens: four of the engine's. */
const OURS_TOKENS = 64;
const PREFIX_TOKENS = 1_984;
const OWN_TOKENS = 192;

/** Some of the prefixes are asked for often, most seldom. */
function drawPrefix(random: Random, prefixes: number): number {
  return Math.floor(prefixes * random.unit() ** 2.5);
}

/** Requests of `prefixes` shared prefixes, each with an end of its own; gives the capacity at each hundredth request, as a multiple. */
async function learn(factor: number, prefixes: number, requests: number, seed: number): Promise<number[]> {
  const random = new Random(seed);
  const cache = new BlockCache(ENGINE_TOKENS / BLOCK_TOKENS);
  const table = await Table.create({ pods: 1, blocks: 50_000 });
  const capacity = new LearnedCapacity(ENGINE_TOKENS * factor);
  const pod = table.setPod({ pool: 0, podId: 1 });
  const resize = (): void => table.setCapacityBytes(pod, capacity.tokens * BYTES_PER_TOKEN);
  resize();
  const path: number[] = [];
  for (let request = 1; request <= requests; request++) {
    const prefix = drawPrefix(random, prefixes);
    const tokens = PREFIX_TOKENS + OWN_TOKENS;
    const numberOf = (at: number): number => (at < PREFIX_TOKENS ? prefix * 1e6 + at : 1e9 + request * 1e6 + at) + 1;
    const ours = Array.from({ length: tokens / OURS_TOKENS }, (_, i) => BigInt(numberOf(i * OURS_TOKENS)));
    const ends = ours.map((_, i) => (i + 1) * OURS_TOKENS * BYTES_PER_TOKEN);
    table.lookup(0, ours, ends);
    const predicted = table.matchBytes(pod) / BYTES_PER_TOKEN;
    table.touch(
      pod,
      1_000_000 + request * 100,
      0n,
      ours,
      ours.map(() => OURS_TOKENS * BYTES_PER_TOKEN),
    );

    const theirs = Array.from({ length: tokens / BLOCK_TOKENS }, (_, i) => numberOf(i * BLOCK_TOKENS));
    const { hits } = cache.match(theirs, theirs.length - 1);
    const blocks = theirs.map((key, i) => (i < hits ? cache.share(key) : cache.take()));
    theirs.forEach((key, i) => i >= hits && cache.commit(blocks[i]!, key));
    cache.release(blocks);

    const judged = table.exports.matchJudge(predicted, hits * BLOCK_TOKENS, OURS_TOKENS);
    const count = (code: number): number => Number(judged === code);
    const matches = { confirmed: count(1), contradicted: count(2), exceeded: count(3) };
    capacity.learn(matches, table.podBytes(pod) / table.podCapacityBytes(pod));
    if (capacity.moved()) resize();
    if (request % 100 === 0) path.push(capacity.tokens / ENGINE_TOKENS);
  }
  return path;
}

test.each([10, 0.5, 1])(
  'from %d times the real capacity, the guess is near it after 1,000 requests and stays there',
  async (factor) => {
    for (const seed of [1, 2, 3]) {
      const path = await learn(factor, 60, 6_000, seed);
      const settled = path.slice(10);
      expect(Math.min(...settled)).toBeGreaterThan(0.95);
      expect(Math.max(...settled)).toBeLessThan(1.35);
    }
  },
);

test('a table that is not full is not made larger, whatever is confirmed; and the guess has its bounds', () => {
  const capacity = new LearnedCapacity(100_000);
  capacity.learn({ confirmed: 1_000, contradicted: 0, exceeded: 10 }, 0.5);
  expect([capacity.tokens, capacity.moved()]).toEqual([100_000, false]);
  capacity.learn({ confirmed: 10, contradicted: 0, exceeded: 0 }, 1);
  expect(capacity.tokens).toBe(Math.round(100_000 * 1.002 ** 10));
  capacity.learn({ confirmed: 0, contradicted: 1, exceeded: 0 }, 0.5);
  expect(capacity.tokens).toBe(Math.round(100_000 * 1.002 ** 10 * 0.98));
  capacity.learn({ confirmed: 0, contradicted: 10_000, exceeded: 0 }, 1);
  expect([capacity.tokens, capacity.moved(), capacity.moved()]).toEqual([4_096, true, false]);
  capacity.learn({ confirmed: 100_000, contradicted: 0, exceeded: 0 }, 1);
  expect(capacity.tokens).toBe(16_000_000);
});
