// What routers of a replay are told of the replicas' caches changes what they believe, and the comparison of it runs.

import { describe, expect, it } from 'vitest';
import { kvEventsLines } from '../../bench/kv-events.ts';
import { replay, type ReplayOptions } from '../../sim/replay/run.ts';

const options = (more: Partial<ReplayOptions>): ReplayOptions => ({
  // Far more than the replicas can hold.
  source: 'W2',
  engine: 'H100-32B',
  replicas: 2,
  rate: 8,
  policy: 'prefill-cost',
  seed: 1,
  speed: 1,
  routers: 1,
  workers: 1,
  syncIntervalMs: 50,
  notStreamedPercent: 0,
  limit: 500,
  ...more,
});

describe('routers', () => {
  it('that hear of evictions believe in less of what is not there, though they took the memory for ten times as large', async () => {
    const capacity = { factor: 10, learns: false };
    const [told, untold] = await Promise.all([
      replay(options({ capacity, cacheTruth: 'events' })),
      replay(options({ capacity })),
    ]);
    expect(told!.wrongTokens).toBeLessThan(untold!.wrongTokens / 2);
  });

  it('that hear of dropped caches do not believe in them', async () => {
    const fixed = { source: 'W3s', engine: 'H100-8B', replicas: 4, rate: 5, resetIntervalMs: 5_000 } as const;
    const [told, untold] = await Promise.all([
      replay(options({ ...fixed, cacheTruth: 'events' })),
      replay(options(fixed)),
    ]);
    expect(told!.wrongTokens).toBeLessThan(untold!.wrongTokens / 2);
  });

  it('that know every cache are hardly ever wrong', async () => {
    const all = await replay(options({ source: 'W3s', engine: 'H100-8B', replicas: 4, cacheTruth: 'all' }));
    expect(all.wrongTokens / all.cachedTokens).toBeLessThan(0.03);
  });
});

it('the comparison runs', { timeout: 600_000 }, async () => {
  const lines: { ratio: number }[] = [];
  for await (const line of kvEventsLines(1, undefined, undefined, 20)) lines.push(line);
  expect(lines.length).toBeGreaterThan(30);
  expect(lines.every(({ ratio }) => ratio > 0 && ratio < 100)).toBe(true);
});
