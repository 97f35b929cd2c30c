// What each pod has in hand: counters that end at zero, others' load by age, what metrics add, slowness, and pods that fail.
import { fc, test as propertyTest } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import type { TableExports } from '../../control-plane/engine/table-exports.ts';
import { Table } from '../../control-plane/engine/table.ts';

const engine = await loadEngine<TableExports>();
const e = engine.exports;
const NOW = 1_000_000;

function twoPods(): Table {
  const table = onePod();
  table.setPod({ pool: 0, podId: 10 });
  table.dispatch(1, 10, NOW);
  return table;
}

function onePod(): Table {
  const table = new Table(engine, { pods: 64, blocks: 64 });
  expect(table.setPod({ pool: 0, podId: 9 })).toBe(0);
  return table;
}

/** A table whose every pod is failing or not there, but this one. */
const pickedFirst = (table: Table, nowMs: number): number | undefined => table.pick(0, 1, 100, 0n, nowMs)[0]?.pod;

describe('own requests', () => {
  test('Q is released once, at the first token or at the end', () => {
    const table = onePod();
    expect(table.dispatch(0, 300, NOW)).toBe(300);
    expect(table.dispatch(0, 200, NOW)).toBe(500);
    expect(table.load(0, NOW)).toMatchObject({ inFlight: 2, queuedTokens: 500, usedTokens: 500 });
    table.firstToken(0, 300);
    expect(table.load(0, NOW)).toMatchObject({ inFlight: 2, queuedTokens: 200, usedTokens: 500 });
    table.end(0, 300, false);
    table.end(0, 200, true);
    expect(table.load(0, NOW)).toMatchObject({ inFlight: 0, queuedTokens: 0, usedTokens: 0 });
    expect(table.counters().violations).toBe(0n);
  });

  propertyTest.prop([
    fc.array(fc.record({ u: fc.nat(50_000), first: fc.boolean(), order: fc.nat() }), { maxLength: 60 }),
  ])('all counters are zero at rest, in whatever order requests end', (requests) => {
    const table = onePod();
    for (const { u } of requests) table.dispatch(0, u, NOW);
    for (const { u, first } of requests.toSorted((a, b) => a.order - b.order)) {
      if (first) table.firstToken(0, u);
      table.end(0, u, !first);
    }
    expect(table.load(0, NOW)).toMatchObject({ inFlight: 0, queuedTokens: 0, usedTokens: 0 });
    expect(table.counters().violations).toBe(0n);
  });

  test('what would fall below zero stays there and is counted', () => {
    const table = onePod();
    table.end(0, 10, true);
    table.firstToken(0, 10);
    expect(table.counters().violations).toBe(4n);
    table.dispatch(0, 5, NOW);
    expect(table.load(0, NOW)).toMatchObject({ inFlight: 1, queuedTokens: 5, usedTokens: 5 });
  });
});

test('metrics tell which requests have begun: all but the youngest, as many as wait', () => {
  const table = onePod();
  expect(e.loadHadBegun(0, NOW - 1000, 9)).toBe(0);
  e.loadMetrics(0, 4, 2, 0, NOW);
  expect([0, 1, 2, 3].map((younger) => e.loadHadBegun(0, NOW - 1000, younger))).toEqual([0, 0, 1, 1]);
  // What was sent just before may not have been counted yet, what was sent later is not in it.
  expect([NOW - 50, NOW - 49, NOW + 1].map((sentMs) => e.loadHadBegun(0, sentMs, 2))).toEqual([1, 0, 0]);
  e.loadMetrics(0, -1, -1, 0, NOW + 1000);
  expect(e.loadHadBegun(0, NOW - 1000, 9)).toBe(0);
  expect(table.counters().violations).toBe(0n);
});

describe("others' requests", () => {
  test('count by age: in full up to 50 ms, half at 250 ms, a sixth at 1 s', () => {
    const table = onePod();
    e.loadForeignSet(1, 0, 10, 1000, 2000);
    e.loadForeignSet(39, 0, 1, 1, 1);
    const inFlight = (ageMs: number): number => {
      e.loadForeignAge(1, ageMs);
      return table.load(0, NOW).inFlight - 1;
    };
    expect(inFlight(20)).toBe(10);
    expect(inFlight(50)).toBe(10);
    expect(inFlight(250)).toBeCloseTo(5, 6);
    expect(inFlight(1000)).toBeCloseTo(10 / 5.75, 6);
    e.loadForeignSet(1, 0, 4, 400, 800);
    expect(inFlight(0)).toBeCloseTo(4, 6);
    expect(table.load(0, NOW).queuedTokens).toBeCloseTo(401, 6);
    e.loadForeignClear(1);
    e.loadForeignClear(39);
    expect(table.load(0, NOW)).toMatchObject({ inFlight: 0, queuedTokens: 0, usedTokens: 0 });
  });

  propertyTest.prop([
    fc.array(fc.record({ source: fc.nat(79), pod: fc.nat(70), n: fc.double(), q: fc.double(), age: fc.double() })),
  ])('no values make the sums negative or endless', (steps) => {
    const table = onePod();
    for (const { source, pod, n, q, age } of steps) {
      e.loadForeignSet(source, pod, n, q, q);
      e.loadForeignAge(source, age);
    }
    for (const value of [table.load(0, NOW).inFlight, table.load(0, NOW).queuedTokens, table.load(0, NOW).usedTokens]) {
      expect(value).toBeGreaterThanOrEqual(0);
      expect(value).toBeLessThan(1e15);
    }
    for (let source = 0; source < 80; source++) e.loadForeignClear(source);
    expect(table.load(0, NOW)).toMatchObject({ inFlight: 0, queuedTokens: 0, usedTokens: 0 });
  });
});

describe('metrics', () => {
  test('requests that nobody sent count, those of them that wait as prefill too, and less once the metrics are old', () => {
    const table = onePod();
    table.dispatch(0, 800, NOW);
    table.metrics(0, NOW + 10, { running: 8, waiting: 5 });
    // 13 seen, 1.1 + 1 explained by the one that is known and the slack.
    expect(table.load(0, NOW + 20).inFlight).toBeCloseTo(1 + 10.9, 6);
    expect(table.load(0, NOW + 20).queuedTokens).toBeCloseTo(800 + 5 * 800, 6);
    expect(table.load(0, NOW + 10_010).inFlight).toBeCloseTo(1 + 10.9 / 2, 6);
    expect(table.load(0, NOW + 50_010).queuedTokens).toBeCloseTo(800 + 400, 6);
  });

  test('a pod whose metrics stop or tell no numbers any more does not look idle', () => {
    const table = twoPods();
    table.metrics(0, NOW, { running: 20, waiting: 0 });
    expect(pickedFirst(table, NOW + 1)).toBe(1);
    expect(pickedFirst(table, NOW + 8000)).toBe(1);
    table.metrics(0, NOW + 1000, { kvUsage: 0.5 });
    expect(pickedFirst(table, NOW + 1001)).toBe(1);
    expect(table.load(0, NOW + 1001).inFlight).toBeCloseTo(19 * 0.9, 6);
  });

  test('one scrape that is told twice is one', () => {
    const table = onePod();
    for (let i = 0; i < 10; i++) table.dispatch(0, 10, NOW);
    table.metrics(0, NOW + 10, { running: 10, waiting: 0 });
    for (let i = 0; i < 10; i++) table.end(0, 10, true);
    for (let i = 0; i < 5; i++) table.metrics(0, NOW + 11 + i, { running: 10, waiting: 0 });
    expect(table.load(0, NOW + 20).inFlight).toBe(0);
  });

  test('requests that ended since the metrics were read explain them', () => {
    const table = onePod();
    for (let i = 0; i < 10; i++) table.dispatch(0, 10, NOW);
    for (let i = 0; i < 10; i++) table.end(0, 10, true);
    table.metrics(0, NOW + 10, { running: 10, waiting: 0 });
    expect(table.load(0, NOW + 20).inFlight).toBe(0);
  });

  test('older metrics, and values that make no sense, change nothing', () => {
    const table = onePod();
    table.metrics(0, NOW, { running: 5, waiting: 0, kvUsage: 0.5 });
    const before = table.load(0, NOW);
    table.metrics(0, NOW - 1, { running: 50, waiting: 50 });
    table.metrics(0, Number.NaN, { running: 50, waiting: 50 });
    expect(table.load(0, NOW)).toEqual(before);
    expect(e.podKvUsage(0, NOW)).toBe(0.5);
    table.metrics(0, NOW + 100, { running: Number.NaN, waiting: -3, kvUsage: Number.NaN });
    expect(table.load(0, NOW + 100).inFlight).toBe(before.inFlight * 0.9);
    expect(e.podKvUsage(0, NOW + 100)).toBe(-1);
  });

  test('say nothing, and are replaced, when the clock was set back', () => {
    const table = onePod();
    const before = NOW + 3_600_000;
    table.metrics(0, before, { running: 5, waiting: 0 });
    expect(table.load(0, before).inFlight).toBe(4);
    expect(table.load(0, NOW).inFlight).toBe(0);
    table.metrics(0, NOW, { running: 9, waiting: 0 });
    expect(table.load(0, NOW).inFlight).toBe(8);
  });
});

describe('slowness', () => {
  test('moves a twentieth of the way in its logarithm, by what the first token waited for', () => {
    const table = onePod();
    table.observeTtft(0, 100, 1000);
    expect(table.load(0, NOW).slowness).toBeCloseTo(1e-4, 12);
    table.observeTtft(0, 200, 1000);
    expect(table.load(0, NOW).slowness).toBeCloseTo(1e-4 * 2 ** 0.05, 12);
    table.observeTtft(0, 1e6, 1000);
    expect(table.load(0, NOW).slowness).toBeCloseTo(1e-4 * 2 ** 0.05 * 5 ** 0.05, 12);
    const before = table.load(0, NOW).slowness;
    for (const [ttft, w] of [
      [5000, 500],
      [0, 1000],
      [Number.NaN, 1000],
      [100, Number.NaN],
    ] as const) {
      table.observeTtft(0, ttft, w);
    }
    expect(table.load(0, NOW).slowness).toBe(before);
  });

  test('a new pod begins at the mean of those that are known', () => {
    const table = onePod();
    const other = table.setPod({ pool: 0, podId: 10 });
    table.observeTtft(0, 100, 1000);
    table.observeTtft(other, 400, 1000);
    expect(table.load(other, NOW).slowness).toBeCloseTo(1e-4 * 4 ** 0.05, 12);
  });

  test('predicts when Q of an answer that is not streamed is to be released', () => {
    const table = onePod();
    table.dispatch(0, 1000, NOW);
    expect(table.predictedTtftMs(0, 500, NOW)).toBeCloseTo(150, 6);
    e.loadSlownessLearn(0, 2e-4);
    expect(table.predictedTtftMs(0, 500, NOW)).toBeCloseTo(300, 6);
    expect(table.predictedTtftMs(0, 0, NOW)).toBeCloseTo(200, 6);
  });
});

describe('a pod that fails', () => {
  test('does not look idle: it is left alone for 1 s, tried once, and left alone for longer', () => {
    const table = twoPods();
    expect(pickedFirst(table, NOW)).toBe(0);
    for (let i = 0; i < 20; i++) table.failure(0, NOW + i);
    expect(pickedFirst(table, NOW + 1001)).toBe(1);
    expect(pickedFirst(table, NOW + 1003)).toBe(0);
    table.dispatch(0, 10, NOW + 1003);
    expect(pickedFirst(table, NOW + 1004)).toBe(1);
    table.failure(0, NOW + 1100);
    table.end(0, 10, true);
    expect(pickedFirst(table, NOW + 3099)).toBe(1);
    expect(pickedFirst(table, NOW + 3101)).toBe(0);
    table.dispatch(0, 10, NOW + 3101);
    table.success(0);
    table.end(0, 10, true);
    expect(pickedFirst(table, NOW + 3102)).toBe(0);
  });

  test('never waits longer than 30 s, and a trial that tells nothing is repeated', () => {
    const table = twoPods();
    let now = NOW;
    for (let i = 0; i < 2; i++) table.failure(0, now);
    for (let i = 0; i < 40; i++) {
      table.failure(0, now);
      now += 30_001;
      expect(table.load(0, now).cooling).toBe(false);
      table.dispatch(0, 10, now);
      table.end(0, 10, true);
    }
    expect(table.load(0, now + 1).cooling).toBe(true);
    expect(table.load(0, now + 30_001).cooling).toBe(false);
  });

  test('is not excused by an answer to what was sent before it failed', () => {
    const table = twoPods();
    for (let i = 0; i < 3; i++) table.failure(0, NOW);
    table.success(0);
    expect(table.load(0, NOW + 500).cooling).toBe(true);
  });

  test('is one whose requests fail in a row, not one with a request now and then that no pod could answer', () => {
    const table = twoPods();
    for (let i = 0; i < 50; i++) {
      table.failure(0, NOW + i);
      table.failure(0, NOW + i);
      expect(table.load(0, NOW + i).cooling).toBe(false);
      table.success(0);
    }
    for (let i = 0; i < 3; i++) table.failure(0, NOW + 100);
    expect(table.load(0, NOW + 101).cooling).toBe(true);
  });

  test('is not left alone for hours when the clock was set back', () => {
    const table = twoPods();
    const before = NOW + 3_600_000;
    for (let i = 0; i < 3; i++) table.failure(0, before);
    expect(table.load(0, before + 1).cooling).toBe(true);
    expect(table.load(0, NOW).cooling).toBe(false);
    table.dispatch(0, 10, NOW);
    expect(table.load(0, NOW + 1).cooling).toBe(true);
  });
});

describe('a pod that is silent', () => {
  const late = NOW + 1001;
  const silent = (): Table => {
    const table = twoPods();
    table.dispatch(0, 100, NOW);
    table.exports.loadAlive(1, late);
    expect(table.exports.loadSilence(0, NOW, 50, late)).toBe(1);
    return table;
  };

  test('gets nothing while a request of ours waits there, however long, and a trial when none does', () => {
    const table = silent();
    for (const after of [0, 900, 1100, 40_000, 1_000_000]) expect(pickedFirst(table, late + after)).toBe(1);
    table.end(0, 100, true);
    expect(pickedFirst(table, late + 1001)).toBe(0);
    table.dispatch(0, 100, late + 1001);
    expect(pickedFirst(table, late + 1002)).toBe(1);
    // The trial meets the same silence: the next one comes after twice the time.
    table.exports.loadAlive(1, late + 2100);
    expect(table.exports.loadSilence(0, late + 1001, 50, late + 2100)).toBe(1);
    table.end(0, 100, true);
    expect(pickedFirst(table, late + 4000)).toBe(1);
    expect(pickedFirst(table, late + 4101)).toBe(0);
  });

  test('is used again at its first sign of life', () => {
    const table = silent();
    table.exports.loadAlive(0, late + 10);
    table.end(0, 100, true);
    expect(pickedFirst(table, late + 11)).toBe(0);
  });

  test('is told once, and only when a first token is long overdue and others answer while it does not', () => {
    const { exports: again } = silent();
    expect(again.loadSilence(0, NOW, 50, late + 1)).toBe(0);

    const table = twoPods();
    table.dispatch(0, 100, NOW);
    const { loadAlive, loadSilence } = table.exports;
    expect(loadSilence(0, NOW, 50, late)).toBe(0); // nobody answers: it may be the gateway that stood still
    loadAlive(1, late);
    expect(loadSilence(0, NOW, 50, NOW + 990)).toBe(0); // not for long enough
    expect(loadSilence(0, NOW, 500, late)).toBe(0); // a long prompt takes its time
    loadAlive(0, NOW + 500);
    expect(loadSilence(0, NOW, 50, late)).toBe(0); // it works on another request
    expect(loadSilence(0, NOW, 50, NOW + 1501)).toBe(1);
  });

  test('has the time that others need for what they sent there', () => {
    const table = twoPods();
    table.dispatch(0, 100, NOW);
    const { loadAlive, loadForeignSet, loadSilence } = table.exports;
    // At a ten-thousandth of a second a token 20,000 tokens take 2 s, so it is overdue after 4 times 2,050 ms.
    loadForeignSet(32, 0, 1, 20_000, 20_000);
    loadAlive(1, NOW + 8300);
    expect(loadSilence(0, NOW, 50, NOW + 8190)).toBe(0);
    expect(loadSilence(0, NOW, 50, NOW + 8210)).toBe(1);
  });
});

describe('pods', () => {
  test('a slot stays with its old requests as long as another is free', () => {
    const table = onePod();
    table.dispatch(0, 100, NOW);
    table.removePod(0);
    expect(table.findPod(0, 9)).toBe(-1);
    expect(table.setPod({ pool: 0, podId: 11 })).toBe(1);
    table.end(0, 100, true);
    expect(table.setPod({ pool: 0, podId: 12 })).toBe(0);
    expect(table.load(0, NOW).inFlight).toBe(0);
  });

  test('the same pod in two pools has two slots, and all are found after some have gone', () => {
    const table = new Table(engine, { pods: 1000, blocks: 64 });
    const slots = new Map<string, number>();
    for (const pool of [0, 5]) {
      for (let podId = 1; podId <= 500; podId++) slots.set(`${pool}/${podId}`, table.setPod({ pool, podId }));
    }
    expect(new Set(slots.values()).size).toBe(1000);
    for (let podId = 1; podId <= 500; podId += 3) table.removePod(table.findPod(5, podId));
    for (const pool of [0, 5]) {
      for (let podId = 1; podId <= 500; podId++) {
        const gone = pool === 5 && podId % 3 === 1;
        expect(table.findPod(pool, podId)).toBe(gone ? -1 : slots.get(`${pool}/${podId}`));
      }
    }
  });

  test('when all slots are in use there is no further one', () => {
    const table = new Table(engine, { pods: 64, blocks: 64 });
    for (let podId = 1; podId <= 64; podId++) expect(table.setPod({ pool: 0, podId })).toBe(podId - 1);
    expect(table.setPod({ pool: 0, podId: 65 })).toBe(-1);
    expect(table.setPod({ pool: 8, podId: 1 })).toBe(-1);
    expect(table.setPod({ pool: 1, podId: 0 })).toBe(-1);
  });

  test('capacity in bytes follows the learned ratio', () => {
    const table = onePod();
    table.setPod({ pool: 0, podId: 9, capacityTokens: 1000 });
    expect(table.podCapacityBytes(0)).toBe(4000);
    for (let i = 0; i < 300; i++) e.poolObservePrompt(0, 20_000, 10_000);
    expect(e.poolBytesPerToken(0)).toBeCloseTo(2, 2);
    expect(table.podCapacityBytes(0)).toBe(4000);
    e.poolCapacityRefresh(0);
    expect(table.podCapacityBytes(0)).toBeCloseTo(2000, -1);
    for (const [bytes, tokens] of [
      [0, 5],
      [5, 0],
    ] as const)
      e.poolObservePrompt(0, bytes, tokens);
    expect(e.poolBytesPerToken(0)).toBeCloseTo(2, 2);
    // What no text has is a picture's: of its bytes, or of its address.
    for (const [bytes, tokens] of [
      [4_000_000, 1000],
      [100, 1000],
    ] as const)
      for (let i = 0; i < 300; i++) e.poolObservePrompt(0, bytes, tokens);
    expect(e.poolBytesPerToken(0)).toBeCloseTo(2, 2);
  });
});
