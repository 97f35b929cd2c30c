// The results of all runs as one document and as a table in Markdown.

import { arch, cpus, platform, release, totalmem } from 'node:os';
import { envoyVersionDefault } from '../../envoy/fetch.ts';
import type { Result } from './run.ts';

interface Row {
  name: string;
  what: string;
  runs: Omit<Result, 'name' | 'what'>[];
}

export interface Document {
  machine: string;
  versions: { node: string; envoy: string };
  conditions: object;
  outages: Row[];
  broken: string[];
}

export function documentOf(results: readonly Result[][], conditions: { version?: string }): Document {
  const { version, ...others } = conditions;
  return {
    machine: `${cpus()[0]?.model ?? 'unknown'} x ${cpus().length}, ${Math.round(totalmem() / 2 ** 30)} GiB, ${platform()} ${release()} ${arch()}`,
    versions: { node: process.versions.node, envoy: process.env.ENVOY_BIN ?? version ?? envoyVersionDefault },
    conditions: others,
    outages: results.map((several) => ({
      name: several[0]!.name,
      what: several[0]!.what,
      runs: several.map(({ name: _name, what: _what, ...rest }) => rest),
    })),
    broken: results.flat().flatMap(({ name, broken }) => broken.map((words) => `${name}: ${words}`)),
  };
}

/** One number, or the least and the most of several runs. */
function spread(values: readonly (number | null | undefined)[], text: (value: number) => string): string {
  if (values.includes(null)) return 'never';
  const numbers = values.filter((value) => typeof value === 'number').map(text);
  const [low, high] = [numbers.toSorted(byNumber)[0] ?? '', numbers.toSorted(byNumber).at(-1) ?? ''];
  return low === high ? low : `${low} to ${high}`;
}
const byNumber = (a: string, b: string): number => Number(a) - Number(b);
const count = (value: number): string => `${value}`;
const seconds = (ms: number): string => (ms / 1000).toFixed(1);

const columns: [string, (runs: Row['runs']) => string][] = [
  [
    'requests',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.warmpath.requests),
        count,
      ),
  ],
  [
    'failed',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.warmpath.failed),
        count,
      ),
  ],
  [
    'failed, plain',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.plain.failed),
        count,
      ),
  ],
  [
    'cut',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.warmpath.cut),
        count,
      ),
  ],
  [
    'cut, plain',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.plain.cut),
        count,
      ),
  ],
  [
    'hung',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.warmpath.hung),
        count,
      ),
  ],
  [
    'hung, plain',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.plain.hung),
        count,
      ),
  ],
  [
    'picks right after s',
    (runs) =>
      spread(
        runs.map(({ picks }) => picks.rightAfterMs),
        seconds,
      ),
  ],
  [
    'used again after s',
    (runs) =>
      spread(
        runs.map(({ picks }) => picks.usedAgainMs),
        seconds,
      ),
  ],
  [
    'TTFT p95 ms',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.warmpath.ttftMsP95),
        count,
      ),
  ],
  [
    'TTFT p95 ms, plain',
    (runs) =>
      spread(
        runs.map(({ arms }) => arms.plain.ttftMsP95),
        count,
      ),
  ],
];

export function tableOf({ machine, versions, outages, broken }: Document): string {
  const rows = [
    ['outage', ...columns.map(([name]) => name)],
    ...outages.map(({ name, runs }) => [name, ...columns.map(([, cell]) => cell(runs))]),
  ];
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join(' | ')} |\n`;
  const rule = line(widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)));
  const verdict = broken.length === 0 ? 'all bounds hold\n' : broken.map((words) => `BROKEN ${words}\n`).join('');
  return `${machine}, Node ${versions.node}, Envoy ${versions.envoy}\n\n${line(rows[0]!)}${rule}${rows.slice(1).map(line).join('')}\n${verdict}`;
}
