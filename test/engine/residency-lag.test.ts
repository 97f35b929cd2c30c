// A chain that was touched a moment ago is not touched again. How far the order of the list may be off by that, and that a chain of which a part
// was missed is whole again with the next touch from its first block on.
import { fc, test as propertyTest } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import type { TableExports } from '../../control-plane/engine/table-exports.ts';
import { EXPORT_DONE, Table } from '../../control-plane/engine/table.ts';
import { chainOf, readTouches } from './chains.ts';

const engine = await loadEngine<TableExports>();
const SLACK_MS_MAX = 62 * 16;
const SLACK_SHARE = 1 / 16;

function tableOf(capacityBytes: number): Table {
  const table = new Table(engine, { pods: 64, blocks: 4096 });
  table.exports.residencyPodAdd(0, 0, BigInt(capacityBytes));
  return table;
}

/** The time that stands at each key that the pod holds. */
function timesOf(table: Table): Map<bigint, number> {
  const times = new Map<bigint, number>();
  for (let cursor = 0n; cursor !== EXPORT_DONE;) {
    const part = table.export(0, cursor);
    for (const { keys, timeMs } of readTouches(part.bytes)) for (const key of keys) times.set(key, timeMs);
    cursor = part.next;
  }
  return times;
}

/** What the pod keeps lasts so long, at this rate. */
function keptMs(table: Table, nowMs: number): number {
  const oldest = Math.min(...timesOf(table).values());
  return Number.isFinite(oldest) ? ((nowMs - oldest) * table.podCapacityBytes(0)) / table.podBytes(0) : 0;
}

const step = fc.record({
  path: fc.array(fc.nat(2), { minLength: 1, maxLength: 8 }),
  gapMs: fc.integer({ min: 1, max: 300 }),
  late: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat(200) }),
  ends: fc.boolean(),
});

describe('the order of the list', () => {
  propertyTest.prop([fc.array(step, { minLength: 20, maxLength: 80 }), fc.integer({ min: 2500, max: 40_000 })])(
    'is right to a sixteenth of the time for which a pod keeps its blocks, and to a second',
    (steps, capacityBytes) => {
      const table = tableOf(capacityBytes);
      const used = new Map<bigint, number>();
      const use = (key: bigint, timeMs: number): unknown => used.set(key, Math.max(used.get(key) ?? 0, timeMs));
      let nowMs = 100_000;
      let slackMs = 0;
      for (const { path, gapMs, late, ends } of steps) {
        nowMs += gapMs;
        const timeMs = nowMs - late;
        slackMs = Math.max(slackMs, Math.min(SLACK_MS_MAX, keptMs(table, nowMs) * SLACK_SHARE));
        const { keys, weights } = chainOf(path);
        table.touch(0, timeMs, 0n, keys, weights);
        for (const key of keys) use(key, timeMs);
        if (ends) use(BigInt.asUintN(64, table.exports.residencyTouchAnswer(0, nowMs, keys.at(-1)!, 50)), nowMs);
        if (ends && table.holds(0, keys.at(-1)!)) for (const key of keys) use(key, nowMs);
        const held = timesOf(table);
        for (const [key, stands] of held) {
          expect(stands).toBeLessThanOrEqual(used.get(key)!);
          expect(stands).toBeGreaterThanOrEqual(used.get(key)! - slackMs);
        }
        const oldestMs = Math.min(...[...held.keys()].map((key) => used.get(key)!));
        // What came late may have been let in no more.
        for (const [key, at] of used) if (!held.has(key)) expect(at).toBeLessThanOrEqual(oldestMs + slackMs + 200);
      }
      expect(table.counters().misplaced).toBe(0n);
    },
  );

  test('stays as it is while one chain is touched again and again, and is made right after a second', () => {
    const table = tableOf(1_000_000);
    const { keys, weights } = chainOf([0, 1, 2, 0, 1, 2]);
    table.touch(0, 1, 0n, [77n], [10]);
    table.touch(0, 100_000, 0n, keys, weights);
    for (let timeMs = 100_010; timeMs <= 100_000 + SLACK_MS_MAX; timeMs += 10) {
      table.touch(0, timeMs, 0n, keys, weights);
      expect(timesOf(table).get(keys[0]!)).toBe(100_000);
    }
    table.touch(0, 101_000, 0n, keys, weights);
    expect(new Set(keys.map((key) => timesOf(table).get(key)))).toEqual(new Set([101_000]));
  });

  test('of a conversation does not fall behind by what is put behind it turn by turn', () => {
    const table = tableOf(1_000_000);
    const { keys, weights } = chainOf(Array.from({ length: 40 }, (_, i) => i % 3));
    table.touch(0, 1, 0n, [77n], [10]);
    for (let turn = 1; turn <= keys.length; turn++) {
      const nowMs = 100_000 + turn * 300;
      table.touch(0, nowMs, 0n, keys.slice(0, turn), weights.slice(0, turn));
      for (const timeMs of timesOf(table).values())
        if (timeMs !== 1) expect(timeMs).toBeGreaterThanOrEqual(nowMs - SLACK_MS_MAX);
    }
  });

  test('of a pod that forgets within half a second is exact', () => {
    const { keys, weights } = chainOf([0, 1, 2, 0]);
    const table = tableOf(weights.reduce((sum, weight) => sum + weight, 0) + 50);
    for (let i = 0; i < 20; i++) {
      table.touch(0, 1000 + i * 20, 0n, keys, weights);
      table.touch(0, 1010 + i * 20, 0n, [BigInt(i + 1)], [10]);
      expect(timesOf(table).get(keys[0]!)).toBe(1000 + i * 20);
    }
  });
});

describe('a table that missed the beginning of a chain', () => {
  const { keys, ends, weights } = chainOf([0, 1, 2, 0, 1, 2]);
  const missing = (): Table => {
    const table = tableOf(1_000_000);
    table.touch(0, 1, 0n, [77n], [10]);
    table.touch(0, 100_000, keys[3]!, keys.slice(4, 5), weights.slice(4, 5));
    table.touch(0, 100_010, keys[4]!, keys.slice(5), weights.slice(5));
    expect(table.counters().orphans).toBe(1n);
    expect(table.lookup(0, keys, ends)).toBe(0);
    return table;
  };

  test('has all of it with the next touch from the first block on, however soon that comes', () => {
    const table = missing();
    table.touch(0, 100_020, 0n, keys, weights);
    expect(table.lookup(0, keys, ends)).toBe(ends.at(-1));
    expect(timesOf(table).get(keys[0]!)).toBe(100_020);
  });

  test('has it as well where that touch was made earlier and came late', () => {
    const table = missing();
    table.touch(0, 99_990, 0n, keys, weights);
    expect(table.lookup(0, keys, ends)).toBe(ends.at(-1));
    // From here on it is known that all of the chain is held.
    table.touch(0, 100_030, 0n, keys, weights);
    expect(timesOf(table).get(keys[0]!)).toBe(99_990);
  });

  test('holds what was cleared no more, and does not take what is left for a whole chain', () => {
    const table = tableOf(1_000_000);
    table.touch(0, 1, 0n, [77n], [10]);
    table.touch(0, 100_000, 0n, keys.slice(0, 5), weights);
    table.touch(0, 100_100, 0n, keys, weights);
    table.clearPod(0, 100_050);
    expect(table.lookup(0, keys, ends)).toBe(0);
    table.touch(0, 100_110, 0n, keys, weights);
    expect(table.lookup(0, keys, ends)).toBe(ends.at(-1));
  });
});

describe('a chain of which the beginning has gone', () => {
  const { keys, ends, weights } = chainOf([0, 1]);
  const begun = (blocks: number): Table => {
    const table = new Table(engine, { pods: 64, blocks });
    for (const pod of [0, 1]) table.exports.residencyPodAdd(pod, 0, 1_000_000n);
    table.touch(0, 1, 0n, [77n], [10]);
    table.touch(0, 100_000, 0n, keys.slice(0, 1), weights);
    table.touch(0, 100_100, 0n, keys, weights);
    return table;
  };
  const expectWhole = (table: Table): void => {
    expect(table.lookup(0, keys, ends)).toBe(0);
    table.touch(0, 50, 0n, [78n], [10]);
    table.touch(0, 100_200, 0n, keys, weights);
    expect(table.lookup(0, keys, ends)).toBe(ends.at(-1));
  };

  test('is not taken to be whole when the pod has room again and something older comes late', () => {
    const table = begun(4096);
    table.setCapacityBytes(0, weights[1]!);
    table.setCapacityBytes(0, 1_000_000);
    expectWhole(table);
  });

  test('nor where the table was full', () => {
    const table = begun(3);
    table.touch(1, 100_110, 0n, [90n], [10]);
    table.touch(1, 100_120, 0n, [91n], [10]);
    table.removePod(1);
    expectWhole(table);
  });

  test('nor when what is put behind it leaves no room for it', () => {
    const table = begun(4096);
    table.touch(0, 100_150, 0n, [90n], [500]);
    const long = chainOf([0, 1, 2, 0, 1, 2]);
    table.setCapacityBytes(0, long.ends.at(-1)! + 400);
    table.touch(0, 100_200, 0n, long.keys, long.weights);
    expect(table.exports.residencyLeft()).toBe(0);
    expect(table.lookup(0, long.keys, long.ends)).toBe(long.ends.at(-1));
    expect(table.holds(0, 90n)).toBe(false);
  });

  const event = fc.record({
    kind: fc.constantFrom('touch', 'touch', 'touch', 'late', 'answer', 'behind', 'clear', 'back', 'capacity'),
    pod: fc.nat(1),
    path: fc.array(fc.nat(2), { minLength: 1, maxLength: 8 }),
    gapMs: fc.nat(400),
    lateMs: fc.oneof(fc.nat(1500), fc.nat(900_000)),
    capacity: fc.constantFrom(300, 1000, 3000, 20_000),
  });
  propertyTest.prop([fc.array(event, { minLength: 20, maxLength: 100 }), fc.constantFrom(4096, 30)], { numRuns: 2000 })(
    'whatever happened, is whole after a touch from its first block on',
    (events, blocks) => {
      const table = new Table(engine, { pods: 64, blocks });
      for (const pod of [0, 1]) table.exports.residencyPodAdd(pod, 0, 20_000n);
      let nowMs = 1_000_000;
      for (const { kind, pod, path, gapMs, lateMs, capacity } of events) {
        nowMs += gapMs + 1;
        const chain = chainOf(path);
        const half = chain.keys.length >> 1;
        if (kind === 'late') table.touch(pod, nowMs - lateMs, 0n, chain.keys, chain.weights);
        else if (kind === 'answer') table.exports.residencyTouchAnswer(pod, nowMs, chain.keys.at(-1)!, 50);
        else if (kind === 'behind')
          table.touch(pod, nowMs, chain.keys[half - 1] ?? 0n, chain.keys.slice(half), chain.weights.slice(half));
        else if (kind === 'clear') table.clearPod(pod, nowMs - lateMs);
        else if (kind === 'back') table.exports.residencyPodAdd(pod, 0, 20_000n);
        else if (kind === 'capacity') table.setCapacityBytes(pod, capacity);
        else {
          const full = table.counters().exhausted;
          table.touch(pod, nowMs, 0n, chain.keys, chain.weights);
          table.lookup(0, chain.keys, chain.ends);
          if (table.podCapacityBytes(pod) < chain.ends.at(-1)! || table.counters().exhausted !== full) continue;
          expect(table.exports.matchBytes(pod)).toBe(chain.ends.at(-1));
        }
      }
    },
  );
});
