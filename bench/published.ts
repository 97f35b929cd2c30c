// W1 against the numbers that were published for it, under several assumptions about what the published text leaves open: how many documents there
// are, whether clients send answers back as they came, and how much memory a replica has. Virtual time, one round of 110 requests for each seed.
//
//   node bench/published.ts [--seeds N] [--json] [--help]

import { parseArgs } from 'node:util';
import { engineConstants } from '../sim/constants.ts';
import { oracle, roundRobin, runVirtual, type Chooser } from '../sim/virtual.ts';
import { workload, type WorkloadOptions } from '../sim/workloads.ts';

const usage = `node bench/published.ts [OPTIONS]
  --seeds N   seeds from 2 on, of which means are taken (default: 5)
  --json      one JSON document in place of a table
  --help
`;

interface Assumption {
  documents: number;
  answers: 'actual' | 'rewritten';
  kvTokens: number;
}

const { kvTokens: KV_TOKENS } = engineConstants('L4-8B');

export const assumptions: readonly Assumption[] = [
  { documents: 2, answers: 'actual', kvTokens: KV_TOKENS },
  { documents: 2, answers: 'rewritten', kvTokens: KV_TOKENS },
  { documents: 2, answers: 'rewritten', kvTokens: 15_000 },
  { documents: 4, answers: 'rewritten', kvTokens: KV_TOKENS },
  { documents: 4, answers: 'rewritten', kvTokens: 18_000 },
  { documents: 5, answers: 'rewritten', kvTokens: KV_TOKENS },
  { documents: 5, answers: 'rewritten', kvTokens: 22_000 },
  { documents: 5, answers: 'rewritten', kvTokens: 18_000 },
  { documents: 11, answers: 'rewritten', kvTokens: KV_TOKENS },
];

interface Numbers {
  p95Ms: number;
  p99Ms: number;
  hitShare: number;
}

export interface Row extends Assumption {
  roundRobin: Numbers;
  perfect: Numbers;
}

export function rowOf(assumption: Assumption, seeds: number): Row {
  const { documents, answers, kvTokens } = assumption;
  const options: WorkloadOptions = { rounds: 1, documents, answers };
  const constants = { ...engineConstants('L4-8B'), kvTokens };
  const numbers = (chooser: () => Chooser): Numbers => {
    const summaries = Array.from(
      { length: seeds },
      (_, i) => runVirtual({ workload: workload('W1', 2 + i, options), chooser: chooser(), constants }).summary,
    );
    const mean = (of: (summary: (typeof summaries)[number]) => number): number =>
      summaries.reduce((sum, summary) => sum + of(summary), 0) / seeds;
    return {
      p95Ms: mean(({ ttftMs }) => ttftMs.p95),
      p99Ms: mean(({ ttftMs }) => ttftMs.p99),
      hitShare: mean(({ hitShareTokens }) => hitShareTokens),
    };
  };
  return { ...assumption, roundRobin: numbers(roundRobin), perfect: numbers(oracle) };
}

function text(rows: readonly Row[]): string {
  const cell = ({ p95Ms, p99Ms, hitShare }: Numbers): string =>
    `${p95Ms.toFixed(0)} / ${p99Ms.toFixed(0)} / ${(100 * hitShare).toFixed(0)} %`;
  const [first] = workload('W1').published;
  const second = workload('W1').published[1]!;
  const published = [first!, second].map(({ ttftMs, hitShareTokens }) =>
    cell({ p95Ms: ttftMs.p95, p99Ms: ttftMs.p99!, hitShare: hitShareTokens! }),
  );
  const lines = [
    ['documents', 'answers', 'KV tokens', 'round robin p95 / p99 / hit', 'perfect knowledge p95 / p99 / hit'],
    ['published', '', '', published[0]!, published[1]!],
    ...rows.map((row) => [
      String(row.documents),
      row.answers,
      String(row.kvTokens),
      cell(row.roundRobin),
      cell(row.perfect),
    ]),
  ];
  const widths = lines[0]!.map((_, column) => Math.max(...lines.map((line) => line[column]!.length)));
  return lines
    .map((line) => `| ${line.map((value, column) => value.padEnd(widths[column]!)).join(' | ')} |\n`)
    .join('');
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string', default: '5' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const seeds = Number(values.seeds);
  if (values.help) process.stdout.write(usage);
  else if (!Number.isInteger(seeds) || seeds < 1) {
    process.stderr.write(`--seeds is "${values.seeds}", expected a whole number from 1\n\n${usage}`);
    process.exitCode = 2;
  } else {
    const rows = assumptions.map((assumption) => rowOf(assumption, seeds));
    process.stdout.write(values.json ? `${JSON.stringify(rows, null, 2)}\n` : text(rows));
  }
}
