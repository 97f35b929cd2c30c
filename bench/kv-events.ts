// What it is worth to be told of the engines' caches: routers that know nothing but their own touches, beside those that hear what the control plane
// takes from cache events, beside those that know every cache at every pick. In virtual time, on the same requests (docs/decisions/0007-kv-events.md).
//
//   node bench/kv-events.ts [--seeds N] [--trace FILE] [--only NAME] [--json] [--help]

import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { CacheTruth } from '../sim/replay/cache-truth.ts';
import { replay, type ReplayOptions } from '../sim/replay/run.ts';
import { policyRow, timeOf } from '../sim/replay/score.ts';

const usage = `node bench/kv-events.ts [OPTIONS]
  --seeds N     seeds from 1 on (default: 2)
  --trace FILE  a trace in Mooncake's format, of which the first 3,000 requests are played too
  --only NAME   one of capacity-known, capacity-wrong, resets
  --limit N     requests of each run at most
  --json        one JSON document in place of lines
  --help
`;

interface Arm {
  name: string;
  options: Partial<ReplayOptions>;
}

interface Line {
  group: string;
  source: string;
  routers: number;
  arm: string;
  /** Geometric mean of TTFT mean, p95, p99 and mean time to the end, over that of the first arm with the same seed: mean, least and most. */
  ratio: number;
  ratioMin: number;
  ratioMax: number;
  ttftP99Ms: number;
  hitShare: number;
  /** Tokens by which predictions were wrong, over the cached ones. */
  wrongShare: number;
}

const truths = (...names: CacheTruth[]): Arm[] => names.map((name) => ({ name, options: { cacheTruth: name } }));

async function compare(group: string, fixed: Partial<ReplayOptions>, arms: Arm[], seeds: number): Promise<Line[]> {
  const lines: Line[] = [];
  let first: number[] = [];
  for (const { name, options } of arms) {
    const results = [];
    for (let seed = 1; seed <= seeds; seed++) {
      const base = { source: 'W1', policy: 'prefill-cost', speed: 1, routers: 1, workers: 1 } as const;
      const all = { ...base, syncIntervalMs: 50, notStreamedPercent: 0, ...fixed, ...options };
      results.push(await replay({ ...all, seed }));
    }
    const times = results.map((result) => timeOf(policyRow(name, [result])));
    if (first.length === 0) first = times;
    const ratios = times.map((time, index) => time / first[index]!);
    const row = policyRow(name, results);
    const wrong = results.reduce((total, { wrongTokens }) => total + wrongTokens, 0);
    lines.push({
      group,
      source: (fixed.source ?? 'W1').split('/').at(-1)!,
      routers: fixed.routers ?? 1,
      arm: name,
      ratio: Math.exp(ratios.reduce((total, ratio) => total + Math.log(ratio), 0) / ratios.length),
      ratioMin: Math.min(...ratios),
      ratioMax: Math.max(...ratios),
      ttftP99Ms: row.ttftMs.p99,
      hitShare: row.hitShareTokens,
      wrongShare:
        wrong /
        Math.max(
          1,
          results.reduce((total, { cachedTokens }) => total + cachedTokens, 0),
        ),
    });
  }
  return lines;
}

const show = (line: Line): string =>
  [
    `${line.group} ${line.source} ${line.routers} router${line.routers === 1 ? '' : 's'} ${line.arm}`.padEnd(64),
    `${line.ratio.toFixed(3)} (${line.ratioMin.toFixed(3)} to ${line.ratioMax.toFixed(3)})`,
    `p99 ${line.ttftP99Ms.toFixed(0)} ms`,
    `hit ${(100 * line.hitShare).toFixed(2)} %`,
    `wrong ${(100 * line.wrongShare).toFixed(1)} %`,
  ].join('  ');

/** All comparisons, one after the other. */
export async function* kvEventsLines(
  seeds: number,
  trace?: string,
  only?: string,
  limit?: number,
): AsyncGenerator<Line> {
  const limited = limit === undefined ? {} : { limit };
  const sources: Partial<ReplayOptions>[] = [{ source: 'W1' }, { source: 'W2' }, { source: 'W5', rate: 2 }];
  const long: Partial<ReplayOptions> = trace === undefined ? { source: 'W5', rate: 2 } : { source: trace, limit: 3000 };
  if (trace !== undefined) sources.push(long);
  const wants = (name: string): boolean => only === undefined || only === name;
  if (wants('capacity-known')) {
    for (const source of sources) {
      for (const routers of [1, 4]) {
        yield* await compare(
          'capacity-known',
          { ...source, ...limited, routers },
          truths('none', 'events', 'all'),
          seeds,
        );
      }
    }
  }
  if (wants('capacity-wrong')) {
    const arms: Arm[] = [{ name: 'capacity known', options: {} }];
    for (const factor of [0.5, 2, 4]) {
      arms.push({ name: `${factor} times, as it is`, options: { capacity: { factor, learns: false } } });
      arms.push({ name: `${factor} times, from usage`, options: { capacity: { factor, learns: true } } });
      arms.push({
        name: `${factor} times, from events`,
        options: { capacity: { factor, learns: false }, cacheTruth: 'events' },
      });
    }
    yield* await compare('capacity-wrong', { ...long, ...limited }, arms, seeds);
  }
  if (wants('resets')) {
    for (const source of [
      { source: 'W1' },
      { source: 'W2', rate: 5 },
      { source: 'W3s', rate: 10 },
      { source: 'W5', rate: 0.5 },
    ]) {
      const fixed = { ...source, ...limited, resetIntervalMs: 20_000 };
      yield* await compare('resets', fixed, truths('none', 'events', 'all'), seeds);
    }
  }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string', default: '2' },
      trace: { type: 'string' },
      only: { type: 'string' },
      limit: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const seeds = Number(values.seeds);
  const isBad = !Number.isInteger(seeds) || seeds < 1 || (values.trace !== undefined && !existsSync(values.trace));
  if (values.help || isBad) {
    process.stdout.write(usage);
    if (isBad) process.exitCode = 2;
  } else {
    const lines: Line[] = [];
    const limit = values.limit === undefined ? undefined : Number(values.limit);
    for await (const line of kvEventsLines(seeds, values.trace, values.only, limit)) {
      lines.push(line);
      if (!values.json) process.stdout.write(`${show(line)}\n`);
    }
    if (values.json) process.stdout.write(`${JSON.stringify(lines, null, 2)}\n`);
  }
}
