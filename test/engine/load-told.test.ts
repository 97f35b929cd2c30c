// What engines tell of their time to first token, and which requests waited when they told it: what stands in where no answer is streamed.
import { fc, test as propertyTest } from '@fast-check/vitest';
import { expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import type { TableExports } from '../../control-plane/engine/table-exports.ts';
import { Table } from '../../control-plane/engine/table.ts';
import { NaiveTold } from '../oracle/told.ts';

const engine = await loadEngine<TableExports>();
const e = engine.exports;
const NOW = 1_000_000;
const PREFILL_COST = 0;

function tableOf(pods: number): Table {
  const table = new Table(engine, { pods: 64, blocks: 64 });
  for (let pod = 0; pod < pods; pod++) expect(table.setPod({ pool: 0, podId: 9 + pod })).toBe(pod);
  // One of another pool has no part in it.
  const other = table.setPod({ pool: 1, podId: 99 });
  e.loadDispatch(other, 1, NOW);
  e.loadTold(other, 1e6, 100);
  return table;
}
/** A request that has its first token at once: the next one has only itself before it. */
function send(table: Table, pod: number, tokens: number): void {
  expect(table.dispatch(pod, tokens, NOW)).toBe(tokens);
  table.firstToken(pod, tokens);
}

propertyTest.prop([
  fc.array(
    fc.oneof(
      fc.record({ pod: fc.nat(2), tokens: fc.integer({ min: 1, max: 20_000 }) }),
      fc.record({ pod: fc.nat(2), ttftMs: fc.constantFrom(0, 20, 300, 5000), requests: fc.nat(9) }),
    ),
    { maxLength: 60 },
  ),
])('slowness is mean time over mean tokens of late, and near to that of the pool', (steps) => {
  const table = tableOf(3);
  const naive = new NaiveTold(3);
  for (const step of steps) {
    if ('tokens' in step) {
      send(table, step.pod, step.tokens);
      naive.send(step.pod, step.tokens);
    } else {
      e.loadTold(step.pod, step.ttftMs, step.requests);
      naive.tell(step.pod, step.ttftMs, step.requests);
    }
  }
  for (const pod of [0, 1, 2]) {
    const slowness = naive.slowness(pod);
    expect(e.podToldSlowness(pod)).toBeGreaterThanOrEqual(slowness * (1 - 1e-9));
    expect(e.podToldSlowness(pod)).toBeLessThanOrEqual(slowness * (1 + 1e-9));
  }
});

test('first tokens are expected by what engines of the pool tell, until one is seen', () => {
  const table = tableOf(2);
  expect(table.predictedTtftMs(0, 1000, NOW)).toBeCloseTo(100, 6);
  send(table, 0, 1600);
  send(table, 1, 1600);
  e.loadTold(0, 80, 5);
  // A twenty-fifth of a millisecond a token, a step's 400 included; a pod that has told nothing takes after the others.
  expect(table.predictedTtftMs(0, 1000, NOW)).toBeCloseTo(1400 * 0.04, 6);
  expect(table.predictedTtftMs(1, 1000, NOW)).toBeCloseTo(1400 * 0.04, 6);
  table.observeTtft(1, 100, 1000);
  expect(table.predictedTtftMs(0, 1000, NOW)).toBeCloseTo(100, 6);
  // What is told to other gateways is only what was seen.
  expect(table.load(0, NOW).slowness).toBe(0);
});

test('picks go by it until a first token is seen', () => {
  const table = tableOf(2);
  for (const pod of [0, 1]) {
    send(table, pod, 600);
    table.end(pod, 600, false);
  }
  const counts = (): number[] => {
    const picks = Array.from({ length: 200 }, () => table.pick(0, PREFILL_COST, 40_000, 0n, NOW)[0]!.pod);
    return [picks.filter((pod) => pod === 0).length, picks.filter((pod) => pod === 1).length];
  };
  expect(Math.min(...counts())).toBeGreaterThan(50);
  e.loadTold(0, 40, 5);
  e.loadTold(1, 400, 5);
  expect(counts()).toEqual([200, 0]);
  table.observeTtft(0, 1000, 1000);
  table.observeTtft(1, 100, 1000);
  expect(counts()).toEqual([0, 200]);
});

test('nonsense and idle pods change nothing', () => {
  const table = tableOf(1);
  e.loadTold(0, 100, 5);
  expect(e.podToldSlowness(0)).toBe(0);
  send(table, 0, 600);
  e.loadTold(0, 100, 5);
  for (const [ttftMs, requests] of [
    [Number.NaN, 1],
    [-1, 1],
    [1, 0],
  ] as const) {
    e.loadTold(0, ttftMs, requests);
  }
  expect(e.podToldSlowness(0)).toBeCloseTo(100 / 1000 / 1000, 12);
  for (let i = 0; i < 20_000; i++) e.loadTold(0, 100, 5);
  expect(e.podToldSlowness(0)).toBeCloseTo(100 / 1000 / 1000, 12);
  send(table, 0, 1e9);
  e.loadTold(0, Number.MAX_VALUE, Number.MAX_VALUE);
  expect(table.predictedTtftMs(0, 1000, NOW)).toBeLessThan(Infinity);
  for (const pod of [64, 4_000_000_000]) {
    e.loadTold(pod, 100, 5);
    expect([e.podToldSlowness(pod), e.loadPrefillMs(pod, 100), e.loadWaited(pod, NOW, 0)]).toEqual([0, 0, 0]);
  }
});

test('metrics tell which requests waited: the youngest of all that are there, others taken to be as young', () => {
  const table = tableOf(1);
  for (let i = 0; i < 4; i++) table.dispatch(0, 1000, NOW - 1000);
  const waited = (): number[] => [0, 1, 2, 3].map((younger) => e.loadWaited(0, NOW - 1000, younger));
  expect(waited()).toEqual([0, 0, 0, 0]);
  e.loadMetrics(0, 2, 2, 0, NOW);
  expect(e.loadCrowd(0)).toBe(1);
  expect(waited()).toEqual([1, 1, 0, 0]);
  // What was sent just before may not have been counted yet.
  expect([NOW - 50, NOW - 49].map((sentMs) => e.loadWaited(0, sentMs, 0))).toEqual([1, 0]);
  e.loadForeignSet(1, 0, 4, 0, 0);
  expect(e.loadCrowd(0)).toBe(2);
  expect(waited()).toEqual([1, 0, 0, 0]);
  e.loadMetrics(0, 4, -1, 0, NOW + 1000);
  expect(waited()).toEqual([0, 0, 0, 0]);
  expect(e.loadMetrics(0, 4, 4, 0, NOW + 1000)).toBe(0);
});
