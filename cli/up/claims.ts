// What the comparison has to show, written as checks over its numbers. A claim that does not hold makes `up --once` exit with 1, so the
// demo cannot quietly stop being true.

import type { ArmResult, RunResult } from './results.ts';

export interface Verdict {
  holds: boolean;
  /** Counts on any shape of the run; the others only on the one that they were made for. */
  always: boolean;
  /** One line: what was compared, what came out, what was wanted. */
  text: string;
}

function ratio(what: string, value: number, limit: number, direction: 'at least' | 'at most', unit = ''): Verdict {
  const shown = unit === '%' ? `${(value * 100).toFixed(1)} %` : value.toFixed(2);
  const wanted = unit === '%' ? `${(limit * 100).toFixed(0)} %` : String(limit);
  return {
    always: false,
    holds: Number.isFinite(value) && (direction === 'at least' ? value >= limit : value <= limit),
    text: `${what}: ${shown} (wanted ${direction} ${wanted})`,
  };
}

/** The claims on a workload; those that need an arm which did not run are left out. */
export function verdicts(run: RunResult): Verdict[] {
  const arm = (name: string) => run.arms.find((candidate) => candidate.name === name);
  const [even, warm, firstBlock] = [arm('round-robin'), arm('prefill-cost'), arm('first-block-hash')];
  const found = run.arms.map(noFailures);
  if (even && warm) found.push(...(comparisons[run.workload]?.(even, warm) ?? []));
  if (even && firstBlock && run.workload === 'W3s') found.push(...firstBlockMelts(even, firstBlock));
  return found;
}

function noFailures(arm: ArmResult): Verdict {
  return {
    always: true,
    holds: arm.failed === 0 && arm.hung === 0 && arm.requests > 0,
    text: `${arm.name}: ${arm.failed} of ${arm.requests} requests failed, ${arm.hung} hung (wanted 0)`,
  };
}

const comparisons: Readonly<Record<string, (even: ArmResult, warm: ArmResult) => Verdict[]>> = {
  W1: (even, warm) => [
    ratio('TTFT p95, round-robin / prefill-cost', even.ttftMs.p95 / warm.ttftMs.p95, 2.5, 'at least'),
    ratio('TTFT p99, prefill-cost / round-robin', warm.ttftMs.p99 / even.ttftMs.p99, 1.15, 'at most'),
    ratio('prompt tokens from cache, prefill-cost', warm.hitShareTokens, 0.9, 'at least', '%'),
    ratio(
      'requests per second, difference',
      Math.abs(warm.requestsPerSecond / even.requestsPerSecond - 1),
      0.05,
      'at most',
      '%',
    ),
  ],
  W3s: (even, warm) => [
    ratio('TTFT p95, prefill-cost / round-robin', warm.ttftMs.p95 / even.ttftMs.p95, 0.5, 'at most'),
    ratio('busiest pod / mean, prefill-cost', warm.busiestPodShare, 1.3, 'at most'),
  ],
  trace: (even, warm) => [
    ratio('TTFT p95, prefill-cost / round-robin', warm.ttftMs.p95 / even.ttftMs.p95, 0.5, 'at most'),
    ratio(
      'prompt tokens from cache, prefill-cost / round-robin',
      warm.hitShareTokens / even.hitShareTokens,
      1.5,
      'at least',
    ),
  ],
};

/** The hot prefix must break a policy that only hashes it. When it does not, the workload is too mild to prove anything. */
function firstBlockMelts(even: ArmResult, firstBlock: ArmResult): Verdict[] {
  return [
    ratio('TTFT p95, first-block-hash / round-robin', firstBlock.ttftMs.p95 / even.ttftMs.p95, 2, 'at least'),
    ratio('busiest pod / mean, first-block-hash', firstBlock.busiestPodShare, 1.3, 'at least'),
  ];
}

/** The verdicts that make `up --once` end with 1. */
export function failures(run: RunResult, asSpecified: boolean): Verdict[] {
  return verdicts(run).filter((verdict) => !verdict.holds && (asSpecified || verdict.always));
}
