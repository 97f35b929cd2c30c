// What it costs that the first token of answers that are not streamed cannot be seen: `prefill-cost` with a share of such answers over the same with
// streams only, in virtual time on the named workloads. The table in docs/REPLAY.md is what this prints.
//
//   npm run bench -- streams [--rows W1,W5@2] [--percents 50,100] [--seeds N] [--limit N] [--threads N] [--json]
//
// S is the time with the share over the time without (sim/replay/score.ts), of all seeds together.
import { availableParallelism } from 'node:os';
import { Command } from 'commander';
import { wholeNumber } from '../cli/arguments.ts';
import { runJobs } from '../sim/replay/jobs.ts';
import type { ReplayOptions } from '../sim/replay/run.ts';
import { policyRow, timeOf } from '../sim/replay/score.ts';
import { geometricMeanOf, sourceOf } from './gateways.ts';
import { commandMain, machineText } from './measure.ts';

/** What the design asks for in each row, by the percentage that is not streamed. */
const BOUNDS: Readonly<Record<number, number>> = { 50: 1.05, 100: 1.1 };
const ROWS = ['W1', 'W2', 'W3', 'W3s', 'W4', 'W5', 'W6', 'W7', 'W8'];

export interface StreamsOptions {
  rows?: string | undefined;
  percents: number[];
  seeds: number;
  limit?: number | undefined;
  threads: number;
}

interface Share {
  percent: number;
  ratio: number;
  bySeed: number[];
}

export interface StreamsReport {
  bench: 'streams';
  machine: string;
  versions: Record<string, string>;
  options: StreamsOptions;
  rows: { name: string; shares: Share[] }[];
  geometricMean: number[];
  bounds: typeof BOUNDS;
  broken: string[];
}

export async function streamsReport(
  options: StreamsOptions,
  onRow: (text: string) => void = () => {},
): Promise<StreamsReport> {
  const { percents, seeds, limit, threads } = options;
  const rows: StreamsReport['rows'] = [];
  for (const name of options.rows?.split(',') ?? ROWS) {
    const fixed = {
      ...sourceOf(name),
      policy: 'prefill-cost' as const,
      routers: 1,
      workers: 1,
      syncIntervalMs: 50,
      limit,
    };
    const jobs = [0, ...percents].flatMap((notStreamedPercent) =>
      Array.from({ length: seeds }, (_, i): ReplayOptions => ({ ...fixed, notStreamedPercent, seed: i + 1 })),
    );
    const results = await runJobs(jobs, { threads });
    const times = (at: number): number[] =>
      results.slice(at * seeds, (at + 1) * seeds).map((result) => timeOf(policyRow(name, [result])));
    const time = (at: number): number => timeOf(policyRow(name, results.slice(at * seeds, (at + 1) * seeds)));
    const streamed = times(0);
    const shares = percents.map((percent, i): Share => ({
      percent,
      ratio: time(i + 1) / time(0),
      bySeed: times(i + 1).map((one, seed) => one / (streamed[seed] ?? Number.NaN)),
    }));
    rows.push({ name, shares });
    onRow(`${name}: ${shares.map(({ percent, ratio }) => `${ratio.toFixed(3)} at ${percent} %`).join(', ')}`);
  }
  const broken = rows.flatMap(({ name, shares }) =>
    shares
      .filter(({ percent, ratio }) => !(ratio <= (BOUNDS[percent] ?? Number.POSITIVE_INFINITY)))
      .map(({ percent, ratio }) => `${name} at ${percent} % ${ratio.toFixed(3)}, wanted at most ${BOUNDS[percent]}`),
  );
  return {
    bench: 'streams',
    machine: machineText(),
    versions: { node: process.versions.node },
    options,
    rows,
    geometricMean: percents.map((_, i) => geometricMeanOf(rows.map(({ shares }) => shares[i]?.ratio ?? Number.NaN))),
    bounds: BOUNDS,
    broken,
  };
}

/** A table in Markdown, as docs/REPLAY.md has it. */
export function textOf(report: StreamsReport): string {
  const { machine, versions, options, rows, geometricMean, broken } = report;
  const cell = ({ ratio, bySeed }: Share): string =>
    `${ratio.toFixed(3)} (${Math.min(...bySeed).toFixed(2)} to ${Math.max(...bySeed).toFixed(2)})`;
  const lines = [
    ['row', ...options.percents.map((percent) => `${percent} % not streamed`)],
    ['---', ...options.percents.map(() => '---')],
    ...rows.map(({ name, shares }) => [name, ...shares.map(cell)]),
    ['geometric mean', ...geometricMean.map((value) => value.toFixed(3))],
  ];
  return [
    `S over that with streams only, prefill-cost, seeds 1 to ${options.seeds} together (least to most of one seed)`,
    machine,
    `node ${versions['node']}`,
    '',
    ...lines.map((line) => `| ${line.join(' | ')} |`),
    '',
    broken.length === 0 ? 'all bounds hold' : `DOES NOT HOLD: ${broken.join('; ')}`,
    '',
  ].join('\n');
}

const percentsOf = (text: string): number[] => text.split(',').map(wholeNumber(1, 100));

async function main(): Promise<number> {
  const command = new Command('streams')
    .description('What answers that are not streamed cost, in virtual time.')
    .option('--rows <names>', 'workloads, each with its load if not its own, such as W1,W5@2')
    .option('--percents <n,...>', 'shares of the answers that are not streamed', percentsOf, [50, 100])
    .option('--seeds <n>', 'play seeds 1 to n', wholeNumber(1, 100), 6)
    .option('--limit <n>', 'requests to play at most', wholeNumber(1, 10_000_000))
    .option('--threads <n>', 'threads to run on', wholeNumber(1, 256), availableParallelism());
  return commandMain(command, streamsReport, textOf);
}

if (import.meta.main) process.exitCode = await main();
