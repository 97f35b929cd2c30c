// prefill-cost against other rules, in virtual time: every workload at several loads, and a trace if there is one, over several seeds. The
// table in docs/REPLAY.md is what this prints.
//
//   npm run bench -- policies [--trace FILE [--spread]] [--seeds N] [--rows W1,W2@30] [--policies a,b] [--limit N] [--threads N] [--json]
//
// A row is a workload and its load: requests or sessions a second, or how many times faster than recorded the trace is played. S is the time
// of a policy over that of the best other rule in the same row (sim/replay/score.ts); earlier forms of prefill-cost are no other rules.
import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { runJobs } from '../sim/replay/jobs.ts';
import { REPLAY_POLICIES, type ReplayPolicy } from '../sim/replay/policies.ts';
import type { ReplayOptions } from '../sim/replay/run.ts';
import { policyRow, timeOf } from '../sim/replay/score.ts';
import { isWorkload } from '../sim/replay/source.ts';
import { machineText } from './measure.ts';

const LOADS: readonly [name: string, loads: readonly number[]][] = [
  ['W1', []],
  ['W2', [10, 30, 60]],
  ['W3', [40, 80, 120]],
  ['W3s', []],
  ['W4', [20, 30, 40]],
  ['W5', [0.5, 1, 2]],
  ['W6', [40, 60, 75]],
  ['W7', [15, 20, 26]],
  ['W8', [12, 18]],
];
const TRACE = 'trace';
const TRACE_SPEEDS = [1, 2];
const OTHERS: readonly ReplayPolicy[] = REPLAY_POLICIES.filter((name) => !name.startsWith('prefill-cost'));
/** Left out unless asked for: hours of queueing in most rows, and never the best. */
const HOPELESS: readonly ReplayPolicy[] = ['first-block-hash', 'longest-match', 'round-robin', 'power-of-two'];

interface Row {
  name: string;
  source: string;
  rate?: number;
  speed: number;
  spread?: boolean;
}

export interface PoliciesReport {
  bench: 'policies';
  machine: string;
  versions: Record<string, string>;
  seeds: number;
  policies: ReplayPolicy[];
  rows: { name: string; best: ReplayPolicy; s: Record<string, number>; ttftMs: Record<string, number> }[];
  geometricMean: Record<string, number>;
  worst: Record<string, number>;
}

function rowOf(name: string, trace: string | undefined, spread: boolean): Row {
  const [source = '', load] = name.split('@');
  const value = load === undefined ? undefined : Number(load);
  if (value !== undefined && !(value > 0)) throw new Error(`--rows: ${name}: the load is to be a number above 0`);
  if (source === TRACE) {
    if (trace === undefined) throw new Error(`--rows: ${name} needs --trace FILE`);
    return { name, source: trace, speed: value ?? 1, spread };
  }
  if (!isWorkload(source)) throw new Error(`--rows: ${source} is no workload`);
  return { name, source, speed: 1, ...(value === undefined ? {} : { rate: value }) };
}

function rowNames(hasTrace: boolean): string[] {
  const named = LOADS.flatMap(([name, loads]) =>
    loads.length === 0 ? [name] : loads.map((load) => `${name}@${load}`),
  );
  return hasTrace ? [...named, ...TRACE_SPEEDS.map((speed) => `${TRACE}@${speed}`)] : named;
}

function geometricMean(values: readonly number[]): number {
  return Math.exp(values.reduce((total, value) => total + Math.log(value), 0) / values.length);
}

interface Flags {
  trace?: string | undefined;
  spread?: boolean | undefined;
  rows?: string | undefined;
  policies?: string | undefined;
  limit?: string | undefined;
  threads?: string | undefined;
  seeds: string;
}

export async function policiesReport(flags: Flags, onRow: (text: string) => void): Promise<PoliciesReport> {
  const { trace } = flags;
  if (trace !== undefined && !existsSync(trace)) throw new Error(`--trace: there is no file ${trace}`);
  const rows = (flags.rows?.split(',') ?? rowNames(trace !== undefined)).map((name) =>
    rowOf(name, trace, flags.spread ?? false),
  );
  const asked = flags.policies?.split(',') as ReplayPolicy[] | undefined;
  const policies = asked ?? [
    'prefill-cost',
    'prefill-cost-first',
    ...OTHERS.filter((name) => !HOPELESS.includes(name)),
  ];
  for (const name of policies) if (!REPLAY_POLICIES.includes(name)) throw new Error(`--policies: there is no ${name}`);
  const others = policies.filter((name) => OTHERS.includes(name));
  if (others.length < 2) throw new Error('--policies: two other rules at least, to compare with');
  const seeds = Number(flags.seeds);
  const limit = flags.limit === undefined ? undefined : Number(flags.limit);
  const threads = flags.threads === undefined ? undefined : Number(flags.threads);
  const report: PoliciesReport = {
    bench: 'policies',
    machine: machineText(),
    versions: { node: process.versions.node, v8: process.versions.v8 },
    seeds,
    policies,
    rows: [],
    geometricMean: {},
    worst: {},
  };
  for (const { name, ...source } of rows) {
    const fixed = { routers: 1, workers: 1, syncIntervalMs: 50, notStreamedPercent: 0, limit };
    const jobs = policies.flatMap((policy) =>
      Array.from({ length: seeds }, (_, i): ReplayOptions => ({ ...source, ...fixed, policy, seed: i + 1 })),
    );
    const results = await runJobs(jobs, { threads });
    const outcomes = policies.map((policy, i) => policyRow(policy, results.slice(i * seeds, (i + 1) * seeds)));
    const times = new Map(outcomes.map((row, i) => [policies[i]!, timeOf(row)]));
    const quickest = (names: readonly ReplayPolicy[]): ReplayPolicy =>
      names.reduce((best, one) => (times.get(one)! < times.get(best)! ? one : best));
    const s = policies.map((policy): [string, number] => {
      const peer = quickest(others.filter((other) => other !== policy));
      return [policy, times.get(policy)! / times.get(peer)!];
    });
    const row = {
      name,
      best: quickest(others),
      s: Object.fromEntries(s),
      ttftMs: Object.fromEntries(outcomes.map((outcome) => [outcome.name, outcome.ttftMs.mean])),
    };
    report.rows.push(row);
    onRow(`${name}: ${s.map(([policy, value]) => `${policy} ${value.toFixed(2)}`).join(', ')}`);
  }
  for (const policy of policies) {
    const values = report.rows.map((row) => row.s[policy]!);
    report.geometricMean[policy] = geometricMean(values);
    report.worst[policy] = Math.max(...values);
  }
  return report;
}

/** A table in Markdown, as docs/REPLAY.md has it. */
export function textOf(report: PoliciesReport): string {
  const { machine, versions, seeds, policies, rows, geometricMean: mean, worst } = report;
  const cells = (of: (policy: ReplayPolicy) => number): string[] => policies.map((policy) => of(policy).toFixed(2));
  const lines = [
    ['row', ...policies, 'best other'],
    ['---', ...policies.map(() => '---'), '---'],
    ...rows.map((row) => [row.name, ...cells((policy) => row.s[policy]!), row.best]),
    ['geometric mean', ...cells((policy) => mean[policy]!), ''],
    ['worst', ...cells((policy) => worst[policy]!), ''],
  ];
  const version = Object.entries(versions).map(([name, value]) => `${name} ${value}`);
  const head = `S of each policy, seeds 1 to ${seeds}\n${machine}\n${version.join(', ')}\n`;
  return `${head}\n${lines.map((line) => `| ${line.join(' | ')} |`).join('\n')}\n`;
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      trace: { type: 'string' },
      spread: { type: 'boolean' },
      rows: { type: 'string' },
      policies: { type: 'string' },
      limit: { type: 'string' },
      threads: { type: 'string' },
      seeds: { type: 'string', default: '2' },
      json: { type: 'boolean', default: false },
    },
  });
  const report = await policiesReport(values, (text) => process.stderr.write(`${text}\n`));
  process.stdout.write(values.json ? `${JSON.stringify(report, null, 2)}\n` : textOf(report));
}
