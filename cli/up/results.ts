// The shape of what `up` prints with --json: one document, and a change here is a change for whoever reads it.

import type { DriveSummary } from '../../sim/drive.ts';
import type { Published } from '../../sim/workload.ts';

export interface ArmResult {
  name: string;
  requests: number;
  failed: number;
  hung: number;
  ttftMs: { p50: number; p95: number; p99: number };
  tpotMs: { p50: number; p95: number };
  hitShareTokens: number;
  requestsPerSecond: number;
  /** Requests of the busiest pod over the mean of all pods: 1 is perfectly even, the number of replicas is one pod doing everything. */
  busiestPodShare: number;
  seconds: number;
}

export interface RunResult {
  workload: string;
  engine: string;
  replicas: number;
  arms: ArmResult[];
  /** Others' measurements of the same workload; what they did not publish is absent. */
  published: Published[];
}

export interface UpDocument {
  runs: RunResult[];
}

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits));

/** One arm's row, rounded to what can be told apart. */
export function armResult(name: string, { ttftMs, tpotMs, ...summary }: DriveSummary): ArmResult {
  return {
    name,
    requests: summary.requests,
    failed: summary.failed,
    hung: summary.hung,
    ttftMs: { p50: rounded(ttftMs.p50, 1), p95: rounded(ttftMs.p95, 1), p99: rounded(ttftMs.p99, 1) },
    tpotMs: { p50: rounded(tpotMs.p50, 2), p95: rounded(tpotMs.p95, 2) },
    hitShareTokens: rounded(summary.hitShareTokens, 4),
    requestsPerSecond: rounded(summary.requestsPerSecond, 3),
    busiestPodShare: rounded(summary.busiestPodShare, 3),
    seconds: rounded(summary.seconds, 1),
  };
}
