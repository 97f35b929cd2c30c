// How far the simulator can be believed: two real engines behind the real gateway and the same engines simulated, on W1, W2 and W3 made small.
// The engine's constants are fitted first; then every policy plays the same requests several times, in turn, on real engines and in virtual
// time; the picks of each real run are replayed in virtual time too. What is compared, and what it showed, is in docs/FIDELITY.md.
//
//   node bench/fidelity.ts [--repeats N] [--seconds N] [--only W1,...] [--engines URL,URL] [--out FILE] [--json] [--help]

import { mkdir, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { parseArgs } from 'node:util';
import { Closers } from '../cli/closers.ts';
import { Progress } from '../cli/up/progress.ts';
import { podHeader, startStage, type Stage } from '../cli/up/stage.ts';
import type { PolicyName } from '../control-plane/engine/frames.ts';
import { KeyReader } from '../control-plane/engine/keys.ts';
import { fitEngine, type EngineSettings } from '../sim/fit.ts';
import { broken, equalCounts, hitShare, type Arm, type WorkloadResult } from './fidelity/compare.ts';
import { evict } from './fidelity/eviction.ts';
import { playReal, resetCaches } from './fidelity/real.ts';
import { reportText, type FidelityDocument } from './fidelity/report.ts';
import { vocabularyOf, type Vocabulary } from './fidelity/text.ts';
import { playVirtual, replayPicks } from './fidelity/virtual.ts';
import { FIDELITY_WORKLOADS, fidelityWorkload, type FidelityWorkload } from './fidelity/workloads.ts';
import { machineText } from './measure.ts';

const usage = `node bench/fidelity.ts [OPTIONS]
  --repeats N          runs of each policy on each workload (default: 3)
  --seconds N          how long requests arrive in each run (default: 15)
  --only W1,...        these workloads only
  --engines URL,URL    engines that run already, started like those of this command; two are started when it is not given
  --out FILE           where the document is written (default: build/fidelity.json)
  --json               the document on standard output, in place of tables
  --help

Exit code: 0 all bounds hold, 1 a bound is broken, 2 used wrongly.
`;

class UsageError extends Error {}

const MODEL = 'tiny';
const POLICIES: readonly PolicyName[] = ['round-robin', 'least-request', 'first-block-hash', 'prefill-cost'];
const ENGINES = 2;
const SETTINGS: EngineSettings = {
  model: MODEL,
  blockTokens: 32,
  blocks: 1024,
  budgetTokens: 512,
  sequencesMax: 16,
  modelTokensMax: 4096,
};
const EVICTION_PROMPTS = 120;

function whole(name: string, value: string): number {
  const number = Number(value);
  if (!Number.isInteger(number) || number < 1)
    throw new UsageError(`--${name} is "${value}", expected a whole number from 1`);
  return number;
}

function workloadsOf(only: string): FidelityWorkload[] {
  const names = only === '' ? FIDELITY_WORKLOADS : only.split(',');
  return names.map((name) => {
    const known = FIDELITY_WORKLOADS.find((one) => one === name);
    if (known === undefined) throw new UsageError(`--only: no workload is called "${name}"`);
    return known;
  });
}

async function startEngines(closers: Closers, progress: Progress): Promise<string[]> {
  const { startVllm } = await import('../test/vllm/engine.ts');
  const { blockTokens, blocks, budgetTokens, sequencesMax, modelTokensMax } = SETTINGS;
  progress.say(`starting ${ENGINES} real engines`);
  const engines = await Promise.all(
    Array.from({ length: ENGINES }, async () => {
      const engine = await startVllm({
        models: [MODEL],
        blockTokens,
        blocks,
        batchTokens: budgetTokens,
        sequences: sequencesMax,
        maxModelTokens: modelTokensMax,
      });
      closers.add('a real engine', () => engine.stop());
      return engine;
    }),
  );
  return engines.map(({ url }) => url);
}

function gateway(urls: readonly string[], closers: Closers, progress: Progress): Promise<Stage> {
  const plan = { workload: 'W1', engine: 'L4-8B', replicas: ENGINES, asSpecified: false, armsAtOnce: false } as const;
  const options = {
    plans: [plan],
    policies: [...POLICIES],
    upstreams: [...urls],
    model: MODEL,
    trace: null,
    seed: 1,
    concurrency: 1,
    envoyVersion: null,
    durationSeconds: null,
    port: 0,
    once: true,
    json: true,
  };
  return startStage(plan, options, closers, progress, new AbortController().signal);
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      repeats: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '15' },
      only: { type: 'string', default: '' },
      engines: { type: 'string' },
      out: { type: 'string', default: 'build/fidelity.json' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const repeats = whole('repeats', values.repeats);
  const seconds = whole('seconds', values.seconds);
  const names = workloadsOf(values.only);
  const startMs = performance.now();
  const closers = new Closers();
  const progress = new Progress(process.stderr);
  try {
    const urls = values.engines === undefined ? await startEngines(closers, progress) : values.engines.split(',');
    progress.say('fitting the constants');
    const fit = await fitEngine(urls, SETTINGS);
    const vocabulary = await vocabularyOf(urls[0]!, MODEL);
    const stage = await gateway(urls, closers, progress);
    const reader = await KeyReader.create();
    const context = { stage, fit, vocabulary, reader, progress, seconds, repeats };
    const results: WorkloadResult[] = [];
    for (const name of names) results.push(await playWorkload(name, context));
    progress.say('filling the caches until they forget');
    const { endpoints } = stage.arms[0]!;
    await resetCaches(endpoints);
    const evictions = [await evict(endpoints[0]!, MODEL, fit.engine, EVICTION_PROMPTS, 1)];
    const document: FidelityDocument = {
      machine: machineText(),
      seconds: (performance.now() - startMs) / 1000,
      fit,
      results,
      evictions,
      broken: broken(results, evictions),
    };
    await mkdir(dirname(values.out), { recursive: true });
    await writeFile(values.out, `${JSON.stringify(document, null, 2)}\n`);
    process.stdout.write(values.json ? `${JSON.stringify(document, null, 2)}\n` : reportText(document));
    return document.broken.length === 0 ? 0 : 1;
  } finally {
    progress.end();
    await closers.closeAll();
  }
}

interface Context {
  stage: Stage;
  fit: Awaited<ReturnType<typeof fitEngine>>;
  vocabulary: Vocabulary;
  reader: KeyReader;
  progress: Progress;
  seconds: number;
  repeats: number;
}

/** Every policy in turn, and all of them again with other texts, each time beginning with another. */
async function playWorkload(name: FidelityWorkload, context: Context): Promise<WorkloadResult> {
  const { stage, fit, vocabulary, reader, progress, seconds, repeats } = context;
  const { engine } = fit;
  const arms: Arm[] = POLICIES.map((policy) => ({
    policy,
    realMs: [],
    virtualMs: [],
    realHits: [],
    replayedHits: [],
    virtualHits: [],
    equal: 0,
    requests: 0,
  }));
  const rates: number[] = [];
  for (let repeat = 0; repeat < repeats; repeat++) {
    for (let turn = 0; turn < arms.length; turn++) {
      const arm = arms[(turn + repeat) % arms.length]!;
      const { constants } = engine;
      const workload = fidelityWorkload(name, { vocabulary, constants, replicas: ENGINES, seconds, seed: 1 + repeat });
      const { baseUrl, endpoints } = stage.arms.find((one) => one.name === arm.policy)!;
      progress.say(`${name}, ${arm.policy}, run ${repeat + 1} of ${repeats}`);
      const real = await playReal({ baseUrl, endpoints, model: MODEL, podHeader }, workload);
      const replayed = replayPicks(real.played, ENGINES, engine);
      const virtual = await playVirtual(workload, arm.policy, engine, reader);
      arm.realMs.push(real.summary.ttftMs.p95);
      arm.realHits.push(real.summary.hitShareTokens);
      arm.replayedHits.push(hitShare(real.played, replayed.cachedTokens));
      arm.virtualMs.push(virtual.ttftMs.p95);
      arm.virtualHits.push(virtual.hitShareTokens);
      arm.equal += equalCounts(real.played, replayed);
      arm.requests += real.played.length;
      rates.push(real.summary.requestsPerSecond);
    }
  }
  return { workload: name, requestsPerSecond: rates.reduce((sum, rate) => sum + rate, 0) / rates.length, arms };
}

// Ending by process.exit lets the children be ended, too.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
try {
  process.exitCode = await main();
} catch (error) {
  const isUsage = error instanceof UsageError || (error as { code?: string }).code?.startsWith('ERR_PARSE_ARGS');
  process.stderr.write(isUsage ? `${(error as Error).message}\n\n${usage}` : `${(error as Error).stack}\n`);
  process.exitCode = isUsage ? 2 : 1;
}
