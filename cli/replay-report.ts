// A replay's result as a person reads it: one row a policy, with its S when there is another to compare it with.

import { scores, type PolicyRow } from '../sim/replay/score.ts';
import { table } from './up/report.ts';

/** What `--json` prints. */
export interface ReplayDocument {
  source: string;
  replicas: number;
  engine: string;
  routers: number;
  seeds: number;
  policies: PolicyRow[];
}

const columns = ['policy', 'requests', 'TTFT mean', 'p50', 'p95', 'p99 ms', 'end mean ms', 'hit', 'req/s', 'skew', 'S'];

/** Three digits are enough to compare by, and long times need no more. */
function shown(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

export function replayReport(document: ReplayDocument): string {
  const { source, replicas, engine, routers, seeds, policies } = document;
  const s = policies.length > 1 ? scores(policies) : [];
  const rows = policies.map((row, i) => [
    row.name,
    String(row.requests),
    ...[row.ttftMs.mean, row.ttftMs.p50, row.ttftMs.p95, row.ttftMs.p99, row.e2eMs.mean].map(shown),
    `${(row.hitShareTokens * 100).toFixed(1)} %`,
    row.requestsPerSecond.toFixed(2),
    `${row.loadSkew.toFixed(2)}x`,
    s[i]?.toFixed(2) ?? '',
  ]);
  const count = (n: number, what: string) => `${n} ${what}${n === 1 ? '' : 's'}`;
  const head = `${source}  ${replicas} x ${engine}, ${count(routers, 'router')}, ${count(seeds, 'seed')}`;
  return `${head}\n${table([columns, ...rows])}\n`;
}
