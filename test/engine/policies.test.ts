// The policies beside prefill-cost, each against its own promise or its naive form: weighted, session and prefix-header; and what
// adapters, weights of pods and draining do to all of them.
import { fc, test as propertyTest } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';
import { adapterHash } from '../../control-plane/scrape.ts';
import { POLICY_CODES } from '../../control-plane/engine/frames.ts';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import type { TableExports } from '../../control-plane/engine/table-exports.ts';
import { POD_DRAIN, POD_READY, Table } from '../../control-plane/engine/table.ts';
import { weightedCosts } from '../oracle/policy.ts';
import { chainOf } from './chains.ts';

const { weighted, session } = POLICY_CODES;
const prefixHeader = POLICY_CODES['prefix-header'];
const prefillCost = POLICY_CODES['prefill-cost'];
const live = Object.entries(POLICY_CODES).filter(([name]) => name !== 'round-robin');
const NOW = 1_000_000;
const engine = await loadEngine<TableExports>();

function tableOf(count: number, weightOf = (_: number): number => 1, seed = 1n): { table: Table; slots: number[] } {
  const table = new Table(engine, { pods: 64, blocks: 4096, seed });
  const slots = Array.from({ length: count }, (_, i) =>
    table.setPod({ pool: 0, podId: i + 1, weight: weightOf(i), capacityTokens: 10_000 }),
  );
  return { table, slots };
}
const firstPick = (table: Table, policy: number, key: bigint, nowMs = NOW): number =>
  table.pick(0, policy, 2000, key, nowMs)[0]!.pod;
const keysOf = (count: number): bigint[] => Array.from({ length: count }, (_, i) => chainOf([i]).keys[0]!);

describe('weighted', () => {
  const prompt = chainOf([0, 1, 2, 0, 1, 2]);
  propertyTest.prop([
    fc.array(
      fc.record({
        held: fc.nat(6),
        queued: fc.nat(3000),
        running: fc.nat(5),
        kvUsage: fc.constantFrom(undefined, 0, 0.3, 1),
        weight: fc.constantFrom(1, 2, 0.5),
      }),
      { minLength: 1, maxLength: 8 },
    ),
    fc.record({ prefix: fc.integer({ min: 0, max: 9 }), queue: fc.nat(9), kv: fc.nat(9) }),
    fc.integer({ min: 1, max: 400 }),
  ])('picks the least of what is missing, waiting and used, by weight', (states, weights, outputTokens) => {
    const { table, slots } = tableOf(states.length, (i) => states[i]!.weight);
    const e = table.exports;
    e.poolWeightsSet(0, weights.prefix, weights.queue, weights.kv);
    e.poolObserveOutput(0, outputTokens);
    for (const [i, { held, queued, running, kvUsage }] of states.entries()) {
      table.touch(slots[i]!, NOW - 10, 0n, prompt.keys.slice(0, held), prompt.weights);
      e.loadForeignSet(0, slots[i]!, running, queued, queued);
      if (kvUsage !== undefined) table.metrics(slots[i]!, NOW - 10, { kvUsage });
    }
    table.lookup(0, prompt.keys, prompt.ends);
    const costs = weightedCosts(
      states.map((state) => ({
        matchBytes: state.held === 0 ? 0 : prompt.ends[state.held - 1]!,
        queuedTokens: state.queued,
        usedTokens: state.queued,
        inFlight: state.running,
        capacityTokens: 10_000,
        kvUsage: state.kvUsage,
        weight: state.weight,
      })),
      weights,
      { outputTokens, promptBytes: 2000 },
    );
    const picked = slots.indexOf(firstPick(table, weighted, 1n));
    expect(costs[picked]).toBeCloseTo(Math.min(...costs), 9);
  });

  test('other weights pick another pod', () => {
    const { table, slots } = tableOf(2);
    table.touch(slots[0]!, 1, 0n, prompt.keys, prompt.weights);
    table.exports.loadForeignSet(0, slots[0]!, 1, 1000, 1000);
    const picks = [
      [9, 2],
      [2, 3],
    ].map(([prefix, queue]) => {
      table.exports.poolWeightsSet(0, prefix!, queue!, 0);
      table.lookup(0, prompt.keys, prompt.ends);
      return firstPick(table, weighted, 1n);
    });
    expect(picks).toEqual(slots);
  });
});

describe('session', () => {
  test('sends a key to the same pod whoever picks, and moves only the keys of a pod that goes', () => {
    const keys = keysOf(2000);
    const { table } = tableOf(5);
    const before = keys.map((key) => table.podId(firstPick(table, session, key)));
    for (let podId = 1; podId <= 5; podId++) {
      expect(Math.abs(before.filter((one) => one === podId).length - 400)).toBeLessThan(100);
    }
    const { table: other } = tableOf(5, undefined, 77n);
    for (let i = 0; i < 9; i++) other.dispatch(other.findPod(0, 2), 5000, NOW);
    expect(keys.map((key) => other.podId(firstPick(other, session, key)))).toEqual(before);
    other.exports.podFlagsSet(other.findPod(0, 3), POD_READY | POD_DRAIN);
    const after = keys.map((key) => other.podId(firstPick(other, session, key)));
    for (const [i, podId] of before.entries()) expect(after[i] === podId).toBe(podId !== 3);
  });
});

describe('prefix-header', () => {
  test('keeps a key in its place until that pod has its share and a quarter of all requests', () => {
    const { table } = tableOf(4);
    const [key] = keysOf(1) as [bigint];
    const home = firstPick(table, prefixHeader, key);
    const seen: number[] = [];
    for (let i = 0; i < 400; i++) {
      const pod = firstPick(table, prefixHeader, key);
      table.dispatch(pod, 1, NOW);
      seen.push(pod);
    }
    const counts = Array.from({ length: 4 }, (_, pod) => seen.filter((one) => one === pod).length);
    // Of 400 requests 125 may be on one pod: a quarter more than their share.
    expect(Math.max(...counts)).toBe(125);
    expect(counts[home]).toBe(125);
  });

  test('follows weights', () => {
    const { table, slots } = tableOf(3, (i) => (i === 0 ? 2 : 1));
    const keys = keysOf(4000);
    const share = keys.filter((key) => firstPick(table, prefixHeader, key) === slots[0]).length / keys.length;
    expect(Math.abs(share - 0.5)).toBeLessThan(0.05);
  });
});

describe('a request that brings no key', () => {
  test.each([session, prefixHeader])('is picked for by prefill-cost (policy %i)', (policy) => {
    const { table, slots } = tableOf(3);
    const prompt = chainOf([0, 1, 2]);
    table.touch(slots[1]!, 1, 0n, prompt.keys, prompt.weights);
    table.lookup(0, prompt.keys, prompt.ends);
    expect(firstPick(table, policy, 0n)).toBe(slots[1]);
  });
});

describe('an adapter', () => {
  const names = ['sql', 'chat-de', 'a name: with, signs'];
  const loaded = names.map(adapterHash);

  test('is known by the same hash on both sides', () => {
    const e = engine.exports;
    const at = e.tableKeys() >>> 0;
    for (const name of [...names, '', 'ü'.repeat(50)]) {
      const bytes = new TextEncoder().encode(name);
      new Uint8Array(e.memory.buffer, at, bytes.length).set(bytes);
      expect(e.adapterHashOf(at, bytes.length) >>> 0).toBe(adapterHash(name));
    }
  });

  test('draws its requests to a pod that has it in use, unless that one has much more in hand', () => {
    const { table, slots } = tableOf(4);
    const [e, hash] = [table.exports, loaded[0]!];
    table.lookup(0, [], []);
    const pick = (adapter: number): number => table.pick(0, prefillCost, 2000, 0n, NOW, adapter)[0]!.pod;
    e.adaptersAdd(slots[2]!, loaded[1]!);
    e.adaptersAdd(slots[2]!, hash);
    for (let i = 0; i < 30; i++) expect(pick(hash)).toBe(slots[2]);
    expect(new Set(Array.from({ length: 60 }, () => pick(adapterHash('elsewhere')))).size).toBe(4);
    e.loadForeignSet(0, slots[2]!, 8, 8000, 8000);
    for (let i = 0; i < 30; i++) expect(pick(hash)).not.toBe(slots[2]);
    e.loadForeignSet(0, slots[2]!, 0, 0, 0);
    e.adaptersClear(slots[2]!);
    expect(new Set(Array.from({ length: 60 }, () => pick(hash))).size).toBe(4);
  });

  test('beyond those there is room for is left out, and a new pod has none', () => {
    const { table, slots } = tableOf(1);
    const e = table.exports;
    for (let hash = 1; hash <= 100; hash++) e.adaptersAdd(slots[0]!, hash);
    expect([1, 16, 17, 100].map((hash) => e.adaptersHas(slots[0]!, hash))).toEqual([1, 1, 0, 0]);
    table.removePod(slots[0]!);
    const again = table.setPod({ pool: 0, podId: 9 });
    expect(e.adaptersHas(again, 1)).toBe(0);
    for (const pod of [-1, 4096]) expect(e.adaptersHas(pod, 1)).toBe(0);
  });
});

describe.each(live)('%s', (_, policy) => {
  test('gives a pod of twice the weight twice the work', () => {
    const { table, slots } = tableOf(3, (i) => (i === 0 ? 2 : 1));
    table.exports.poolWeightsSet(0, 0, 1, 0);
    const counts = slots.map(() => 0);
    for (const [i, key] of keysOf(2000).entries()) {
      // Requests of one length, 40 in flight at a time.
      table.lookup(0, [key], [2000]);
      const pod = firstPick(table, policy, key, NOW + i);
      counts[slots.indexOf(pod)]!++;
      table.dispatch(pod, 500, NOW + i);
      flights.push(pod);
      if (flights.length > 40) table.end(flights.shift()!, 500, true);
    }
    flights.length = 0;
    const share = counts[0]! / 2000;
    expect(share, counts.join(' ')).toBeGreaterThan(0.42);
    expect(share, counts.join(' ')).toBeLessThan(0.58);
  });
  const flights: number[] = [];
});
