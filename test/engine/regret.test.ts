// When prefill-cost copies a prefix: at once when it pays at once, after regret when waiting has cost as much, never for nothing.
import { describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import type { TableExports } from '../../control-plane/engine/table-exports.ts';
import { Table } from '../../control-plane/engine/table.ts';

const PREFILL_COST = 0;
const NOW = 1_000_000;
const engine = await loadEngine<TableExports>();

// Two pods, blocks of 4,000 bytes at 4 bytes a token. A holds the first three blocks of four and has four requests in flight
// that have their first token, B is empty. By hand, with n = 4 and 0, u = 1000 and 4000, M - m = 0 and 3000, mean n = 2:
//   b_A = 1000 (1 + 0.15 * 4) + 100 * 4 = 2000      c_A = 2000
//   b_B = 4000                                      c_B = 4000 + 0.6 * 2 * 3000 = 7600
// It stays, and since b_A is the lower one there is nothing to regret. Each 1000 tokens that wait on A add 1600 to b_A.
const KEYS = [11n, 12n, 13n, 14n];
const ENDS = [4000, 8000, 12_000, 16_000];

function twoPods(waitingTokens: number): { table: Table; a: number; b: number } {
  const table = new Table(engine, { pods: 64, blocks: 32_768, seed: 3n });
  const a = table.setPod({ pool: 0, podId: 1 });
  const b = table.setPod({ pool: 0, podId: 2 });
  table.touch(a, 1, 0n, KEYS.slice(0, 3), [4000, 4000, 4000]);
  table.exports.loadForeignSet(0, a, 4, waitingTokens, 0);
  return { table, a, b };
}

function pick(table: Table, nowMs = NOW, keys = KEYS): number {
  table.lookup(0, keys, ENDS);
  return table.pick(0, PREFILL_COST, 16_000, keys[0]!, nowMs)[0]!.pod;
}

describe('prefill-cost', () => {
  test('stays with a prefix while no other pod is better, however often', () => {
    const { table, a } = twoPods(0);
    for (let i = 0; i < 100; i++) expect(pick(table)).toBe(a);
  });

  test('regrets what staying costs, and goes when that is the price of the copy', () => {
    // 2000 tokens wait: b_A = 3000 * 1.6 + 400 = 5200, 1200 more than b_B. The price is 0.6 * 2 * 3000 = 3600: three such.
    const { table, a, b } = twoPods(2000);
    expect([1, 2, 3, 4, 5, 6, 7].map(() => pick(table))).toEqual([a, a, b, a, a, b, a]);
  });

  test('goes at once when one wait costs more than the copy', () => {
    const { table, b } = twoPods(5000);
    expect([1, 2, 3].map(() => pick(table))).toEqual([b, b, b]);
  });

  test('does not copy from one long queue to another, which would only be longer for all who come after', () => {
    const { table, a, b } = twoPods(42_000);
    for (const pod of [a, b]) {
      table.dispatch(pod, 1000, NOW);
      table.end(pod, 1000, true);
    }
    // ubar is 1000 and both were given as much. b_A = 43,000 * 1.6 + 400 = 69,200. With 40,000 tokens on B b_B = 40,000 + 4000 + 0.3 * 3000 * 40 = 80,000.
    table.exports.loadForeignSet(0, b, 0, 40_000, 0);
    for (let i = 0; i < 20; i++) expect(pick(table)).toBe(a);
    // With 10,000 it is 23,000.
    table.exports.loadForeignSet(0, b, 0, 10_000, 0);
    expect(pick(table)).toBe(b);
  });

  test('regret fades', () => {
    const { table, a, b } = twoPods(2000);
    // Of 1200 a minute ago 441 are left, so the sums are 1200, 1641, 1804, 1864 ... and never 3600.
    for (let i = 0; i < 20; i++) expect(pick(table, NOW + i * 60_000)).toBe(a);
    // Ten seconds apart they are 1200, 2216, 3076, 3803.
    expect([1, 2, 3, 4].map((i) => pick(table, NOW + 1e7 + i * 10_000))).toEqual([a, a, a, b]);
  });

  test('prefixes regret apart, and a session whose last block changes begins anew each time', () => {
    const { table, a, b } = twoPods(2000);
    table.touch(a, 1, 0n, [21n, 22n, 23n], [4000, 4000, 4000]);
    const other = [21n, 22n, 23n, 24n];
    expect([pick(table), pick(table, NOW, other), pick(table), pick(table, NOW, other), pick(table)]).toEqual([
      a,
      a,
      a,
      a,
      b,
    ]);
    for (let turn = 0n; turn < 10n; turn++) {
      const chain = [11n, 12n, 100n + turn];
      table.touch(a, 2 + Number(turn), 0n, chain, [4000, 4000, 4000]);
      expect(pick(table, NOW, [...chain, 14n])).toBe(a);
    }
  });

  test('so many prefixes that not all are remembered do no harm, and the newest is', () => {
    const { table, a, b } = twoPods(2000);
    for (let i = 0n; i < 20_000n; i++) {
      const key = 1000n + i;
      table.touch(a, 2, 0n, [key], [1]);
      table.lookup(0, [key], [12_000]);
      table.pick(0, PREFILL_COST, 16_000, key, NOW + Number(i) / 100);
    }
    expect([1, 2, 3].map(() => pick(table, NOW + 200))).toEqual([a, a, b]);
  });

  test('prompts that nobody holds go to pods that were given little to compute lately', () => {
    const table = new Table(engine, { pods: 64, blocks: 256, seed: 3n });
    const slots = [1, 2, 3, 4].map((podId) => table.setPod({ pool: 0, podId }));
    for (const pod of slots.slice(1)) {
      table.dispatch(pod, 3000, NOW);
      table.end(pod, 3000, true);
    }
    for (let i = 0n; i < 20n; i++) expect(pick(table, NOW + 1000, [50n + i])).toBe(slots[0]);
    // An hour later that is forgotten.
    const later = Array.from({ length: 100 }, (_, i) => pick(table, NOW + 3.6e6, [200n + BigInt(i)]));
    expect(new Set(later)).toEqual(new Set(slots));
  });
});
