// Picks against naive costs on random states, against a computed example, and each baseline's own promise.
import { fc, test as propertyTest } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import type { TableExports } from '../../control-plane/engine/table-exports.ts';
import { POD_DRAIN, POD_READY, Table } from '../../control-plane/engine/table.ts';
import {
  SPREAD_TOKENS,
  candidatesOf,
  leastRequestCosts,
  prefillCostsFirst,
  prefillPrices,
  stayOrMove,
  uncachedTokens,
  type PodState,
  type PoolState,
  type Prices,
} from '../oracle/policy.ts';
import { chainOf } from './chains.ts';

const PREFILL_COST = 0;
const LEAST_REQUEST = 1;
const ROUND_ROBIN = 2;
const FIRST_BLOCK_HASH = 3;
const PREFILL_COST_FIRST = 4;
/** How fast cold work and regret fade. */
const COLD_TAU_MS = 180_000;

const engine = await loadEngine<TableExports>();
const fresh = (seed = 1n): Table => new Table(engine, { pods: 64, blocks: 4096, seed });
const NOW = 1_000_000;

const podState = fc.record({
  ready: fc.constantFrom(true, true, true, false),
  drain: fc.constantFrom(false, false, false, true),
  cooling: fc.constantFrom(false, false, true),
  weight: fc.constantFrom(1, 1, 2, 0.5),
  requests: fc.array(fc.record({ u: fc.nat(3000), started: fc.boolean() }), { maxLength: 6 }),
  foreign: fc.record({ n: fc.nat(4), q: fc.nat(2000), used: fc.nat(4000) }),
  slowness: fc.constantFrom(0, 40e-6, 71e-6, 270e-6),
  toldMs: fc.constantFrom(0, 30, 300),
  capacityTokens: fc.constantFrom(0, 3000, 31_000),
  kvUsage: fc.constantFrom(undefined, 0, 0.4, 0.99),
  held: fc.nat(6),
  /** What others gave it to compute, and how long ago. */
  cold: fc.array(fc.record({ tokens: fc.nat(20_000), ageMs: fc.nat(400_000) }), { maxLength: 3 }),
});
const path = [0, 1, 2, 0, 1, 2];
const prompt = chainOf(path);
const promptBytes = 2000;

/** Brings a table and the naive state to the same point. */
function arrange(
  table: Table,
  states: readonly (typeof podState extends fc.Arbitrary<infer T> ? T : never)[],
): PodState[] {
  return states.map((state, i) => {
    const pod = table.setPod({ pool: 2, podId: 100 + i, ...state });
    const e = table.exports;
    if (state.cooling) for (let i = 0; i < 3; i++) table.failure(pod, NOW - 10);
    for (const { u, started } of state.requests) {
      table.dispatch(pod, u, NOW - 5);
      if (started) table.firstToken(pod, u);
    }
    for (const { tokens, ageMs } of state.cold) e.loadCold(pod, tokens, NOW - ageMs);
    e.loadForeignSet(3, pod, state.foreign.n, state.foreign.q, state.foreign.used);
    if (state.slowness > 0) e.loadSlownessLearn(pod, state.slowness);
    e.loadTold(pod, state.toldMs, 5);
    if (state.kvUsage !== undefined) table.metrics(pod, NOW - 100, { kvUsage: state.kvUsage });
    table.touch(pod, NOW - 100, 0n, prompt.keys.slice(0, state.held), prompt.weights);
    const sum = (requests: typeof state.requests): number => requests.reduce((total, { u }) => total + u, 0);
    return {
      ...state,
      pod,
      podId: 100 + i,
      toldSlowness: e.podToldSlowness(pod),
      inFlight: state.requests.length + state.foreign.n,
      queuedTokens: sum(state.requests.filter(({ started }) => !started)) + state.foreign.q,
      usedTokens: sum(state.requests) + state.foreign.used,
      matchBytes: state.held === 0 ? 0 : prompt.ends[state.held - 1]!,
      coldTokens: state.cold.reduce(
        (total, { tokens, ageMs }) => total + tokens * Math.exp(-ageMs / COLD_TAU_MS),
        sum(state.requests) * Math.exp(-5 / COLD_TAU_MS),
      ),
    };
  });
}

/** The first pick is within `spread` of the lowest cost, and the others are the next lowest. */
function expectPicks(table: Table, policy: number, pods: PodState[], costs: number[], spread: number): void {
  const candidates = candidatesOf(pods);
  const cost = new Map(candidates.map((pod, i) => [pod.pod, costs[i]!]));
  const picks = table.pick(2, policy, promptBytes, prompt.keys[0]!, NOW);
  expect(picks.length).toBe(Math.min(3, candidates.length));
  const picked = picks.map(({ pod }) => pod);
  expect(new Set(picked).size).toBe(picked.length);
  if (picked.length === 0) return;
  expect(cost.get(picked[0]!)).toBeLessThanOrEqual(Math.min(...costs) + spread + 1e-6);
  const rest = [...cost]
    .filter(([pod]) => pod !== picked[0])
    .map(([, value]) => value)
    .toSorted((a, b) => a - b);
  for (const [i, pod] of picked.slice(1).entries()) expect(cost.get(pod)).toBeCloseTo(rest[i]!, 6);
}

function meanOf(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((a, b) => a + b, 0) / values.length;
}

/** Picks by prefill-cost again and again while nothing else happens but time: it stays until regret makes it go. */
function expectRegret(table: Table, candidates: PodState[], prices: Prices): void {
  const least = Math.min(...prices.costs);
  const near = prices.costs.flatMap((cost, i) => (cost <= least + SPREAD_TOKENS + 1e-6 ? [i] : []));
  const isHeld = candidates.some(({ matchBytes }) => matchBytes > 0);
  let regret = 0;
  for (let turn = 0; turn < 12; turn++) {
    const picked = table.pick(2, PREFILL_COST, promptBytes, prompt.keys[0]!, NOW)[0]?.pod;
    const outcomes = near.map((stay) => (isHeld ? stayOrMove(prices, stay, regret) : { pick: stay, regret: 0 }));
    if (outcomes.length === 0) expect(picked).toBeUndefined();
    else expect(outcomes.map(({ pick }) => candidates[pick]!.pod)).toContain(picked);
    // Which of several was drawn cannot be seen from outside.
    if (outcomes.length !== 1) return;
    ({ regret } = outcomes[0]!);
  }
}

describe('against the naive policies', () => {
  propertyTest.prop([
    fc.array(podState, { maxLength: 8 }),
    fc.constantFrom(undefined, 3.1, 1.7),
    fc.array(fc.integer({ min: 1, max: 900 }), { maxLength: 3 }),
    fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
  ])('prefill-cost, its first form and least-request pick the cheapest', (states, ratio, outputs, seed) => {
    const table = fresh(seed);
    if (ratio !== undefined) table.exports.poolBytesPerTokenSet(2, ratio);
    for (const tokens of outputs) table.exports.poolObserveOutput(2, tokens);
    const pods = arrange(table, states);
    const pool: PoolState = {
      bytesPerToken: ratio ?? 4,
      outputTokens: meanOf(outputs),
      uncachedTokens: meanOf(states.flatMap(({ requests }) => requests.map(({ u }) => u))),
    };
    table.lookup(2, prompt.keys, prompt.ends);
    const candidates = candidatesOf(pods);
    const first = prefillCostsFirst(candidates, pool, promptBytes);
    expectPicks(table, PREFILL_COST_FIRST, pods, first, SPREAD_TOKENS);
    expectRegret(table, candidates, prefillPrices(candidates, pool, promptBytes));
    for (const { pod, uncachedTokens: u } of table.pick(2, PREFILL_COST, promptBytes, 1n, NOW)) {
      expect(u).toBe(
        uncachedTokens(
          pods.find((state) => state.pod === pod)!,
          pool,
          promptBytes,
        ),
      );
    }
    expectPicks(table, LEAST_REQUEST, pods, leastRequestCosts(candidates), 0);
    for (const policy of [ROUND_ROBIN, FIRST_BLOCK_HASH, 99]) {
      const picks = table.pick(2, policy, promptBytes, prompt.keys[0]!, NOW).map(({ pod }) => pod);
      expect(new Set(picks).size).toBe(Math.min(3, candidates.length));
      for (const pod of picks) expect(candidates.some((state) => state.pod === pod)).toBe(true);
    }
  });
});

describe('prefill-cost, first form', () => {
  // Two pods, 8,000 bytes at 4 bytes a token: A holds 6,000 bytes and has a request of 1,000 tokens that waits for its first
  // token, B is empty and idle.
  //   A: u = 500,  (1 + 0.2) * 1000 + (1.25 + 0.5) * 500 + 400 = 2475
  //   B: u = 2000, 1.25 * 2000                               = 2500
  // They are within 32 tokens of each other, so both are picked; with 60 tokens more on A (2547) only B is.
  function twoPods(seed: bigint, queued: number): { table: Table; a: number; b: number } {
    const table = fresh(seed);
    const a = table.setPod({ pool: 0, podId: 1 });
    const b = table.setPod({ pool: 0, podId: 2 });
    table.touch(a, 1, 0n, [11n, 12n, 13n], [2000, 2000, 2000]);
    table.dispatch(a, queued, 2);
    table.lookup(0, [11n, 12n, 13n, 14n], [2000, 4000, 6000, 8000]);
    return { table, a, b };
  }

  test('the example', () => {
    const { table, a, b } = twoPods(5n, 1000);
    const firsts = Array.from({ length: 400 }, () => table.pick(0, PREFILL_COST_FIRST, 8000, 11n, 3)[0]!);
    const share = firsts.filter(({ pod }) => pod === a).length / firsts.length;
    expect(share).toBeGreaterThan(0.4);
    expect(share).toBeLessThan(0.6);
    expect(firsts.find(({ pod }) => pod === a)?.uncachedTokens).toBe(500);
    expect(firsts.find(({ pod }) => pod === b)?.uncachedTokens).toBe(2000);
    const loaded = twoPods(5n, 1060);
    for (let i = 0; i < 50; i++) {
      expect(loaded.table.pick(0, PREFILL_COST_FIRST, 8000, 11n, 3).map(({ pod }) => pod)).toEqual([
        loaded.b,
        loaded.a,
      ]);
    }
  });

  test('the same seed picks the same, another one does not', () => {
    const run = (seed: bigint): number[] => {
      const { table } = twoPods(seed, 1000);
      return Array.from({ length: 64 }, () => table.pick(0, PREFILL_COST_FIRST, 8000, 11n, 3)[0]!.pod);
    };
    expect(run(9n)).toEqual(run(9n));
    expect(run(9n)).not.toEqual(run(10n));
  });

  test('a slow pod gets less, and a pod that is nearly full of KV none', () => {
    const table = fresh();
    const slow = table.setPod({ pool: 0, podId: 1, capacityTokens: 100_000 });
    const full = table.setPod({ pool: 0, podId: 2, capacityTokens: 100_000 });
    const good = table.setPod({ pool: 0, podId: 3, capacityTokens: 100_000 });
    for (const pod of [full, good]) table.exports.loadSlownessLearn(pod, 50e-6);
    table.exports.loadSlownessLearn(slow, 200e-6);
    table.metrics(full, NOW, { kvUsage: 0.99 });
    table.lookup(0, [], []);
    expect(table.pick(0, PREFILL_COST_FIRST, 4000, 0n, NOW + 1)[0]?.pod).toBe(good);
    for (let i = 0; i < 6; i++) table.dispatch(good, 200, NOW + 1);
    expect(table.pick(0, PREFILL_COST_FIRST, 4000, 0n, NOW + 1)[0]?.pod).not.toBe(good);
    expect(table.pick(0, PREFILL_COST_FIRST, 4000, 0n, NOW + 6000)[0]?.pod).toBe(full);
  });
});

describe('the baselines', () => {
  function pods(table: Table, count: number, weightOf = (_: number): number => 1): number[] {
    return Array.from({ length: count }, (_, i) => table.setPod({ pool: 1, podId: i + 1, weight: weightOf(i) }));
  }
  const first = (table: Table, policy: number, key = 0n): number => table.pick(1, policy, 100, key, NOW)[0]!.pod;
  const tally = (picks: number[]): Map<number, number> =>
    picks.reduce((counts, pod) => counts.set(pod, (counts.get(pod) ?? 0) + 1), new Map<number, number>());

  test('round robin gives every pod its turn, twice as often with twice the weight', () => {
    const table = fresh();
    const slots = pods(table, 5);
    for (let lap = 0; lap < 3; lap++) {
      expect(new Set(slots.map(() => first(table, ROUND_ROBIN)))).toEqual(new Set(slots));
    }
    const weighted = fresh();
    const [heavy] = pods(weighted, 3, (i) => (i === 0 ? 2 : 1));
    const counts = tally(Array.from({ length: 400 }, () => first(weighted, ROUND_ROBIN)));
    expect([...counts.values()].toSorted()).toEqual([100, 100, 200]);
    expect(counts.get(heavy!)).toBe(200);
  });

  test('ties of least request are broken at random', () => {
    const table = fresh();
    pods(table, 4);
    const counts = tally(Array.from({ length: 2000 }, () => first(table, LEAST_REQUEST)));
    for (const count of counts.values()) expect(Math.abs(count - 500)).toBeLessThan(100);
  });

  test('first-block-hash sends a key to the same pod everywhere, and moves only the keys of a pod that goes', () => {
    const keys = Array.from({ length: 3000 }, (_, i) => chainOf([i]).keys[0]!);
    const table = fresh(1n);
    pods(table, 6);
    const before = keys.map((key) => table.podId(first(table, FIRST_BLOCK_HASH, key)));
    for (const count of tally(before).values()) expect(Math.abs(count - 500)).toBeLessThan(100);
    const other = fresh(2n);
    for (const podId of [6, 3, 1, 2, 5, 4]) other.setPod({ pool: 1, podId });
    expect(keys.map((key) => other.podId(first(other, FIRST_BLOCK_HASH, key)))).toEqual(before);
    other.removePod(other.findPod(1, 4));
    const after = keys.map((key) => other.podId(first(other, FIRST_BLOCK_HASH, key)));
    for (const [i, podId] of before.entries()) expect(after[i] === podId).toBe(podId !== 4);
  });

  test('only pods that are ready, not draining and not cooling are picked, and cooling ones when there is no other', () => {
    const table = fresh();
    const [down, draining, failing, good] = pods(table, 4) as [number, number, number, number];
    table.exports.podFlagsSet(down, 0);
    table.exports.podFlagsSet(draining, POD_READY | POD_DRAIN);
    for (let i = 0; i < 3; i++) table.failure(failing, NOW);
    for (const policy of [0, 1, 2, 3, 4]) {
      expect(table.pick(1, policy, 100, 1n, NOW + 1).map(({ pod }) => pod)).toEqual([good]);
    }
    table.exports.podFlagsSet(good, 0);
    for (const policy of [0, 1, 2, 3, 4]) {
      expect(table.pick(1, policy, 100, 1n, NOW + 1).map(({ pod }) => pod)).toEqual([failing]);
    }
    table.exports.podFlagsSet(failing, 0);
    for (const policy of [0, 1, 2, 3, 4]) expect(table.pick(1, policy, 100, 1n, NOW + 1)).toEqual([]);
    for (const pool of [0, 7, 8, -1]) expect(table.pick(pool, 0, 100, 1n, NOW)).toEqual([]);
  });
});
