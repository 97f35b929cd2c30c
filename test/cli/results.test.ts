// The numbers that the comparison stands on: each is checked on records small enough to count by hand.

import { describe, expect, it } from 'vitest';
import { percentile, summarise, type RequestFacts } from '../../cli/up/results.ts';

const fact = (over: Partial<RequestFacts>): RequestFacts => ({
  ttftMs: 100,
  tpotMs: 10,
  promptTokens: 1000,
  cachedTokens: 500,
  pod: 'a',
  failed: false,
  hung: false,
  ...over,
});

describe('percentile', () => {
  it('gives a value that occurred, by nearest rank', () => {
    const hundred = Array.from({ length: 100 }, (_, i) => 100 - i);
    expect([0.5, 0.95, 0.99, 1].map((share) => percentile(hundred, share))).toEqual([50, 95, 99, 100]);
    expect(percentile([3, 1, 2], 0.5)).toBe(2);
    expect(percentile([7], 0.01)).toBe(7);
  });

  it('leaves its argument as it was and gives 0 for nothing', () => {
    const values = [3, 1, 2];
    percentile(values, 0.5);
    expect(values).toEqual([3, 1, 2]);
    expect(percentile([], 0.95)).toBe(0);
  });
});

describe('summarise', () => {
  it('counts the hit share in tokens, not in requests', () => {
    const arm = summarise(
      'x',
      [fact({ promptTokens: 100, cachedTokens: 100 }), fact({ promptTokens: 900, cachedTokens: 0 })],
      2,
      2,
    );
    expect(arm.hitShareTokens).toBe(0.1);
    expect(arm.requestsPerSecond).toBe(1);
  });

  it('measures the busiest pod against all replicas, also those that got nothing', () => {
    const requests = ['a', 'a', 'a', 'b'].map((pod) => fact({ pod }));
    expect(summarise('x', requests, 1, 4).busiestPodShare).toBe(3);
  });

  it('counts failures and leaves their missing times out', () => {
    const arm = summarise(
      'x',
      [fact({}), fact({ ttftMs: null, tpotMs: null, pod: null, failed: true }), fact({ hung: true })],
      1,
      1,
    );
    expect(arm).toMatchObject({ requests: 3, failed: 1, hung: 1, ttftMs: { p50: 100, p95: 100, p99: 100 } });
  });

  it('gives zeros and never NaN when nothing ran', () => {
    expect(Object.values(summarise('x', [], 0, 4)).filter((value) => Number.isNaN(value))).toEqual([]);
  });
});
