// Claims must hold on numbers like those of the study, and each must break alone when its number is bad: a verdict that cannot fail proves nothing.

import { describe, expect, it } from 'vitest';
import { workload } from '../../sim/workloads.ts';
import { failures, verdicts } from '../../cli/up/claims.ts';
import { runReport, table } from '../../cli/up/report.ts';
import type { ArmResult, RunResult } from '../../cli/up/results.ts';

const arm = (name: string, over: Partial<ArmResult> = {}): ArmResult => ({
  name,
  requests: 100,
  failed: 0,
  hung: 0,
  ttftMs: { p50: 100, p95: 200, p99: 300 },
  tpotMs: { p50: 10, p95: 20 },
  hitShareTokens: 0.9,
  requestsPerSecond: 20,
  busiestPodShare: 1.1,
  seconds: 60,
  ...over,
});

const ttftMs = (p95: number, p99 = p95) => ({ p50: p95 / 2, p95, p99 });

const w1 = (warm: Partial<ArmResult> = {}): RunResult => ({
  workload: 'W1',
  engine: 'L4-8B',
  replicas: 4,
  arms: [
    arm('round-robin', { ttftMs: ttftMs(745, 841), hitShareTokens: 0.62 }),
    arm('prefill-cost', { ttftMs: ttftMs(272, 674), ...warm }),
  ],
  published: workload('W1').published,
});

const w3s = (firstBlock: Partial<ArmResult> = {}, warm: Partial<ArmResult> = {}): RunResult => ({
  workload: 'W3s',
  engine: 'H100-8B',
  replicas: 4,
  arms: [
    arm('round-robin', { ttftMs: ttftMs(210) }),
    arm('first-block-hash', { ttftMs: ttftMs(22_400), busiestPodShare: 3.2, ...firstBlock }),
    arm('prefill-cost', { ttftMs: ttftMs(60), ...warm }),
  ],
  published: workload('W3s').published,
});

const broken = (run: RunResult) => verdicts(run).filter((verdict) => !verdict.holds);

describe('claims', () => {
  it('hold on the published numbers', () => {
    expect(broken(w1())).toEqual([]);
    expect(broken(w3s())).toEqual([]);
    expect(verdicts(w1())).toHaveLength(6);
    expect(verdicts(w3s())).toHaveLength(7);
  });

  it.each([
    ['p95 ratio', w1({ ttftMs: ttftMs(300, 674) })],
    ['p99', w1({ ttftMs: ttftMs(272, 970) })],
    ['hit share', w1({ hitShareTokens: 0.89 })],
    ['throughput', w1({ requestsPerSecond: 18 })],
    ['a failed request', w1({ failed: 1 })],
    ['a hung request', w1({ hung: 1 })],
    ['hot prefix p95', w3s({}, { ttftMs: ttftMs(106) })],
    ['hot prefix spread', w3s({}, { busiestPodShare: 1.31 })],
    ['first-block-hash does not melt', w3s({ ttftMs: ttftMs(300) })],
    ['first-block-hash spreads', w3s({ busiestPodShare: 1.2 })],
  ])('break one by one: %s', (_, run) => {
    expect(broken(run)).toHaveLength(1);
    expect(failures(run, true)).toHaveLength(1);
    expect(runReport(run, true)).toContain('FAILS');
  });

  it('do not hold on empty arms', () => {
    const none = { requests: 0, ttftMs: ttftMs(0), requestsPerSecond: 0, hitShareTokens: 0 };
    expect(broken({ ...w1(none), arms: [arm('round-robin', none), arm('prefill-cost', none)] })).toHaveLength(6);
  });

  it('count only failures when the shape is another', () => {
    const slow = w1({ ttftMs: ttftMs(700) });
    expect(failures(slow, false)).toEqual([]);
    expect(failures(w1({ failed: 1 }), false)).toHaveLength(1);
    expect(runReport(slow, false)).not.toContain('FAILS');
    expect(runReport(w1({ failed: 1 }), false)).toContain('FAILS');
  });
});

describe('the table', () => {
  it('puts published numbers under the arm that they belong to', () => {
    const lines = runReport(w1(), true).split('\n');
    const at = lines.findIndex((line) => line.startsWith('prefill-cost'));
    expect(lines[at]).toMatch(/100\s+0\s+136\s+272\s+674/);
    expect(lines[at + 1]).toMatch(/published: prefix-aware\s+272\s+674\s+90 %/);
  });

  it('lines up columns', () => {
    expect(table([['a', '1'], ['long', '100']])).toBe('a       1\nlong  100'); // prettier-ignore
  });
});
