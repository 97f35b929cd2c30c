// The table against the naive one: the same commands, the same contents in the same order, and the same matches.
import { fc, test as propertyTest } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import type { TableExports } from '../../control-plane/engine/table-exports.ts';
import { EXPORT_DONE, Table } from '../../control-plane/engine/table.ts';
import { ResidencyOracle } from '../oracle/residency.ts';
import { chainOf, readTouches, type Chain } from './chains.ts';

const engine = await loadEngine<TableExports>();
const small = (blocks = 4096, pods = 64): Table => new Table(engine, { pods, blocks });
const total = (chain: Chain): number => chain.ends.at(-1) ?? 0;

function addPods(table: Table, oracle: ResidencyOracle, count: number, capacityBytes: number): void {
  for (let pod = 0; pod < count; pod++) {
    table.exports.residencyPodAdd(pod, pod % 2, BigInt(capacityBytes));
    oracle.add(pod, pod % 2, capacityBytes);
  }
}

/** Everything that a pod holds, newest first, by exports of at most `room` bytes each. */
function contents(table: Table, pod: number, room = 4096) {
  const held = [];
  let calls = 0;
  for (let cursor = 0n; cursor !== EXPORT_DONE; calls++) {
    expect(calls).toBeLessThan(10_000);
    const part = table.export(pod, cursor, room);
    const touches = readTouches(part.bytes);
    expect(part.bytes.length).toBeLessThanOrEqual(room);
    expect(touches.length).toBe(part.records);
    expect(touches.reduce((sum, touch) => sum + touch.keys.length, 0)).toBe(part.keys);
    for (const { keys, weights, parentKey, timeMs } of touches) {
      for (const [k, key] of keys.entries()) {
        held.push({ key, timeMs, weight: weights[k], parent: k === 0 ? parentKey : keys[k - 1] });
      }
    }
    cursor = part.next;
  }
  return held;
}

function expectSame(table: Table, oracle: ResidencyOracle, pods: number, room?: number): void {
  for (let pod = 0; pod < pods; pod++) {
    const expected = oracle.list(pod).map(({ depth: _, ...held }) => held);
    expect(contents(table, pod, room)).toEqual(expected);
    expect(table.podBytes(pod)).toBe(oracle.bytes(pod));
    expect(table.podBlocks(pod)).toBe(expected.length);
  }
}

const path = fc.array(fc.nat(2), { minLength: 1, maxLength: 12 });
const time = fc.integer({ min: 1, max: 40 });
const pod = fc.nat(4);
const command = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('touch' as const), pod, time, path, skip: fc.nat(6) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('clear' as const), pod, time }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('capacity' as const), pod, bytes: fc.nat(4000) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('add' as const), pod, pool: fc.nat(1) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove' as const), pod }) },
);

describe('against the naive table', () => {
  propertyTest.prop([fc.array(command, { maxLength: 40 }), fc.array(path, { minLength: 1, maxLength: 4 })])(
    'the same commands leave the same contents and matches',
    (commands, prompts) => {
      const table = small();
      const oracle = new ResidencyOracle();
      addPods(table, oracle, 5, 2500);
      for (const step of commands) {
        if (step.kind === 'touch') {
          const { keys, weights } = chainOf(step.path);
          const from = Math.min(step.skip, keys.length);
          const parent = from === 0 ? 0n : (keys[from - 1] ?? 0n);
          table.touch(step.pod, step.time, parent, keys.slice(from), weights.slice(from));
          oracle.touch(step.pod, step.time, parent, keys.slice(from), weights.slice(from));
        } else if (step.kind === 'clear') {
          table.clearPod(step.pod, step.time);
          oracle.clear(step.pod, step.time);
        } else if (step.kind === 'capacity') {
          table.setCapacityBytes(step.pod, step.bytes);
          oracle.capacity(step.pod, step.bytes);
        } else if (step.kind === 'add') {
          table.exports.residencyPodAdd(step.pod, step.pool, 3000n);
          oracle.add(step.pod, step.pool, 3000);
        } else {
          table.exports.residencyPodRemove(step.pod);
          oracle.remove(step.pod);
        }
      }
      expectSame(table, oracle, 5);
      expectSame(table, oracle, 5, 64);
      for (const prompt of prompts) {
        const { keys, ends } = chainOf(prompt);
        for (const pool of [0, 1]) {
          const expected = oracle.lookup(pool, keys, ends);
          expect(table.lookup(pool, keys, ends)).toBe(Math.max(0, ...expected.values()));
          for (const [member, bytes] of expected) expect(table.matchBytes(member)).toBe(bytes);
        }
      }
      expect(table.counters().misplaced).toBe(0n);
    },
  );

  propertyTest.prop([
    fc.array(fc.record({ time, path, clear: fc.integer({ min: 0, max: 15 }) }), { minLength: 2, maxLength: 30 }),
    fc.infiniteStream(fc.nat(1000)),
    fc.integer({ min: 100, max: 6000 }),
  ])('touches that arrive in another order leave the same list', (events, shuffle, capacityBytes) => {
    const run = (order: typeof events): [bigint, bigint, number] => {
      const table = small();
      table.exports.residencyPodAdd(0, 0, BigInt(capacityBytes));
      for (const event of order) {
        const { keys, weights } = chainOf(event.path);
        if (event.clear === 0) table.clearPod(0, event.time);
        else table.touch(0, event.time, 0n, keys, weights);
      }
      return [table.podOrderDigest(0), table.podDigest(0), table.podBytes(0)];
    };
    const shuffled = events
      .map((event) => ({ event, rank: shuffle.next().value ?? 0 }))
      .toSorted((a, b) => a.rank - b.rank)
      .map(({ event }) => event);
    expect(run(shuffled)).toEqual(run(events));
  });
});

describe('touch', () => {
  test('the head of the newest prompt outlives its tail', () => {
    const table = small();
    const prompt = chainOf([0, 1, 2, 0, 1, 2]);
    table.exports.residencyPodAdd(3, 0, BigInt(prompt.ends[2]!));
    table.touch(3, 10, 0n, prompt.keys, prompt.weights);
    expect(table.lookup(0, prompt.keys, prompt.ends)).toBe(prompt.ends[2]);
    expect(table.podBlocks(3)).toBe(3);
  });

  test('a touch that names only the deepest known key renews the whole chain, on a pod that held none of it too', () => {
    const table = small();
    const prompt = chainOf([0, 1, 2, 0]);
    for (const pod of [0, 1]) table.exports.residencyPodAdd(pod, 0, 100_000n);
    table.touch(0, 10, 0n, prompt.keys, prompt.weights);
    table.touchChain(1, 20, prompt.keys[2]!);
    table.lookup(0, prompt.keys, prompt.ends);
    expect([table.matchBytes(0), table.matchBytes(1)]).toEqual([total(prompt), prompt.ends[2]]);
    expect([table.matchKeys(0), table.matchKeys(1)]).toEqual([4, 3]);
  });

  test('a renewed beginning is not evicted by the blocks that follow it', () => {
    const table = small();
    const prompt = chainOf([0, 1, 2, 0, 1]);
    table.exports.residencyPodAdd(0, 0, BigInt(total(prompt)));
    table.touch(0, 1, 0n, prompt.keys.slice(0, 3), prompt.weights.slice(0, 3));
    table.touch(0, 2, 0n, [77n], [prompt.weights[3]! + prompt.weights[4]!]);
    table.touch(0, 3, prompt.keys[2]!, prompt.keys.slice(3), prompt.weights.slice(3));
    expect(table.lookup(0, prompt.keys, prompt.ends)).toBe(total(prompt));
    expect(table.holds(0, 77n)).toBe(false);
  });

  test('touches of an unknown parent are counted and still hold their own keys', () => {
    const table = small();
    table.exports.residencyPodAdd(0, 0, 1000n);
    table.touch(0, 1, 5n, [6n], [10]);
    expect(table.counters().orphans).toBe(1n);
    expect(table.holds(0, 6n)).toBe(true);
    expect(table.lookup(0, [5n, 6n], [10, 20])).toBe(0);
  });

  test('nothing that makes no sense changes anything or traps', () => {
    const table = small();
    table.exports.residencyPodAdd(0, 0, 1000n);
    table.touch(0, 5, 0n, [1n], [10]);
    const digest = table.podOrderDigest(0);
    const wild = [-1, 64, 1024, 2 ** 31 - 1];
    for (const pod of wild) {
      table.touch(pod, 5, 0n, [1n], [10]);
      table.touchChain(pod, 5, 1n);
      table.clearPod(pod, 1e9);
      table.setCapacityBytes(pod, 0);
      table.removePod(pod);
      table.exports.residencyPodRemove(pod);
      expect(table.podBytes(pod)).toBe(0);
      expect(table.holds(pod, 1n)).toBe(false);
      expect(table.exports.residencyPodAdd(pod, 0, 1n)).toBe(0);
      expect(table.exports.residencyPodAdd(0, pod, 1n)).toBe(pod === -1 || pod > 7 ? 0 : 1);
      expect(table.lookup(pod, [1n], [10])).toBe(0);
    }
    table.touch(0, Number.NaN, 0n, [2n], [10]);
    table.touch(0, -5, 0n, [2n], [10]);
    table.touch(0, 5, 0n, [0n], [10]);
    expect(table.podOrderDigest(0)).toBe(digest);
    table.touch(0, Number.POSITIVE_INFINITY, 0n, [3n], [10]);
    expect(table.holds(0, 3n)).toBe(true);
  });
});

describe('bounds', () => {
  test('a full table takes from the pod that holds the most', () => {
    const table = small(100);
    for (const pod of [0, 1]) table.exports.residencyPodAdd(pod, 0, 1_000_000n);
    for (let i = 0; i < 300; i++) table.touch(0, i + 1, 0n, [BigInt(i + 1)], [10]);
    expect(table.podBlocks(0)).toBe(100);
    for (let i = 0; i < 300; i++) table.touch(1, 1000 + i, 0n, [BigInt(1000 + i)], [10]);
    expect(table.podBlocks(0) + table.podBlocks(1)).toBe(100);
    expect(table.podBlocks(0)).toBeGreaterThan(15);
    expect(table.podBlocks(1)).toBeGreaterThan(45);
    expect(table.counters()).toMatchObject({ blocksUsed: 100, keysUsed: 100, exhausted: 500n });
  });

  test('64 pods that hold 400,000 blocks fit 32 MB, and 1,000 pods are possible', async () => {
    const gateway = await Table.create({ pods: 64, blocks: 400_000 });
    expect(gateway.counters().bytesReserved).toBeLessThan(32 << 20);
    const large = small(50_000, 1000);
    const prompt = chainOf(Array.from({ length: 40 }, (_, i) => i % 3));
    for (let pod = 0; pod < 1000; pod++) {
      large.exports.residencyPodAdd(pod, 1, 1_000_000n);
      large.touch(pod, pod + 1, 0n, prompt.keys.slice(0, 1 + (pod % 40)), prompt.weights);
    }
    expect(large.lookup(1, prompt.keys, prompt.ends)).toBe(total(prompt));
    for (let pod = 0; pod < 1000; pod++) expect(large.matchBytes(pod)).toBe(prompt.ends[pod % 40]);
  });

  test('a table larger than can be reserved is as large as can be', async () => {
    const table = await Table.create({ pods: 5000, blocks: 2 ** 32 - 1 });
    expect(table.exports.residencyPods()).toBe(1024);
    expect(table.counters().blocks).toBeGreaterThan(2_000_000);
    expect(table.counters().bytesReserved).toBeLessThanOrEqual(385 << 20);
    const none = new Table(engine, { pods: 0, blocks: 0 });
    none.exports.residencyPodAdd(0, 0, 1000n);
    none.touch(0, 1, 0n, [1n, 2n], [10, 10]);
    expect(none.lookup(0, [1n, 2n], [10, 20])).toBe(10);
  });

  test('memory does not grow over 100,000 operations', async () => {
    const table = await Table.create({ pods: 64, blocks: 20_000, seed: 7n });
    for (let pod = 0; pod < 64; pod++) table.setPod({ pool: 0, podId: pod + 1, capacityTokens: 20_000 });
    const buffer = table.engine.exports.memory.buffer;
    const bytes = buffer.byteLength;
    let random = 1;
    const next = (bound: number): number => (random = (random * 48_271) % 2_147_483_647) % bound;
    for (let i = 0; i < 100_000; i++) {
      const chain = chainOf([next(5), next(9), next(9), next(9)]);
      table.lookup(0, chain.keys, chain.ends);
      const picks = table.pick(0, i % 4, total(chain), chain.keys[0]!, i);
      const first = picks[0]!;
      table.touch(first.pod, i - next(50), 0n, chain.keys, chain.weights);
      table.dispatch(first.pod, first.uncachedTokens, i);
      table.end(first.pod, first.uncachedTokens, true);
      if (i % 1000 === 0) table.clearPod(next(64), i - 500);
    }
    expect(table.engine.exports.memory.buffer).toBe(buffer);
    expect(buffer.byteLength).toBe(bytes);
    expect(table.counters().violations).toBe(0n);
    expect(table.counters().blocksUsed).toBeGreaterThan(5000);
  });
});

describe('export', () => {
  test('applied in any order, records make the same table', () => {
    const table = small();
    table.exports.residencyPodAdd(0, 0, 30_000n);
    for (let i = 0; i < 200; i++) {
      const { keys, weights } = chainOf([i % 3, i % 5, (i * 7) % 11, i % 2]);
      table.touch(0, 100 + ((i * 37) % 90), 0n, keys, weights);
    }
    const digests = [table.podDigest(0), table.podOrderDigest(0)];
    const records = [];
    for (let cursor = 0n; cursor !== EXPORT_DONE;) {
      const part = table.export(0, cursor, 256);
      records.push(...readTouches(part.bytes));
      cursor = part.next;
    }
    for (const order of [records, records.toReversed()]) {
      const copy = small();
      copy.exports.residencyPodAdd(0, 0, 30_000n);
      for (const { timeMs, parentKey, keys, weights } of order) copy.touch(0, timeMs, parentKey, keys, weights);
      expect(copy.podDigest(0)).toBe(digests[0]);
      if (order === records) expect(copy.podOrderDigest(0)).toBe(digests[1]);
    }
  });

  test('touches between two calls lose nothing that stays', () => {
    const table = small();
    table.exports.residencyPodAdd(0, 0, 1_000_000n);
    for (let i = 1; i <= 100; i++) table.touch(0, i, 0n, [BigInt(i)], [10]);
    const seen = new Set<bigint>();
    for (let cursor = 0n, i = 0; cursor !== EXPORT_DONE; i++) {
      const part = table.export(0, cursor, 160);
      for (const { keys } of readTouches(part.bytes)) for (const key of keys) seen.add(key);
      cursor = part.next;
      const moved = BigInt(96 - i * 4);
      if (moved > 0n) {
        table.touch(0, 1000 + i, 0n, [moved], [10]);
        seen.add(moved);
      }
    }
    expect(seen.size).toBe(100);
  });
});
