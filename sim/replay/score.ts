// What a replay says of each policy over all its seeds, and how policies stand to each other.

import type { ReplayResult } from './run.ts';

/** One policy of a comparison, as `--json` prints it. */
export interface PolicyRow {
  name: string;
  requests: number;
  ttftMs: { mean: number; p50: number; p95: number; p99: number };
  e2eMs: { mean: number };
  hitShareTokens: number;
  requestsPerSecond: number;
  /** Requests of the busiest pod over the mean of all pods. */
  loadSkew: number;
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((total, value) => total + value, 0) / values.length;
}

function geometricMean(values: readonly number[]): number {
  return Math.exp(mean(values.map(Math.log)));
}

/** Times, rates and skews are means over the seeds; requests are all requests, and the hit share is over all of them. */
export function policyRow(name: string, results: readonly ReplayResult[]): PolicyRow {
  const over = (of: (result: ReplayResult) => number): number => mean(results.map(of));
  const total = (of: (result: ReplayResult) => number): number => over(of) * results.length;
  const promptTokens = total((result) => result.promptTokens);
  return {
    name,
    requests: Math.round(total(({ summary }) => summary.requests)),
    ttftMs: {
      mean: over(({ summary }) => summary.ttftMs.mean),
      p50: over(({ summary }) => summary.ttftMs.p50),
      p95: over(({ summary }) => summary.ttftMs.p95),
      p99: over(({ summary }) => summary.ttftMs.p99),
    },
    e2eMs: { mean: over(({ summary }) => summary.e2eMs.mean) },
    hitShareTokens: promptTokens === 0 ? 0 : total((result) => result.cachedTokens) / promptTokens,
    requestsPerSecond: over(({ summary }) => summary.requestsPerSecond),
    loadSkew: over(({ summary }) => summary.busiestPodShare),
  };
}

/** What S is made of: the geometric mean of TTFT mean, p95 and p99 and of the mean time to the end. */
export function timeOf({ ttftMs, e2eMs }: Pick<PolicyRow, 'ttftMs' | 'e2eMs'>): number {
  return geometricMean([ttftMs.mean, ttftMs.p95, ttftMs.p99, e2eMs.mean]);
}

/** S of each policy: its time over that of the best other one. 1 is as good as the best peer, lower is better. */
export function scores(rows: readonly Pick<PolicyRow, 'ttftMs' | 'e2eMs'>[]): number[] {
  const times = rows.map(timeOf);
  return times.map((time, i) => time / Math.min(...times.filter((_, j) => j !== i)));
}
