// The policies that a replay compares: the engine's own, picked by the code that runs in the gateway, and others' decision rules as baselines.
//
// A baseline sees what its original would: the same index of who holds what, requests in flight and queued prefill as counted by the routers,
// and, where its original polls the engines, a poll every 50 ms. Ties are broken at random, so that no pod is favoured for its number.

import { POLICY_CODES, type EnginePolicy } from '../../control-plane/engine/frames.ts';
import type { ReplicaEngine } from '../engine.ts';
import type { Random } from '../random.ts';
import type { Router } from './router.ts';

export interface Polled {
  waiting: number;
  kvUsage: number;
}

/** What a policy may look at; the router has just looked the prompt up. */
export interface Choice {
  router: Router;
  nowMs: number;
  session: string;
  random: Random;
  /** The engines as last polled. */
  polled: readonly Polled[];
  engines: readonly ReplicaEngine[];
}

export type Choose = (choice: Choice) => number;

/** The pod with the lowest cost, one at random of several. */
function cheapest({ router, random }: Choice, cost: (pod: number) => number): number {
  let best = Infinity;
  let found: number[] = [];
  for (let pod = 0; pod < router.pods; pod++) {
    const value = cost(pod);
    if (value > best) continue;
    if (value < best) found = [];
    best = value;
    found.push(pod);
  }
  return found.length === 1 ? found[0]! : found[random.below(found.length)]!;
}

/** A session's name as the key of the policy session. */
function keyOf(session: string): bigint {
  let key = 0xcbf29ce484222325n;
  for (let i = 0; i < session.length; i++)
    key = BigInt.asUintN(64, (key ^ BigInt(session.charCodeAt(i))) * 0x100000001b3n);
  return key === 0n ? 1n : key;
}

/** The less loaded one of two random pods. */
const powerOfTwo: Choose = ({ router, random, nowMs }) => {
  const one = random.below(router.pods);
  if (router.pods === 1) return one;
  const other = (one + 1 + random.below(router.pods - 1)) % router.pods;
  return router.inFlight(other, nowMs) < router.inFlight(one, nowMs) ? other : one;
};

/** Scores from 0 to 1 for matched share, short queue and free memory, added by weight, as in the endpoint picker of llm-d. */
function weighted(prefix: number, queue: number, memory: number): Choose {
  return (choice) => {
    const { router, polled } = choice;
    const waiting = polled.map((pod) => pod.waiting);
    const most = Math.max(...waiting);
    const least = Math.min(...waiting);
    return cheapest(choice, (pod) => {
      const matched = router.promptBytes === 0 ? 0 : router.matchBytes(pod) / router.promptBytes;
      const short = most === least ? 1 : (most - waiting[pod]!) / (most - least);
      return -(prefix * matched + queue * short + memory * (1 - polled[pod]!.kvUsage));
    });
  };
}

const MATCH_SHARE = 0.5;
const IMBALANCE_REQUESTS = 32;

/** SGLang's rule: balance when loads are far apart; else the longest match if it is more than half, else the pod that holds least. */
const thresholdTree: Choose = (choice) => {
  const { router, nowMs } = choice;
  const loads = Array.from({ length: router.pods }, (_, pod) => router.inFlight(pod, nowMs));
  const most = Math.max(...loads);
  const least = Math.min(...loads);
  if (most - least > IMBALANCE_REQUESTS && most > least * 1.0001) return cheapest(choice, (pod) => loads[pod]!);
  const longest = cheapest(choice, (pod) => -router.matchBytes(pod));
  if (router.matchBytes(longest) > MATCH_SHARE * router.promptBytes) return longest;
  return cheapest(choice, (pod) => router.heldBytes(pod));
};

/** Dynamo's rule: blocks to prefill, queued ones included, plus blocks in use for decoding. The latter are taken from the engines as they are. */
const kvDecode: Choose = (choice) => {
  const { router, nowMs, engines } = choice;
  return cheapest(choice, (pod) => {
    const { cache, blockTokens } = engines[pod]!;
    const uncached = router.uncachedTokens(pod);
    return (router.queuedTokens(pod, nowMs) + 2 * uncached) / blockTokens + cache.blocks - cache.freeBlocks;
  });
};

/** LMETRIC: tokens to prefill times the batch. */
const prefillTimesBatch: Choose = (choice) => {
  const { router, nowMs } = choice;
  return cheapest(
    choice,
    (pod) => (router.queuedTokens(pod, nowMs) + router.uncachedTokens(pod)) * (router.inFlight(pod, nowMs) + 1),
  );
};

const longestMatch: Choose = (choice) => {
  const { router, nowMs } = choice;
  // In flight is far below a million, so it only decides between equal matches.
  return cheapest(choice, (pod) => -router.matchBytes(pod) * 1e6 + router.inFlight(pod, nowMs));
};

const baselines = {
  'power-of-two': powerOfTwo,
  'weighted-3:2:2': weighted(3, 2, 2),
  'weighted-3:5:2': weighted(3, 5, 2),
  'threshold-tree': thresholdTree,
  'kv-decode': kvDecode,
  'prefill-x-batch': prefillTimesBatch,
  'longest-match': longestMatch,
} satisfies Record<string, Choose>;

export type ReplayPolicy = EnginePolicy | keyof typeof baselines;

export const REPLAY_POLICIES: readonly ReplayPolicy[] = [
  ...(Object.keys(POLICY_CODES) as EnginePolicy[]),
  ...(Object.keys(baselines) as (keyof typeof baselines)[]),
];

export function choiceOf(policy: ReplayPolicy): Choose {
  if (policy in baselines) return baselines[policy as keyof typeof baselines];
  const code = POLICY_CODES[policy as EnginePolicy];
  // The client's own hash of the policy prefix-header is that of the first block.
  if (policy === 'session') return ({ router, nowMs, session }) => router.pick(code, nowMs, keyOf(session));
  return ({ router, nowMs }) => router.pick(code, nowMs);
}

/** Whether a policy's original polls the engines. */
export function polls(policy: ReplayPolicy): boolean {
  return policy.startsWith('weighted-');
}
