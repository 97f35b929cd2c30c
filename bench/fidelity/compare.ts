// What real and virtual runs are compared by: the order of policies where the real one is sure of it, hit shares for the same picks, and what is
// forgotten when memory is full.

import type { PolicyName } from '../../control-plane/engine/frames.ts';
import type { Played } from './real.ts';
import type { Replayed } from './virtual.ts';

/** Hit shares of the same requests and picks may differ by so many points. */
export const HIT_POINTS_MAX = 2;

export interface Arm {
  policy: PolicyName;
  /** TTFT p95 of each run, real and virtual. */
  realMs: number[];
  virtualMs: number[];
  /** Hit shares of each real run, of the replay of its picks, and of the policy left to itself in virtual time. */
  realHits: number[];
  replayedHits: number[];
  virtualHits: number[];
  /** Requests whose cached tokens are the same number, real and replayed. */
  equal: number;
  requests: number;
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}

export function spreadOf(values: readonly number[]): number {
  return Math.max(...values) - Math.min(...values);
}

export interface Pair {
  faster: PolicyName;
  slower: PolicyName;
  realMs: number;
  spreadMs: number;
  /** The simulator's difference; it agrees when this is positive. */
  virtualMs: number;
}

/** The pairs of policies whose real difference exceeds the spread of either's runs. */
export function surePairs(arms: readonly Arm[]): Pair[] {
  const pairs: Pair[] = [];
  for (const [i, a] of arms.entries()) {
    for (const b of arms.slice(i + 1)) {
      const [faster, slower] = mean(a.realMs) <= mean(b.realMs) ? [a, b] : [b, a];
      const realMs = mean(slower.realMs) - mean(faster.realMs);
      const spreadMs = Math.max(spreadOf(a.realMs), spreadOf(b.realMs));
      if (realMs <= spreadMs) continue;
      const virtualMs = mean(slower.virtualMs) - mean(faster.virtualMs);
      pairs.push({ faster: faster.policy, slower: slower.policy, realMs, spreadMs, virtualMs });
    }
  }
  return pairs;
}

/** Cached tokens over prompt tokens, of the measured requests. */
export function hitShare(played: readonly Played[], cachedTokens: readonly number[]): number {
  let cached = 0;
  let prompt = 0;
  for (const [i, { measured, tokens }] of played.entries()) {
    if (!measured) continue;
    cached += cachedTokens[i]!;
    prompt += tokens.length;
  }
  return prompt === 0 ? 0 : cached / prompt;
}

export function equalCounts(played: readonly Played[], { cachedTokens }: Replayed): number {
  return played.filter((one, i) => one.cachedTokens === cachedTokens[i]).length;
}

export interface WorkloadResult {
  workload: string;
  requestsPerSecond: number;
  arms: Arm[];
}

export interface Eviction {
  prompts: number;
  equal: number;
  realHits: number;
  virtualHits: number;
}

/** Bounds that do not hold, in words. */
export function broken(results: readonly WorkloadResult[], evictions: readonly Eviction[]): string[] {
  const words: string[] = [];
  for (const { workload, arms } of results) {
    for (const { faster, slower, virtualMs } of surePairs(arms)) {
      if (virtualMs <= 0)
        words.push(`${workload}: ${faster} is faster than ${slower} on real engines, not in virtual time`);
    }
    for (const { policy, realHits, replayedHits } of arms) {
      const points = Math.max(...realHits.map((hits, i) => Math.abs(hits - replayedHits[i]!))) * 100;
      if (points > HIT_POINTS_MAX)
        words.push(`${workload}, ${policy}: hit shares differ by ${points.toFixed(1)} points`);
    }
  }
  for (const { prompts, equal } of evictions) {
    if (equal < prompts)
      words.push(`eviction: ${prompts - equal} of ${prompts} prompts found something else in the cache`);
  }
  return words;
}
