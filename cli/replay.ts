// `warmpath replay`: policies compared in virtual time, on a named workload or on a trace. The replay itself is in sim/replay/.

import { Command, InvalidArgumentError, Option } from 'commander';
import { existsSync } from 'node:fs';
import { parseSettings } from '../control-plane/annotation-values.ts';
import { ENGINE_NAMES, type EngineName } from '../sim/constants.ts';
import { runJobs } from '../sim/replay/jobs.ts';
import { REPLAY_POLICIES, type ReplayPolicy } from '../sim/replay/policies.ts';
import type { ReplayOptions } from '../sim/replay/run.ts';
import { policyRow } from '../sim/replay/score.ts';
import { isWorkload } from '../sim/replay/source.ts';
import { WORKLOAD_IDS } from '../sim/workloads.ts';
import { namesOf, wholeNumber } from './arguments.ts';
import { UsageError } from './errors.ts';
import { watchInterrupt } from './interrupt.ts';
import { ProgressBar } from './progress-bar.ts';
import { replayReport, type ReplayDocument } from './replay-report.ts';

const details = `
Source
  ${WORKLOAD_IDS.join(', ')}, or a file in Mooncake's format, one JSON object a line:
  {"timestamp": MS, "input_length": TOKENS, "output_length": TOKENS, "hash_ids": [ONE FOR EACH 512 TOKENS]}

What it does
  Plays the requests against simulated replicas in virtual time. Each policy gets fresh replicas and the same requests.
  Routers run the engine of the gateway, one for each worker of each gateway; what they know of each other arrives as
  late as in a real installation. The same seed prints the same bytes, on any number of threads.

Policies
  Of the gateway: prefill-cost, weighted (--weights), least-request, round-robin, session (sticky), prefix-header
  (consistent hashing with bounded loads, by the first block), first-block-hash; prefill-cost-first is an earlier form.
  Others' rules, for comparison: power-of-two, weighted-3:2:2 and weighted-3:5:2 (prefix, queue, memory; polled), threshold-tree (SGLang), kv-decode (Dynamo),
  prefill-x-batch (LMETRIC), longest-match.

What it prints
  Times are means over the seeds. S is the geometric mean of TTFT mean, p95, p99 and mean time to the end, over that of the
  best other policy: 1.00 is as good as the best peer, lower is better. Skew is the busiest pod's requests over the mean.

Examples
  $ npx warmpath replay W3s
  $ npx warmpath replay W5 --rate 2 --policies prefill-cost,kv-decode,prefill-x-batch --seeds 3
  $ npx warmpath replay conversation_trace.jsonl --policies round-robin,least-request,prefill-cost --speed 2
  $ npx warmpath replay W8 --routers 4 --workers 2 --sync-interval 250 --json`;

const policiesDefault: ReplayPolicy[] = ['round-robin', 'least-request', 'first-block-hash', 'prefill-cost'];

interface ReplayFlags {
  policies: ReplayPolicy[];
  replicas?: number;
  engine?: EngineName;
  routers: number;
  workers: number;
  speed?: number;
  spread?: boolean;
  seeds: number;
  rate?: number;
  limit?: number;
  notStreamed: number;
  syncInterval: number;
  threads?: number;
  weights?: { prefix: number; queue: number; kv: number };
  metrics: boolean;
  json?: boolean;
}

function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0 && value <= 1e6)) throw new InvalidArgumentError('Expected a number above 0.');
  return value;
}

function weightsOf(text: string): { prefix: number; queue: number; kv: number } {
  const weights = parseSettings.weights(text);
  if (weights === undefined) throw new InvalidArgumentError('Expected PREFIX:QUEUE:KV such as 3:3:2.');
  return weights;
}

export function replayCommand(): Command {
  return new Command('replay')
    .summary('policies compared in virtual time, on a named workload or a trace')
    .description('Compares routing policies on the same requests, in virtual time.')
    .argument('<source>', `${WORKLOAD_IDS.join(', ')}, or the path of a trace`)
    .addOption(
      new Option('--policies <names>', 'policies to compare, or "all"')
        .argParser((text) => (text === 'all' ? [...REPLAY_POLICIES] : namesOf(REPLAY_POLICIES)(text)))
        .default(policiesDefault, policiesDefault.join(',')),
    )
    .option('--replicas <n>', 'replicas (default: as the source says)', wholeNumber(1, 256))
    .option(
      '--engine <name>',
      `what a replica simulates: ${ENGINE_NAMES.join(', ')} (default: as the source says)`,
      (text) => {
        return namesOf(ENGINE_NAMES)(text)[0];
      },
    )
    .option('--routers <n>', 'gateways, each with its own knowledge', wholeNumber(1, 64), 1)
    .option('--workers <n>', 'worker threads of each gateway', wholeNumber(1, 32), 1)
    .option('--speed <x>', 'play a trace so many times faster than recorded', positive)
    .option('--spread', 'spread requests of a trace that bear one time up to the next time')
    .option('--seeds <n>', 'repeat with seeds 1 to n', wholeNumber(1, 1000), 1)
    .option('--rate <r>', 'requests or sessions a second of a named workload (default: its own)', positive)
    .option('--limit <n>', 'requests to play at most', wholeNumber(1, 10_000_000))
    .option('--not-streamed <percent>', 'share of the answers that are not streamed', wholeNumber(0, 100), 0)
    .option('--sync-interval <ms>', 'how often gateways and control plane exchange', wholeNumber(10, 60_000), 50)
    .option('--weights <prefix:queue:kv>', 'what the policy weighted weighs with (default: 3:3:2)', weightsOf)
    .option('--no-metrics', 'leave out what engines tell in their metrics')
    .option('--threads <n>', 'threads to run on (default: all cores)', wholeNumber(1, 256))
    .option('--json', 'print the result as one JSON document on standard output')
    .addHelpText('after', details)
    .action(async (source: string, flags: ReplayFlags) => {
      check(source, flags);
      const document = await compare(source, flags);
      process.stdout.write(flags.json ? `${JSON.stringify(document, null, 2)}\n` : replayReport(document));
    });
}

function check(source: string, flags: ReplayFlags): void {
  if (isWorkload(source)) {
    if (flags.spread) throw new UsageError('--spread goes with a trace');
    if (flags.speed !== undefined) throw new UsageError('--speed goes with a trace; a named workload has --rate');
    if (source === 'W1' && flags.rate !== undefined) {
      throw new UsageError('--rate: W1 has none, its users send when they have read the last answer');
    }
    return;
  }
  if (flags.rate !== undefined) throw new UsageError('--rate goes with a named workload; a trace has --speed');
  if (existsSync(source)) return;
  throw new UsageError(
    `${source} is neither a workload (${WORKLOAD_IDS.join(', ')}) nor a file; traces are not part of this repository`,
  );
}

async function compare(source: string, flags: ReplayFlags): Promise<ReplayDocument> {
  const { policies, seeds } = flags;
  const jobs = policies.flatMap((policy) =>
    Array.from({ length: seeds }, (_, index): ReplayOptions => {
      const { replicas, engine, routers, workers, rate, limit, weights, metrics } = flags;
      const fixed = {
        source,
        policy,
        seed: index + 1,
        replicas,
        engine,
        routers,
        workers,
        rate,
        limit,
        weights,
        metrics,
      };
      const { speed = 1, spread, notStreamed, syncInterval } = flags;
      return { ...fixed, speed, spread, notStreamedPercent: notStreamed, syncIntervalMs: syncInterval };
    }),
  );
  const interrupt = watchInterrupt();
  const bar = new ProgressBar(process.stderr, `replay ${source}`);
  try {
    const { threads } = flags;
    const results = await runJobs(jobs, { threads, signal: interrupt.signal, onProgress: (share) => bar.show(share) });
    bar.end();
    const first = results[0]!;
    const refused = results.reduce((total, result) => total + result.refused, 0);
    if (refused > 0) {
      process.stderr.write(`warmpath: ${refused} requests were left out: longer than ${first.engine} can hold\n`);
    }
    const silences = results.reduce((total, result) => total + result.silences, 0);
    if (silences > 0) {
      process.stderr.write(
        `warmpath: routers took replicas for hung ones ${silences === 1 ? 'once' : `${silences} times`}; none is here\n`,
      );
    }
    return {
      source,
      replicas: first.replicas,
      engine: first.engine,
      routers: flags.routers,
      seeds,
      policies: policies.map((name, at) => policyRow(name, results.slice(at * seeds, (at + 1) * seeds))),
    };
  } finally {
    bar.end();
    interrupt.stop();
  }
}
