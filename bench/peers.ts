// What each router costs beside the others, in one run: no router at all, plain Envoy, Envoy with a filter that does nothing, Warmpath, and the
// routers sglang-router and vllm-router. CPU of the router's process for a request, and the latency that it adds, by body size
// and number of backends. Rounds alternate, so that what else the machine does meets all of them alike.
//
//   node bench/peers.ts [--json] [--arms NAME,...] [--sizes KIB,...] [--backends N,...] [--rounds N] [--requests N] [--help]
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { namesOf, wholeNumber } from '../cli/arguments.ts';
import { startControlPlane } from '../control-plane/server.ts';
import { envoyVersionDefault } from '../envoy/fetch.ts';
import type { Chain } from '../envoy/listener.ts';
import { startEnvoy, type RunningEnvoy } from '../envoy/run.ts';
import { machineText } from './measure.ts';
import { Load } from './overhead/load.ts';
import { processNs } from './overhead/proc.ts';
import { spread, type Spread } from './overhead/spread.ts';
import { PEER_VERSIONS, peersPython } from './peers/install.ts';
import { PEER_NAMES, startRouter, type RunningRouter } from './peers/router.ts';

const CHAINS: readonly Chain[] = ['plain', 'empty', 'warmpath'];
const ARMS = ['direct', ...CHAINS, ...PEER_NAMES] as const;
type ArmName = (typeof ARMS)[number];
const SETTLE_MS = 20_000;

export interface PeersOptions {
  arms: ArmName[];
  sizes: number[];
  backends: number[];
  rounds: number;
  requests: number;
  envoy: string;
}

export interface PeersCell {
  arm: ArmName;
  sizeKiB: number;
  backends: number;
  /** CPU of the router's process in microseconds for a request, at 8 connections; absent where there is none. */
  cpuUs: Spread | null;
  /** At one connection. */
  p50Ms: Spread;
  p99Ms: Spread;
  /** Round by round over `direct`; over `plain` for the chains in Envoy. */
  addedP50Ms: Spread | null;
  addedP99Ms: Spread | null;
}

export interface PeersReport {
  bench: 'peers';
  machine: string;
  versions: Record<string, string>;
  options: PeersOptions;
  cells: PeersCell[];
}

interface Arm {
  name: ArmName;
  port: number;
  cpuNs: (() => number) | null;
}

interface Rounds {
  cpuUs: number[];
  p50: number[];
  p99: number[];
}

type Say = (line: string) => void;

function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
}

const isChain = (arm: ArmName): arm is Chain => CHAINS.includes(arm as Chain);
const wasmPath = (name: string): string => fileURLToPath(new URL(`../build/${name}.wasm`, import.meta.url));

/** Everything that answers at one number of backends. */
class Stage {
  readonly load: Load;
  readonly arms: Arm[] = [];
  envoyVersion = '';
  readonly #closers: (() => Promise<void>)[] = [];

  private constructor(load: Load) {
    this.load = load;
    this.#closers.push(() => load.close());
  }

  static async start(options: PeersOptions, backends: number, python: string | null): Promise<Stage> {
    const stage = new Stage(await Load.start(backends));
    try {
      for (const name of options.arms) {
        if (name === 'direct') stage.arms.push({ name, port: portOf(stage.load.endpoints[0]!), cpuNs: null });
      }
      if (options.arms.some(isChain)) await stage.#startEnvoy(options);
      for (const name of PEER_NAMES) {
        if (python === null || !options.arms.includes(name)) continue;
        const router: RunningRouter = await startRouter({ name, python, workers: stage.load.endpoints });
        stage.#closers.push(() => router.stop());
        stage.arms.push({ name, port: router.port, cpuNs: () => router.cpuNs() });
      }
      return stage;
    } catch (error) {
      await stage.close();
      throw error;
    }
  }

  async #startEnvoy(options: PeersOptions): Promise<void> {
    const endpoints = [...this.load.endpoints];
    const controlPlane = await startControlPlane({ port: 0, pools: [{ name: 'pool', endpoints }] });
    this.#closers.push(() => controlPlane.close());
    const chains = options.arms.filter(isChain);
    const envoy = await startEnvoy({
      version: options.envoy,
      concurrency: 1,
      listeners: chains.map((chain) => ({
        name: chain,
        chain,
        cluster: chain === 'plain' ? 'plain' : 'pool',
        ...(chain === 'plain' ? {} : { wasmPath: wasmPath(chain === 'empty' ? 'empty' : 'filter') }),
        ...(chain === 'warmpath' ? { pluginConfig: { pool: 'pool', sync: { cluster: 'warmpath' } } } : {}),
      })),
      pools: [
        { name: 'pool', endpoints, balancing: 'override-host' },
        { name: 'plain', endpoints, balancing: 'round-robin' },
      ],
      controlPlane: { host: '127.0.0.1', port: controlPlane.port },
    });
    this.#closers.push(() => envoy.stop());
    this.envoyVersion = envoy.version;
    for (const name of chains) this.arms.push({ name, port: envoy.ports[name]!, cpuNs: () => processNs(envoy.pid) });
    if (chains.includes('warmpath')) await this.#settle(envoy);
  }

  /** Until Warmpath picks: before, it is Envoy's own balancing that is measured. */
  async #settle(envoy: RunningEnvoy): Promise<void> {
    const picks = async (): Promise<number> =>
      Object.values(await envoy.stats('warmpath_picks_total')).reduce((sum, value) => sum + value, 0);
    const endMs = Date.now() + SETTLE_MS;
    while ((await picks()) === 0) {
      if (Date.now() > endMs) throw new Error(`nothing is picked:\n${await envoy.log()}`);
      await this.load.run({ port: envoy.ports['warmpath']!, sizeBytes: 1024, requests: 1, connections: 1 });
      await sleep(50);
    }
  }

  async close(): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) await close();
  }
}

const portOf = (endpoint: string): number => Number(endpoint.slice(endpoint.lastIndexOf(':') + 1));

async function oneRound({ load }: Stage, arm: Arm, sizeKiB: number, requests: number, into: Rounds): Promise<void> {
  const task = { port: arm.port, sizeBytes: sizeKiB * 1024 };
  const beforeNs = arm.cpuNs?.() ?? 0;
  const busy = await load.run({ ...task, requests, connections: 8 });
  if (arm.cpuNs) into.cpuUs.push((arm.cpuNs() - beforeNs) / 1000 / requests);
  const calm = await load.run({ ...task, requests: Math.ceil(requests / 2), connections: 1 });
  const failed = busy.failed + calm.failed;
  if (failed > 0) throw new Error(`${arm.name}: ${failed} requests failed`);
  into.p50.push(percentile(calm.latenciesMs, 0.5));
  into.p99.push(percentile(calm.latenciesMs, 0.99));
}

async function measureStage(stage: Stage, backends: number, options: PeersOptions, say: Say): Promise<PeersCell[]> {
  const cells: PeersCell[] = [];
  for (const sizeKiB of options.sizes) {
    const rounds = new Map<ArmName, Rounds>();
    // Round 0 warms up and is thrown away.
    for (let round = 0; round <= options.rounds; round++) {
      say(`${backends} backends, ${sizeKiB} KiB, round ${round} of ${options.rounds}`);
      for (let i = 0; i < stage.arms.length; i++) {
        const arm = stage.arms[(round + i) % stage.arms.length]!;
        if (round <= 1) rounds.set(arm.name, { cpuUs: [], p50: [], p99: [] });
        await oneRound(stage, arm, sizeKiB, options.requests, rounds.get(arm.name)!);
      }
    }
    for (const { name } of stage.arms) cells.push(cellOf(name, sizeKiB, backends, rounds));
  }
  return cells;
}

function cellOf(arm: ArmName, sizeKiB: number, backends: number, all: Map<ArmName, Rounds>): PeersCell {
  const own = all.get(arm)!;
  const base = all.get(isChain(arm) && arm !== 'plain' ? 'plain' : 'direct');
  const over = (key: 'p50' | 'p99'): Spread | null =>
    base === undefined || base === own ? null : spread(own[key].map((value, i) => value - base[key][i]!));
  return {
    arm,
    sizeKiB,
    backends,
    cpuUs: own.cpuUs.length > 0 ? spread(own.cpuUs) : null,
    p50Ms: spread(own.p50),
    p99Ms: spread(own.p99),
    addedP50Ms: over('p50'),
    addedP99Ms: over('p99'),
  };
}

export async function measurePeers(options: PeersOptions, say: Say): Promise<PeersReport> {
  const wantsPeers = options.arms.some((arm) => (PEER_NAMES as readonly string[]).includes(arm));
  const python = wantsPeers ? await peersPython(say) : null;
  const cells: PeersCell[] = [];
  let envoyVersion = '';
  for (const backends of options.backends) {
    const stage = await Stage.start(options, backends, python);
    envoyVersion = stage.envoyVersion;
    try {
      cells.push(...(await measureStage(stage, backends, options, say)));
    } finally {
      await stage.close();
    }
  }
  const versions = { envoy: envoyVersion, node: process.versions.node, ...(wantsPeers ? PEER_VERSIONS : {}) };
  return { bench: 'peers', machine: machineText(), versions, options, cells };
}

export function textOf({ machine, versions, options, cells }: PeersReport): string {
  const range = (value: Spread | null, digits: number): string =>
    value === null
      ? '-'.padEnd(24)
      : `${value.median.toFixed(digits)} (${value.min.toFixed(digits)} to ${value.max.toFixed(digits)})`.padEnd(24);
  const lines = [
    'peers: median (least to most) over the rounds',
    machine,
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', '),
    `${options.rounds} rounds of ${options.requests} requests at 8 connections for CPU, half as many at 1 for latency`,
    'added latency: over direct; of empty and warmpath over plain Envoy (round robin)',
  ];
  let head = '';
  for (const cell of cells) {
    const wanted = `${cell.sizeKiB} KiB, ${cell.backends} backends`;
    if (wanted !== head) {
      head = wanted;
      const titles = ['CPU us/request', 'p50 ms', 'p99 ms', 'added p50 ms', 'added p99 ms'];
      lines.push('', `${head.padEnd(24)}${titles.map((title) => title.padEnd(24)).join('')}`.trimEnd());
    }
    lines.push(
      (
        `  ${cell.arm.padEnd(22)}${range(cell.cpuUs, 0)}${range(cell.p50Ms, 3)}${range(cell.p99Ms, 2)}` +
        `${range(cell.addedP50Ms, 3)}${range(cell.addedP99Ms, 2)}`
      ).trimEnd(),
    );
  }
  return `${lines.join('\n')}\n`;
}

const whole = wholeNumber(1, 1_000_000);

async function main(): Promise<void> {
  const command = new Command('peers')
    .description('What each router costs beside the others: CPU for a request and added latency.')
    .option('--json', 'print one JSON document', false)
    .option('--arms <name,...>', `some of ${ARMS.join(', ')}`, namesOf(ARMS), [...ARMS])
    .option('--sizes <KiB,...>', 'sizes of the bodies', (text) => text.split(',').map(whole), [1, 16, 128])
    .option('--backends <n,...>', 'numbers of backends', (text) => text.split(',').map(whole), [1, 8, 64])
    .option('--rounds <n>', 'rounds that count; one more warms up', whole, 7)
    .option('--requests <n>', 'requests of a round, for each router and size', whole, 600)
    .option('--envoy <version>', 'Envoy to measure in', envoyVersionDefault)
    .exitOverride();
  try {
    command.parse();
  } catch {
    process.exitCode = process.argv.includes('--help') || process.argv.includes('-h') ? 0 : 2;
    return;
  }
  const { json, ...options } = command.opts<PeersOptions & { json: boolean }>();
  const report = await measurePeers(options, (line) => process.stderr.write(`peers: ${line}\n`));
  process.stdout.write(json ? `${JSON.stringify(report, null, 2)}\n` : textOf(report));
}

if (import.meta.main) await main();
