// How the benches measure and report: each case runs several times after a warm-up, and what is printed is the least, the
// median and the most nanoseconds for one operation, beside the machine and the versions that the numbers belong to.
import { cpus, arch, platform, release, totalmem } from 'node:os';
import { parseArgs } from 'node:util';
import type { Command } from 'commander';

export interface Measured {
  name: string;
  nsMin: number;
  nsMedian: number;
  nsMax: number;
  operations: number;
  repeats: number;
}

export interface Case {
  name: string;
  /** Runs `count` operations. */
  run: (count: number) => void;
  /** Operations of one repeat. */
  operations: number;
}

export interface Report {
  bench: string;
  machine: string;
  versions: Record<string, string>;
  results: Measured[];
}

function measure(one: Case, repeats: number, tiny: boolean): Measured {
  const operations = tiny ? Math.min(one.operations, 20) : one.operations;
  one.run(operations);
  const ns: number[] = [];
  for (let i = 0; i < repeats; i++) {
    const start = process.hrtime.bigint();
    one.run(operations);
    ns.push(Number(process.hrtime.bigint() - start) / operations);
  }
  const sorted = ns.toSorted((a, b) => a - b);
  const at = (share: number): number => Math.round((sorted[Math.floor((sorted.length - 1) * share)] ?? 0) * 10) / 10;
  return { name: one.name, nsMin: at(0), nsMedian: at(0.5), nsMax: at(1), operations, repeats };
}

/** The machine that numbers belong to. */
export function machineText(): string {
  const memoryGiB = Math.round(totalmem() / 2 ** 30);
  return `${cpus()[0]?.model ?? 'unknown'} x ${cpus().length}, ${memoryGiB} GiB, ${platform()} ${release()} ${arch()}`;
}

export function reportOf(bench: string, cases: readonly Case[], tiny: boolean): Report {
  return {
    bench,
    machine: machineText(),
    versions: { node: process.versions.node, v8: process.versions.v8 },
    results: cases.map((one) => measure(one, tiny ? 3 : 15, tiny)),
  };
}

export function textOf(report: Report): string {
  const versions = Object.entries(report.versions).map(([name, version]) => `${name} ${version}`);
  const lines = [report.bench, report.machine, versions.join(', '), ''];
  const widest = Math.max(...report.results.map(({ name }) => name.length));
  lines.push(
    `${'ns for one operation'.padEnd(widest)} ${'min'.padStart(10)} ${'median'.padStart(10)} ${'max'.padStart(10)}`,
  );
  for (const { name, nsMin, nsMedian, nsMax } of report.results) {
    const numbers = [nsMin, nsMedian, nsMax].map((ns) => ns.toFixed(ns < 100 ? 1 : 0).padStart(10));
    lines.push(`${name.padEnd(widest)} ${numbers.join(' ')}`);
  }
  return `${lines.join('\n')}\n`;
}

/** The command line of every bench: `node bench/NAME.ts [--json] [--tiny]`. */
export async function main(bench: string, cases: (tiny: boolean) => Promise<Case[]>): Promise<void> {
  const { values } = parseArgs({
    options: { json: { type: 'boolean', default: false }, tiny: { type: 'boolean', default: false } },
  });
  const report = reportOf(bench, await cases(values.tiny), values.tiny);
  process.stdout.write(values.json ? `${JSON.stringify(report, null, 2)}\n` : textOf(report));
}

/**
 * The command line of a bench with options of its own: what `measure` gives is printed as text or, with --json, as it is, and `say` writes to standard
 * error. Gives the exit code: 2 = used wrongly, 1 = a bound does not hold.
 */
export async function commandMain<Options, Report extends { bench: string; broken?: string[] }>(
  command: Command,
  measure: (options: Options, say: (line: string) => void) => Promise<Report>,
  textOf: (report: Report) => string,
): Promise<number> {
  command.option('--json', 'print one JSON document', false).exitOverride();
  try {
    command.parse();
  } catch {
    return process.argv.includes('--help') || process.argv.includes('-h') ? 0 : 2;
  }
  const { json, ...options } = command.opts<{ json: boolean }>();
  const report = await measure(options as Options, (line) => process.stderr.write(`${command.name()}: ${line}\n`));
  process.stdout.write(json ? `${JSON.stringify(report, null, 2)}\n` : textOf(report));
  return (report.broken ?? []).length === 0 ? 0 : 1;
}
