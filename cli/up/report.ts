// The comparison as a person reads it: one table per workload with others' numbers beside ours, then one line per claim.

import { verdicts, type Verdict } from './claims.ts';
import type { Published } from '../../sim/workload.ts';
import type { ArmResult, RunResult } from './results.ts';

const columns = [
  'policy',
  'requests',
  'failed',
  'TTFT p50',
  'p95',
  'p99 ms',
  'TPOT p50',
  'p95 ms',
  'hit',
  'req/s',
  'busiest',
];

const whole = (value: number) => value.toFixed(0);
const percent = (share: number) => `${(share * 100).toFixed(0)} %`;

function armRow(arm: ArmResult): string[] {
  return [
    arm.name,
    String(arm.requests),
    arm.hung === 0 ? String(arm.failed) : `${arm.failed} + ${arm.hung} hung`,
    whole(arm.ttftMs.p50),
    whole(arm.ttftMs.p95),
    whole(arm.ttftMs.p99),
    arm.tpotMs.p50.toFixed(1),
    arm.tpotMs.p95.toFixed(1),
    percent(arm.hitShareTokens),
    arm.requestsPerSecond.toFixed(2),
    `${arm.busiestPodShare.toFixed(2)}x`,
  ];
}

function publishedRow(other: Published): string[] {
  const hit = other.hitShareTokens === undefined ? '' : percent(other.hitShareTokens);
  const p99 = other.ttftMs.p99 === undefined ? '' : whole(other.ttftMs.p99);
  return [`  published: ${other.name}`, '', '', '', whole(other.ttftMs.p95), p99, '', '', hit, '', ''];
}

/** The policies that a published row is about: the same name, however it is written, and ours for any prefix-aware one. */
function isAbout(other: Published, arm: ArmResult): boolean {
  const name = other.name.toLowerCase().replaceAll(' ', '-');
  return name.startsWith(arm.name) || (name.startsWith('prefix-aware') && arm.name === 'prefill-cost');
}

/** Lines up cells: the first column to the left, numbers to the right. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = rows.reduce<number[]>((found, row) => row.map((cell, i) => Math.max(found[i] ?? 0, cell.length)), []);
  const line = (row: readonly string[]) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join('  ');
  return rows.map((row) => line(row).trimEnd()).join('\n');
}

function label({ holds, always }: Verdict, asSpecified: boolean): string {
  if (!asSpecified && !always) return 'info ';
  return holds ? 'holds' : 'FAILS';
}

export function runReport(run: RunResult, asSpecified: boolean): string {
  const rows = [columns];
  for (const arm of run.arms) {
    rows.push(armRow(arm));
    for (const other of run.published) if (isAbout(other, arm)) rows.push(publishedRow(other));
  }
  const lines = verdicts(run).map((verdict) => `  ${label(verdict, asSpecified)}  ${verdict.text}`);
  const note = asSpecified ? [] : ['  (no claims were made for this shape, so only failed requests count)'];
  return [`${run.workload}  ${run.replicas} x ${run.engine}`, table(rows), ...note, ...lines, ''].join('\n');
}
