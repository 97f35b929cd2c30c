// Two loads that pull in opposite ways, through each router with one setting: one hot prefix that everybody asks about, which must be spread,
// and many prefixes that do not all fit into every replica, which must be kept apart. Clients ask again as soon as they are
// answered, so what is compared is answers a second. Rounds alternate between the routers, and each begins with empty replicas.
//
//   node bench/affinity.ts [--json] [--arms NAME,...] [--loads hot,many] [--rounds N] [--seconds N] [--help]
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { namesOf, wholeNumber } from '../cli/arguments.ts';
import { startControlPlane } from '../control-plane/server.ts';
import { envoyVersionDefault } from '../envoy/fetch.ts';
import { startEnvoy, type RunningEnvoy } from '../envoy/run.ts';
import { startReplicas, type Replicas } from '../sim/replicas.ts';
import { commandMain, machineText } from './measure.ts';
import { Load } from './outages/load.ts';
import { spread, type Spread } from './overhead/spread.ts';
import { synced } from './overhead/synced.ts';
import { PEER_VERSIONS, peersPython } from './peers/install.ts';
import { PEER_NAMES, startRouter } from './peers/router.ts';

const ARMS = ['plain', 'warmpath', ...PEER_NAMES] as const;
type ArmName = (typeof ARMS)[number];
const REPLICAS = 4;
/** Warmpath must be at least this share of the best of the others, with both loads. */
const SHARE_OF_BEST = 0.98;
const WARM_SECONDS = 3;
const READY_MS = 20_000;

const LOADS = {
  hot: { groups: 1, clients: 64, sharedTokens: 3_000, outputTokens: 24 },
  many: { groups: 32, clients: 48, sharedTokens: 3_000, outputTokens: 24 },
} as const;
type LoadName = keyof typeof LOADS;
/** Eight requests at once on a replica, and room for a third of the prefixes of `many`. */
const REPLICA = { engine: 'H100-8B', sequencesMax: 8, kvTokens: 40_000 } as const;

export interface AffinityOptions {
  arms: ArmName[];
  loads: LoadName[];
  rounds: number;
  seconds: number;
  envoy: string;
}

export interface AffinityCell {
  load: LoadName;
  arm: ArmName;
  requestsPerSecond: Spread;
  /** Cached prompt tokens over all prompt tokens, as the replicas count them. */
  hitShare: Spread;
  /** Requests of the busiest replica over the mean. */
  busiest: Spread;
  failed: number;
}

export interface AffinityReport {
  bench: 'affinity';
  machine: string;
  versions: Record<string, string>;
  options: AffinityOptions;
  cells: AffinityCell[];
  /** Warmpath's answers a second over the best of the others, by load. */
  shareOfBest: Partial<Record<LoadName, number>>;
  broken: string[];
}

type Say = (line: string) => void;
type Counts = { finished: number; queries: number; hits: number }[];

interface Stage {
  replicas: Replicas;
  urls: Map<ArmName, string>;
  envoyVersion: string;
  close(): Promise<void>;
}

const endpointOf = (url: string): string => new URL(url).host;

async function startStage(options: AffinityOptions, say: Say): Promise<Stage> {
  const closers: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).reverse()) await closer();
  };
  try {
    const replicas = await startReplicas({ ...REPLICA, count: REPLICAS });
    closers.push(() => replicas.close());
    const endpoints = replicas.urls.map(endpointOf);
    const controlPlane = await startControlPlane({ port: 0, pools: [{ name: 'pool', endpoints }] });
    closers.push(() => controlPlane.close());
    const envoy = await gateway(options.envoy, endpoints, controlPlane.port);
    closers.push(() => envoy.stop());
    const urls = new Map<ArmName, string>();
    for (const arm of ['plain', 'warmpath'] as const) urls.set(arm, `http://127.0.0.1:${envoy.ports[arm]}`);
    await synced(envoy, READY_MS);
    for (const name of PEER_NAMES) {
      if (!options.arms.includes(name)) continue;
      const router = await startRouter({ name, python: await peersPython(say), workers: endpoints });
      closers.push(() => router.stop());
      urls.set(name, `http://127.0.0.1:${router.port}`);
    }
    return { replicas, urls, envoyVersion: envoy.version, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function gateway(version: string, endpoints: string[], port: number): Promise<RunningEnvoy> {
  return startEnvoy({
    version,
    concurrency: 1,
    listeners: [
      { name: 'plain', chain: 'plain', cluster: 'plain' },
      {
        name: 'warmpath',
        chain: 'warmpath',
        cluster: 'pool',
        wasmPath: fileURLToPath(new URL('../build/filter.wasm', import.meta.url)),
        pluginConfig: { pool: 'pool', sync: { cluster: 'warmpath' } },
      },
    ],
    pools: [
      { name: 'pool', endpoints, balancing: 'override-host' },
      { name: 'plain', endpoints, balancing: 'round-robin' },
    ],
    controlPlane: { host: '127.0.0.1', port },
  });
}

interface RoundResult {
  requestsPerSecond: number;
  hitShare: number;
  busiest: number;
  failed: number;
}

/** One router under one load, from empty replicas. Prefixes of a round are new to everybody. */
async function oneRound(stage: Stage, arm: ArmName, name: LoadName, seed: number, seconds: number) {
  const { replicas } = stage;
  for (let i = 0; i < REPLICAS; i++) replicas.clearCache(i);
  const url = stage.urls.get(arm)!;
  const load = new Load({ ...LOADS[name], url, seed, thinkMs: 0, patienceMs: 60_000 });
  await sleep(WARM_SECONDS * 1000);
  const before = await counts(replicas);
  const [from, startMs] = [load.records.length, performance.now()];
  await sleep(seconds * 1000);
  const passedSeconds = (performance.now() - startMs) / 1000;
  const answered = load.records.slice(from);
  const after = await counts(replicas);
  await load.stop();
  const finished = after.map((count, i) => count.finished - before[i]!.finished);
  const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
  const queries = sum(after.map((count, i) => count.queries - before[i]!.queries));
  const hits = sum(after.map((count, i) => count.hits - before[i]!.hits));
  return {
    requestsPerSecond: answered.filter(({ outcome }) => outcome === 'ok').length / passedSeconds,
    hitShare: hits / Math.max(1, queries),
    busiest: (Math.max(...finished) * REPLICAS) / Math.max(1, sum(finished)),
    failed: answered.filter(({ outcome }) => outcome !== 'ok').length,
  } satisfies RoundResult;
}

async function counts(replicas: Replicas): Promise<Counts> {
  const stats = await replicas.stats();
  return stats.map(({ finished, prefixQueriesTokens, prefixHitsTokens }) => ({
    finished,
    queries: prefixQueriesTokens,
    hits: prefixHitsTokens,
  }));
}

export async function measureAffinity(options: AffinityOptions, say: Say): Promise<AffinityReport> {
  const stage = await startStage(options, say);
  try {
    const results = new Map<string, RoundResult[]>();
    let seed = 1;
    for (let round = 1; round <= options.rounds; round++) {
      for (const load of options.loads) {
        for (let i = 0; i < options.arms.length; i++) {
          const arm = options.arms[(round + i) % options.arms.length]!;
          say(`round ${round} of ${options.rounds}, ${load}, ${arm}`);
          const key = `${load} ${arm}`;
          const result = await oneRound(stage, arm, load, seed++, options.seconds);
          results.set(key, [...(results.get(key) ?? []), result]);
        }
      }
    }
    const cells = options.loads.flatMap((load) =>
      options.arms.map((arm) => cellOf(load, arm, results.get(`${load} ${arm}`)!)),
    );
    const versions = { envoy: stage.envoyVersion, node: process.versions.node, ...PEER_VERSIONS };
    return { bench: 'affinity', machine: machineText(), versions, options, cells, ...judge(options.loads, cells) };
  } finally {
    await stage.close();
  }
}

function cellOf(load: LoadName, arm: ArmName, rounds: RoundResult[]): AffinityCell {
  return {
    load,
    arm,
    requestsPerSecond: spread(rounds.map((round) => round.requestsPerSecond)),
    hitShare: spread(rounds.map((round) => round.hitShare)),
    busiest: spread(rounds.map((round) => round.busiest)),
    failed: rounds.reduce((sum, { failed }) => sum + failed, 0),
  };
}

function judge(loads: LoadName[], cells: AffinityCell[]): Pick<AffinityReport, 'shareOfBest' | 'broken'> {
  const shareOfBest: AffinityReport['shareOfBest'] = {};
  const broken: string[] = [];
  for (const load of loads) {
    const own = cells.find((cell) => cell.load === load && cell.arm === 'warmpath');
    const others = cells.filter((cell) => cell.load === load && cell.arm !== 'warmpath');
    if (own === undefined || others.length === 0) continue;
    const best = Math.max(...others.map(({ requestsPerSecond }) => requestsPerSecond.median));
    const share = Math.round((own.requestsPerSecond.median / best) * 1000) / 1000;
    shareOfBest[load] = share;
    if (share < SHARE_OF_BEST) broken.push(`${load}: ${share} of the best of the others, wanted ${SHARE_OF_BEST}`);
  }
  for (const { load, arm, failed } of cells) {
    if (arm === 'warmpath' && failed > 0) broken.push(`${load}: ${failed} requests failed`);
  }
  return { shareOfBest, broken };
}

export function textOf({ machine, versions, options, cells, shareOfBest, broken }: AffinityReport): string {
  const range = ({ min, median, max }: Spread, digits: number): string =>
    `${median.toFixed(digits)} (${min.toFixed(digits)} to ${max.toFixed(digits)})`.padEnd(26);
  const lines = [
    'affinity: one hot prefix and many prefixes, median (least to most) over the rounds',
    machine,
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', '),
    `${options.rounds} rounds of ${options.seconds} s; ${REPLICAS} simulated ${REPLICA.engine} with ${REPLICA.sequencesMax} slots and ${REPLICA.kvTokens} KV tokens`,
  ];
  for (const load of options.loads) {
    const { groups, clients, sharedTokens } = LOADS[load];
    const what = `${load}: ${clients} clients, ${groups} prefix${groups > 1 ? 'es' : ''} of ${sharedTokens} tokens`;
    const titles = ['answers a second', 'hit share', 'busiest replica'];
    lines.push('', `${what.padEnd(54)}${titles.map((title) => title.padEnd(26)).join('')}`.trimEnd());
    for (const cell of cells.filter((one) => one.load === load)) {
      const figures = range(cell.requestsPerSecond, 1) + range(cell.hitShare, 3) + range(cell.busiest, 2);
      lines.push(`  ${cell.arm.padEnd(52)}${figures}${cell.failed > 0 ? `${cell.failed} failed` : ''}`.trimEnd());
    }
    if (shareOfBest[load] !== undefined) lines.push(`  warmpath over the best other: ${shareOfBest[load]}`);
  }
  lines.push('', broken.length === 0 ? 'all bounds hold' : `DOES NOT HOLD: ${broken.join('; ')}`);
  return `${lines.join('\n')}\n`;
}

const whole = wholeNumber(1, 10_000);

async function main(): Promise<number> {
  const loads = Object.keys(LOADS) as LoadName[];
  const command = new Command('affinity')
    .description('One hot prefix and many prefixes through each router with one setting: answers a second.')
    .option('--arms <name,...>', `some of ${ARMS.join(', ')}`, namesOf(ARMS), [...ARMS])
    .option('--loads <name,...>', `some of ${loads.join(', ')}`, namesOf(loads), loads)
    .option('--rounds <n>', 'rounds of each router and load', whole, 3)
    .option('--seconds <n>', `length of a round, after ${WARM_SECONDS} s of warm-up`, whole, 10)
    .option('--envoy <version>', 'Envoy to measure in', envoyVersionDefault);
  return commandMain(command, measureAffinity, textOf);
}

if (import.meta.main) process.exitCode = await main();
