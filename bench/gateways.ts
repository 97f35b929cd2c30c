// What it costs that a gateway hears of the others' picks a sync later: several gateways against one that all traffic goes through, in
// virtual time on the named workloads. The table in docs/REPLAY.md is what this prints.
//
//   npm run bench -- gateways [--rows W1,W5@2] [--routers N] [--sync-interval MS] [--seeds N] [--limit N] [--threads N] [--json]
//
// S is the time of several gateways over that of one (sim/replay/score.ts), with the engines' metrics and without. The one has metrics in both.
import { Command } from 'commander';
import { wholeNumber } from '../cli/arguments.ts';
import { runJobs } from '../sim/replay/jobs.ts';
import type { ReplayOptions } from '../sim/replay/run.ts';
import { policyRow, timeOf } from '../sim/replay/score.ts';
import { isWorkload } from '../sim/replay/source.ts';
import { commandMain, machineText } from './measure.ts';

/** What the design asks for, as the geometric mean over the rows. */
const BOUNDS = { withMetrics: 1.16, withoutMetrics: 1.2 };
const ROWS = ['W1', 'W2', 'W3', 'W4', 'W5', 'W6', 'W7', 'W8'];

export interface GatewaysOptions {
  rows?: string | undefined;
  routers: number;
  syncInterval: number;
  seeds: number;
  limit?: number | undefined;
  threads: number;
}

export interface GatewaysReport {
  bench: 'gateways';
  machine: string;
  versions: Record<string, string>;
  options: GatewaysOptions;
  rows: { name: string; withMetrics: number; withoutMetrics: number; ttftMsOfOne: number }[];
  geometricMean: { withMetrics: number; withoutMetrics: number };
  bounds: typeof BOUNDS;
  broken: string[];
}

/** A row's name, W1 or W1@2, as a workload and its load. */
export function sourceOf(name: string): { source: string; speed: number; rate?: number } {
  const [source = '', load] = name.split('@');
  if (!isWorkload(source)) throw new Error(`--rows: ${source} is no workload`);
  if (load === undefined) return { source, speed: 1 };
  if (!(Number(load) > 0)) throw new Error(`--rows: ${name}: the load is to be a number above 0`);
  return { source, speed: 1, rate: Number(load) };
}

export const geometricMeanOf = (values: number[]): number =>
  Math.exp(values.reduce((total, value) => total + Math.log(value), 0) / values.length);

export async function gatewaysReport(
  options: GatewaysOptions,
  onRow: (text: string) => void = () => {},
): Promise<GatewaysReport> {
  const { routers, syncInterval, seeds, limit, threads } = options;
  const arms = [
    { routers: 1, metrics: true },
    { routers, metrics: true },
    { routers, metrics: false },
  ];
  const rows: GatewaysReport['rows'] = [];
  for (const name of options.rows?.split(',') ?? ROWS) {
    const fixed = { workers: 1, syncIntervalMs: syncInterval, notStreamedPercent: 0, limit };
    const jobs = arms.flatMap((arm) =>
      Array.from({ length: seeds }, (_, i): ReplayOptions => ({
        ...sourceOf(name),
        ...fixed,
        ...arm,
        policy: 'prefill-cost',
        seed: i + 1,
      })),
    );
    const results = await runJobs(jobs, { threads });
    const outcomes = arms.map((_, i) => policyRow('prefill-cost', results.slice(i * seeds, (i + 1) * seeds)));
    const [one = Number.NaN, several = Number.NaN, blind = Number.NaN] = outcomes.map((outcome) => timeOf(outcome));
    const ttftMsOfOne = outcomes[0]?.ttftMs.mean ?? Number.NaN;
    rows.push({ name, withMetrics: several / one, withoutMetrics: blind / one, ttftMsOfOne });
    onRow(`${name}: ${(several / one).toFixed(3)} with metrics, ${(blind / one).toFixed(3)} without`);
  }
  const geometricMean = {
    withMetrics: geometricMeanOf(rows.map((row) => row.withMetrics)),
    withoutMetrics: geometricMeanOf(rows.map((row) => row.withoutMetrics)),
  };
  const broken = (Object.keys(BOUNDS) as (keyof typeof BOUNDS)[])
    .filter((arm) => !(geometricMean[arm] <= BOUNDS[arm]))
    .map((arm) => `${arm} ${geometricMean[arm].toFixed(3)}, wanted at most ${BOUNDS[arm]}`);
  const versions = { node: process.versions.node };
  return { bench: 'gateways', machine: machineText(), versions, options, rows, geometricMean, bounds: BOUNDS, broken };
}

/** A table in Markdown, as docs/REPLAY.md has it. */
export function textOf(report: GatewaysReport): string {
  const { machine, versions, options, rows, geometricMean, broken } = report;
  const { routers, syncInterval, seeds } = options;
  const lines = [
    ['row', 'S with metrics', 'S without metrics', 'mean TTFT of one gateway, ms'],
    ['---', '---', '---', '---'],
    ...rows.map(({ name, withMetrics, withoutMetrics, ttftMsOfOne }) => [
      name,
      withMetrics.toFixed(3),
      withoutMetrics.toFixed(3),
      ttftMsOfOne.toFixed(1),
    ]),
    ['geometric mean', geometricMean.withMetrics.toFixed(3), geometricMean.withoutMetrics.toFixed(3), ''],
  ];
  return [
    `${routers} gateways that sync every ${syncInterval} ms against one, prefill-cost, seeds 1 to ${seeds}`,
    machine,
    `node ${versions['node']}`,
    '',
    ...lines.map((line) => `| ${line.join(' | ')} |`),
    '',
    broken.length === 0 ? 'all bounds hold' : `DOES NOT HOLD: ${broken.join('; ')}`,
    '',
  ].join('\n');
}

async function main(): Promise<number> {
  const command = new Command('gateways')
    .description('What it costs that gateways hear of each other a sync later, in virtual time.')
    .option('--rows <names>', 'workloads, each with its load if not its own, such as W1,W5@2')
    .option('--routers <n>', 'gateways', wholeNumber(2, 64), 8)
    .option('--sync-interval <ms>', 'how often each syncs', wholeNumber(10, 60_000), 50)
    .option('--seeds <n>', 'repeat with seeds 1 to n', wholeNumber(1, 100), 2)
    .option('--limit <n>', 'requests to play at most', wholeNumber(1, 10_000_000))
    .option('--threads <n>', 'threads to run on', wholeNumber(1, 256), 1);
  return commandMain(command, gatewaysReport, textOf);
}

if (import.meta.main) process.exitCode = await main();
