// The tables that `npm run fidelity` prints, in the form in which docs/FIDELITY.md quotes them.

import type { Fit } from '../../sim/fit.ts';
import { mean, spreadOf, surePairs, type Eviction, type WorkloadResult } from './compare.ts';

export interface FidelityDocument {
  machine: string;
  seconds: number;
  fit: Fit;
  results: WorkloadResult[];
  evictions: Eviction[];
  broken: string[];
}

const ms = (value: number): string => value.toFixed(0);
const percent = (value: number): string => `${(100 * value).toFixed(1)} %`;

function table(head: string[], rows: string[][]): string {
  const all = [head, head.map(() => '---'), ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => row[column]!.length)));
  return all
    .map(
      (row) =>
        `| ${row.map((cell, column) => (cell === '---' ? '-'.repeat(widths[column]!) : cell.padEnd(widths[column]!))).join(' | ')} |\n`,
    )
    .join('');
}

export function reportText({ machine, seconds, fit, results, evictions, broken }: FidelityDocument): string {
  const { constants, frontMs, blockTokens } = fit.engine;
  const { overheadSeconds, perTokenSeconds, perAttentionSeconds, perContextSeconds, kvTokens } = constants;
  const parts = [
    `${machine}, ${seconds.toFixed(0)} s\n\n`,
    `fitted engine: ${frontMs.toFixed(1)} ms in front, a step ${(overheadSeconds * 1e3).toFixed(2)} ms + ${(perTokenSeconds * 1e6).toFixed(1)} us a token + ` +
      `${perAttentionSeconds.toExponential(1)} s of attention + ${perContextSeconds.toExponential(1)} s of context, ${kvTokens} tokens in blocks of ${blockTokens}\n\n`,
    table(
      ['measured', 'ms', 'fitted'],
      fit.points.map(({ what, measuredMs, fittedMs }) => [what, measuredMs.toFixed(1), fittedMs.toFixed(1)]),
    ),
    '\n',
    table(
      [
        'workload',
        'policy',
        'TTFT p95 real, ms',
        'virtual, ms',
        'hit real',
        'same picks',
        'own picks',
        'equal requests',
      ],
      results.flatMap(({ workload, arms }) =>
        arms.map((arm) => [
          workload,
          arm.policy,
          `${ms(mean(arm.realMs))} (spread ${ms(spreadOf(arm.realMs))})`,
          ms(mean(arm.virtualMs)),
          percent(mean(arm.realHits)),
          percent(mean(arm.replayedHits)),
          percent(mean(arm.virtualHits)),
          `${arm.equal} of ${arm.requests}`,
        ]),
      ),
    ),
    '\n',
    table(
      ['workload', 'faster', 'slower', 'real difference, ms', 'its spread', 'virtual difference, ms'],
      results.flatMap(({ workload, arms }) =>
        surePairs(arms).map(({ faster, slower, realMs, spreadMs, virtualMs }) => [
          workload,
          faster,
          slower,
          ms(realMs),
          ms(spreadMs),
          ms(virtualMs),
        ]),
      ),
    ),
    '\n',
    ...evictions.map(
      ({ prompts, equal, realHits, virtualHits }) =>
        `eviction: ${equal} of ${prompts} prompts found the same in a full cache; hit share ${percent(realHits)} real, ${percent(virtualHits)} simulated\n`,
    ),
    broken.length === 0 ? '\nall bounds hold\n' : `\n${broken.map((line) => `NOT: ${line}\n`).join('')}`,
  ];
  return parts.join('');
}
