// The baselines' decision rules, each on a situation that tells it from its neighbours.

import { expect, it } from 'vitest';
import type { ReplicaEngine } from '../../sim/engine.ts';
import { choiceOf, type Choice, type ReplayPolicy } from '../../sim/replay/policies.ts';
import { Random } from '../../sim/random.ts';
import type { Router } from '../../sim/replay/router.ts';

interface Pod {
  match?: number;
  n?: number;
  q?: number;
  held?: number;
  waiting?: number;
  kv?: number;
}

/** A prompt of 1,000 tokens of one byte each before pods in given states. */
function choice(pods: readonly Pod[], over: Partial<Choice> = {}, firstKey = 5n): Choice {
  const of = (what: keyof Pod) => (pod: number) => pods[pod]![what] ?? 0;
  const router = {
    pods: pods.length,
    promptBytes: 1000,
    firstKey,
    matchBytes: of('match'),
    uncachedTokens: (pod: number) => Math.max(1, 1000 - of('match')(pod)),
    inFlight: of('n'),
    queuedTokens: of('q'),
    heldBytes: of('held'),
  };
  return {
    router: router as unknown as Router,
    nowMs: 0,
    session: 's',
    random: new Random(1),
    polled: pods.map(({ waiting = 0, kv = 0 }) => ({ waiting, kvUsage: kv })),
    engines: pods.map(({ kv = 0 }) => ({
      blockTokens: 16,
      cache: { blocks: 100, freeBlocks: 100 - kv * 100 },
    })) as unknown as ReplicaEngine[],
    ...over,
  };
}

it.each<[ReplayPolicy, string, Pod[], number]>([
  ['longest-match', 'whatever waits there', [{ match: 900, n: 99 }, { match: 800 }], 0],
  [
    'longest-match',
    'load as a tie-break',
    [
      { match: 900, n: 2 },
      { match: 900, n: 1 },
    ],
    1,
  ],
  ['threshold-tree', 'the longest match above a half', [{ match: 600, n: 31 }, { match: 0 }], 0],
  ['threshold-tree', 'the emptiest tree below a half', [{ match: 400, held: 9 }, { held: 8 }], 1],
  ['threshold-tree', 'the least loaded when loads are far apart', [{ match: 900, n: 33 }, {}], 1],
  ['weighted-3:2:2', 'a full match over any queue', [{ match: 1000, waiting: 50 }, { waiting: 0 }], 0],
  ['weighted-3:5:2', 'a short queue over a full match', [{ match: 1000, waiting: 50 }, { waiting: 0 }], 1],
  ['weighted-3:2:2', 'free memory between equals', [{ kv: 0.9 }, { kv: 0.2 }], 1],
  ['kv-decode', 'the fewest blocks to prefill and in use', [{ kv: 0.5 }, { kv: 0.1 }], 1],
  ['kv-decode', 'a match over a little more in use', [{ match: 900, kv: 0.5 }, { kv: 0.1 }], 0],
  [
    'prefill-x-batch',
    'the product of both',
    [
      { match: 900, n: 9 },
      { match: 0, n: 1 },
    ],
    0,
  ],
  ['prefill-x-batch', 'queued prefill counts', [{ match: 900, n: 1, q: 1000 }, { n: 1 }], 1],
])('%s: %s', (policy, _, pods, pod) => {
  expect(choiceOf(policy)(choice(pods))).toBe(pod);
});

it('session and prefix-header are the engine’s, with the session’s name or the first block as key', () => {
  const asked: unknown[][] = [];
  const router = { pick: (...what: unknown[]) => asked.push(what) } as unknown as Router;
  for (const session of ['a', 'b', 'a']) choiceOf('session')({ ...choice([{}]), router, session });
  choiceOf('prefix-header')({ ...choice([{}]), router });
  expect(asked.map(([code]) => code)).toEqual([6, 6, 6, 7]);
  const keys = asked.map(([, , key]) => key);
  expect(keys[0]).toBe(keys[2]);
  expect(keys[0]).not.toBe(keys[1]);
  expect(keys[3]).toBeUndefined();
});

it('power-of-two: never the busiest of two', () => {
  const random = new Random(4);
  const picks = Array.from({ length: 50 }, () => choiceOf('power-of-two')(choice([{ n: 3 }, {}, {}], { random })));
  expect(new Set(picks)).toEqual(new Set([1, 2]));
});
