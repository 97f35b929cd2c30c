// The replica model under virtual time: exact step times, hits, eviction, preemption, aborts.

import { describe, expect, test } from 'vitest';
import { BlockCache } from '../../sim/cache.ts';
import { ENGINES, engineConstants, type EngineConstants } from '../../sim/constants.ts';
import { ReplicaEngine, Sequence } from '../../sim/engine.ts';
import { BlockHasher, textOf } from '../../sim/tokens.ts';

const L4 = ENGINES['L4-8B'];

interface Seen {
  tokenMs: number[];
  finishedMs: number;
}

function sequence(text: string, outputTokens: number): { sequence: Sequence; seen: Seen } {
  const hasher = new BlockHasher();
  hasher.text(text);
  const seen: Seen = { tokenMs: [], finishedMs: -1 };
  return {
    seen,
    sequence: new Sequence(hasher, outputTokens, {
      token: (_, __, nowMs) => seen.tokenMs.push(nowMs),
      finished: (_, nowMs) => {
        seen.finishedMs = nowMs;
      },
    }),
  };
}

/** Runs steps until nothing is left, at most so many; returns the time. */
function run(engine: ReplicaEngine, fromMs = 0, stepsMax = 10_000): number {
  let nowMs = fromMs;
  for (let i = 0; i < stepsMax; i++) {
    const seconds = engine.begin(nowMs);
    if (seconds === 0) return nowMs;
    nowMs += seconds * 1000;
    engine.end(nowMs);
  }
  return nowMs;
}

describe('step time', () => {
  test('a prompt within the budget takes one step, and decodes follow', () => {
    const engine = new ReplicaEngine(L4);
    const { sequence: one, seen } = sequence(textOf(1, 2000), 3);
    engine.add(one, 0);
    run(engine);
    const prefillMs = 1000 * (0.004 + 270e-6 * 2000 + 1e-8 * 2000 * 2000);
    const decodeMs = (context: number) => 1000 * (0.004 + 0.06 + 0.5e-6 * context);
    expect(seen.tokenMs[0]).toBeCloseTo(prefillMs, 6);
    expect(seen.tokenMs[1]).toBeCloseTo(prefillMs + decodeMs(2001), 6);
    expect(seen.tokenMs[2]).toBeCloseTo(prefillMs + decodeMs(2001) + decodeMs(2002), 6);
    expect(seen.finishedMs).toBe(seen.tokenMs[2]);
  });

  test('a longer prompt is cut into chunks of the budget, each against its own context', () => {
    const engine = new ReplicaEngine(L4);
    const { sequence: one, seen } = sequence(textOf(1, 5000), 1);
    engine.add(one, 0);
    run(engine);
    const chunkMs = (tokens: number, context: number) =>
      1000 * (0.004 + Math.max(0.06, 270e-6 * tokens) + 1e-8 * tokens * context);
    expect(engine.counters.steps).toBe(3);
    expect(seen.tokenMs).toHaveLength(1);
    expect(seen.tokenMs[0]).toBeCloseTo(chunkMs(2048, 2048) + chunkMs(2048, 4096) + chunkMs(904, 5000), 6);
  });

  test('decodes go first, and a prefill gets what is left of the budget', () => {
    const engine = new ReplicaEngine(L4);
    const { sequence: one } = sequence(textOf(1, 100), 50);
    const { sequence: two, seen } = sequence(textOf(2, 2048), 1);
    engine.add(one, 0);
    engine.end(engine.begin(0));
    engine.add(two, 0);
    const seconds = engine.begin(0);
    expect(seconds).toBeCloseTo(0.004 + 270e-6 * 2048 + 1e-8 * 2047 * 2047 + 0.5e-6 * 101, 9);
    engine.end(1);
    expect(seen.tokenMs).toHaveLength(0);
    engine.begin(1);
    engine.end(2);
    expect(seen.tokenMs).toEqual([2]);
  });

  test('no more sequences run than the engine has slots for, first come first served', () => {
    const engine = new ReplicaEngine({ ...L4, sequencesMax: 2 });
    const all = [1, 2, 3].map((seed) => sequence(textOf(seed, 32), seed === 1 ? 2 : 4));
    for (const { sequence: one } of all) engine.add(one, 0);
    engine.begin(0);
    expect([engine.running, engine.waiting]).toEqual([2, 1]);
    engine.end(1);
    run(engine, 1);
    expect(all.map(({ seen }) => seen.tokenMs.length)).toEqual([2, 4, 4]);
    expect(all[2]!.seen.tokenMs[0]).toBeGreaterThan(all[0]!.seen.finishedMs);
  });
});

describe('prefix cache', () => {
  // As a real vLLM answered with a block of 32: 31 0, 32 0, 33 32, 63 32, 64 32, 65 64, 97 96, 160 128, 167 160.
  test.each([
    [15, 0],
    [16, 0],
    [17, 16],
    [32, 16],
    [33, 32],
    [80, 64],
    [83, 80],
  ])('a prompt of %d tokens sent again finds %d cached', (tokens, cached) => {
    const engine = new ReplicaEngine(L4);
    for (const expected of [0, cached]) {
      const { sequence: one } = sequence(textOf(1, tokens), 1);
      engine.add(one, 0);
      run(engine);
      expect(one.cachedTokens).toBe(expected);
    }
  });

  test('two prompts with the same prefix sent together: the second one hits', () => {
    const engine = new ReplicaEngine(L4);
    const { sequence: one } = sequence(textOf(1, 200), 1);
    const { sequence: two } = sequence(textOf(1, 200), 1);
    engine.add(one, 0);
    engine.add(two, 0);
    run(engine);
    expect([one.cachedTokens, two.cachedTokens]).toEqual([0, 192]);
  });

  test('a prefill that is still queued counts as a hit for whoever queues behind it', () => {
    const engine = new ReplicaEngine(L4);
    const { sequence: one } = sequence(textOf(1, 3900), 1);
    const { sequence: two } = sequence(textOf(1, 3900), 1);
    engine.add(one, 0);
    engine.begin(0);
    engine.add(two, 0);
    engine.end(600);
    run(engine, 600);
    expect(two.cachedTokens).toBe(3888);
  });

  test('the answer is cached too', () => {
    const engine = new ReplicaEngine(L4);
    const { sequence: one } = sequence(textOf(1, 40), 64);
    let answer = '';
    const events = { token: (_: Sequence, word: string) => void (answer += word), finished: () => undefined };
    const hasher = new BlockHasher();
    hasher.text(textOf(1, 40));
    const talker = new Sequence(hasher, 64, events);
    expect(one.promptTokens).toBe(talker.promptTokens);
    engine.add(talker, 0);
    run(engine);
    const { sequence: next } = sequence(textOf(1, 40) + answer + textOf(2, 5), 1);
    engine.add(next, 0);
    run(engine);
    expect(next.cachedTokens).toBe(96);
  });

  test('the oldest unused blocks go first, the tail of a prompt before its head', () => {
    const cache = new BlockCache(4);
    const old = [cache.take(), cache.take()];
    old.forEach((block, i) => cache.commit(block, 100 + i));
    cache.release(old);
    const young = [cache.take(), cache.take()];
    young.forEach((block, i) => cache.commit(block, 200 + i));
    cache.release(young);
    expect(cache.evictions).toBe(0);
    cache.take();
    expect(cache.match([100, 101], 2).hits).toBe(1);
    cache.take();
    expect(cache.match([100, 101], 2).hits).toBe(0);
    expect(cache.match([200, 201], 2)).toEqual({ hits: 2, idle: 2 });
  });

  test('a shared block is not free until the last one lets go', () => {
    const cache = new BlockCache(1);
    const block = cache.take();
    cache.commit(block, 7);
    cache.release([block]);
    expect(cache.share(7)).toBe(block);
    expect(cache.share(7)).toBe(block);
    cache.release([block]);
    expect(cache.freeBlocks).toBe(0);
    expect(() => cache.take()).toThrow('none is free');
    cache.release([block]);
    expect(cache.freeBlocks).toBe(1);
  });
});

describe('out of memory', () => {
  const small: EngineConstants = { ...L4, kvTokens: 64 * 16, modelTokensMax: 64 * 16 };

  test('the youngest starts over, everybody finishes, and every block comes back', () => {
    const engine = new ReplicaEngine(small);
    const all = [1, 2, 3, 4].map((seed) => sequence(textOf(seed, 200), 200));
    for (const { sequence: one } of all) engine.add(one, 0);
    run(engine);
    expect(engine.counters.preemptions).toBeGreaterThan(0);
    expect(all.map(({ seen }) => seen.tokenMs.length)).toEqual([200, 200, 200, 200]);
    expect(all[0]!.sequence.preemptions).toBe(0);
    expect(all[3]!.sequence.preemptions).toBeGreaterThan(0);
    // What a client sees as cached is what its first run found, not what it found of its own work after a preemption.
    expect(all[3]!.sequence.cachedTokens).toBe(0);
    expect(engine.cache.freeBlocks).toBe(64);
    expect([engine.running, engine.waiting]).toEqual([0, 0]);
  });

  test('a sequence that can never fit is refused', () => {
    const engine = new ReplicaEngine(small);
    expect(() => engine.add(sequence(textOf(1, 1000), 100).sequence, 0)).toThrow('cannot fit');
  });
});

describe('abort', () => {
  test.each(['waiting', 'between steps', 'inside a step'])('%s', (when) => {
    const engine = new ReplicaEngine(L4);
    const { sequence: one, seen } = sequence(textOf(1, 500), 100);
    engine.add(one, 0);
    if (when !== 'waiting') {
      engine.begin(0);
      if (when === 'between steps') engine.end(1);
    }
    engine.abort(one);
    engine.abort(one);
    if (when === 'inside a step') engine.end(1);
    expect(engine.begin(2)).toBe(0);
    expect([engine.running, engine.waiting, engine.cache.usedShare, engine.counters.aborted]).toEqual([0, 0, 0, 1]);
    expect(seen.finishedMs).toBe(-1);
  });
});

test('an unknown engine is refused by name', () => {
  expect(() => engineConstants('A100')).toThrow('unknown name "A100", expected one of L4-8B, H100-8B');
});
