// What each router costs beside the others, in one run: no router at all, plain Envoy, Envoy with a filter that does nothing, Warmpath, Envoy that
// asks llm-d's endpoint picker (EPP), and the routers sglang-router and vllm-router. CPU of the router's processes for a
// request, and the latency that it adds, by body size and number of backends. Rounds alternate, so that what else the machine
// does meets all of them alike. The picker is there when EPP_BIN names its binary; EPP_ARGS are more arguments of it.
//
//   node bench/peers.ts [--json] [--arms NAME,...] [--sizes KIB,...] [--backends N,...] [--rounds N] [--requests N] [--help]
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { namesOf, wholeNumber } from '../cli/arguments.ts';
import { startControlPlane } from '../control-plane/server.ts';
import { envoyVersionDefault } from '../envoy/fetch.ts';
import { pickedCluster } from '../envoy/picker.ts';
import { startEnvoy, type RunningEnvoy } from '../envoy/run.ts';
import { commandMain, machineText } from './measure.ts';
import { Load } from './overhead/load.ts';
import { processNs } from './overhead/proc.ts';
import { spread, type Spread } from './overhead/spread.ts';
import { PEER_VERSIONS, peersPython } from './peers/install.ts';
import { pickerCommand, startPicker, type PickerCommand, type RunningPicker } from './peers/picker.ts';
import { PEER_NAMES, startRouter, type RunningRouter } from './peers/router.ts';

/** What runs in Envoy, with the name of the chain that it has there. */
const CHAINS = { plain: 'plain', empty: 'empty', warmpath: 'warmpath', epp: 'picker' } as const;
type ChainName = keyof typeof CHAINS;
const CHAIN_NAMES = Object.keys(CHAINS) as ChainName[];
const ARMS = ['direct', ...CHAIN_NAMES, ...PEER_NAMES] as const;
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
  /** CPU of the router's processes in microseconds for a request, at 8 connections; absent where there is none. */
  cpuUs: Spread | null;
  /** How much of that is the endpoint picker's own and not Envoy's. */
  pickerUs: Spread | null;
  /** Round by round over `plain`; for the chains in Envoy. */
  addedCpuUs: Spread | null;
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
  /** Arms that were wanted and are not there, each with the reason. */
  absent: string[];
  cells: PeersCell[];
}

interface Arm {
  name: ArmName;
  port: number;
  cpuNs: (() => number) | null;
  pickerNs?: () => number;
}

interface Rounds {
  cpuUs: number[];
  pickerUs: number[];
  p50: number[];
  p99: number[];
}

type Say = (line: string) => void;

function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
}

const isChain = (arm: ArmName): arm is ChainName => arm in CHAINS;
const wasmPath = (name: string): string => fileURLToPath(new URL(`../build/${name}.wasm`, import.meta.url));

/** Everything that answers at one number of backends. */
class Stage {
  readonly load: Load;
  readonly arms: Arm[] = [];
  envoyVersion = '';
  picker: RunningPicker | null = null;
  readonly #closers: (() => Promise<void>)[] = [];

  private constructor(load: Load) {
    this.load = load;
    this.#closers.push(() => load.close());
  }

  static async start(options: PeersOptions, backends: number, { python, picker }: Programs): Promise<Stage> {
    const stage = new Stage(await Load.start(backends));
    try {
      if (picker !== null && options.arms.includes('epp')) {
        const running = (stage.picker = await startPicker(picker, stage.load.endpoints));
        stage.#closers.push(() => running.stop());
      }
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
    const { picker } = this;
    const chains = options.arms.filter(isChain);
    const envoy = await startEnvoy({
      version: options.envoy,
      concurrency: 1,
      listeners: chains.map((name) => ({
        name,
        chain: CHAINS[name],
        cluster: clusterOf[name],
        ...(name === 'empty' ? { wasmPath: wasmPath('empty') } : {}),
        ...(name === 'warmpath'
          ? { wasmPath: wasmPath('filter'), pluginConfig: { pool: 'pool', sync: { cluster: 'warmpath' } } }
          : {}),
      })),
      pools: [
        { name: 'pool', endpoints, balancing: 'override-host' },
        { name: 'plain', endpoints, balancing: 'round-robin' },
      ],
      controlPlane: { host: '127.0.0.1', port: controlPlane.port },
      ...(picker === null ? {} : { picker: picker.endpoint }),
    });
    this.#closers.push(() => envoy.stop());
    this.envoyVersion = envoy.version;
    for (const name of chains) {
      const pickerNs = name === 'epp' && picker !== null ? { pickerNs: () => picker.cpuNs() } : {};
      this.arms.push({ name, port: envoy.ports[name]!, cpuNs: () => processNs(envoy.pid), ...pickerNs });
    }
    if (chains.includes('warmpath')) await this.#settle(envoy);
    if (chains.includes('epp')) await this.#settlePicker(envoy);
  }

  /** Until the picker has seen its pods; a request that it does not pick for has nowhere to go. */
  async #settlePicker(envoy: RunningEnvoy): Promise<void> {
    const endMs = Date.now() + SETTLE_MS;
    for (;;) {
      const task = { port: envoy.ports['epp']!, sizeBytes: 1024, requests: 1, connections: 1 };
      if ((await this.load.run(task)).failed === 0) return;
      if (Date.now() > endMs) throw new Error(`the endpoint picker picks nothing:\n${this.picker?.log() ?? ''}`);
      await sleep(50);
    }
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

const clusterOf: Record<ChainName, string> = { plain: 'plain', empty: 'pool', warmpath: 'pool', epp: pickedCluster };
const portOf = (endpoint: string): number => Number(endpoint.slice(endpoint.lastIndexOf(':') + 1));

async function oneRound({ load }: Stage, arm: Arm, sizeKiB: number, requests: number, into: Rounds): Promise<void> {
  const task = { port: arm.port, sizeBytes: sizeKiB * 1024 };
  const read = (): number[] => [arm.cpuNs?.() ?? 0, arm.pickerNs?.() ?? 0];
  const before = read();
  const busy = await load.run({ ...task, requests, connections: 8 });
  const [routerUs, pickerUs] = read().map((ns, i) => (ns - before[i]!) / 1000 / requests) as [number, number];
  if (arm.cpuNs) into.cpuUs.push(routerUs + pickerUs);
  if (arm.pickerNs) into.pickerUs.push(pickerUs);
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
        if (round <= 1) rounds.set(arm.name, { cpuUs: [], pickerUs: [], p50: [], p99: [] });
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
  const over = (key: 'cpuUs' | 'p50' | 'p99'): Spread | null =>
    base === undefined || base === own ? null : spread(own[key].map((value, i) => value - base[key][i]!));
  const some = (values: number[]): Spread | null => (values.length > 0 ? spread(values) : null);
  return {
    arm,
    sizeKiB,
    backends,
    cpuUs: some(own.cpuUs),
    pickerUs: some(own.pickerUs),
    addedCpuUs: isChain(arm) && base === all.get('plain') ? over('cpuUs') : null,
    p50Ms: spread(own.p50),
    p99Ms: spread(own.p99),
    addedP50Ms: over('p50'),
    addedP99Ms: over('p99'),
  };
}

/** The programs of others. */
interface Programs {
  python: string | null;
  picker: PickerCommand | null;
}

export async function measurePeers(wanted: PeersOptions, say: Say): Promise<PeersReport> {
  const picker = wanted.arms.includes('epp') ? await pickerCommand(process.env) : null;
  const isAbsent = wanted.arms.includes('epp') && picker === null;
  const options = isAbsent ? { ...wanted, arms: wanted.arms.filter((arm) => arm !== 'epp') } : wanted;
  const absent = isAbsent ? ['epp is absent: EPP_BIN names no endpoint picker'] : [];
  const wantsPeers = options.arms.some((arm) => (PEER_NAMES as readonly string[]).includes(arm));
  const python = wantsPeers ? await peersPython(say) : null;
  const cells: PeersCell[] = [];
  const versions: Record<string, string> = {
    envoy: '',
    node: process.versions.node,
    ...(wantsPeers ? PEER_VERSIONS : {}),
  };
  for (const backends of options.backends) {
    const stage = await Stage.start(options, backends, { python, picker });
    versions['envoy'] = stage.envoyVersion;
    if (stage.picker !== null) versions['epp'] = stage.picker.version;
    try {
      cells.push(...(await measureStage(stage, backends, options, say)));
    } finally {
      await stage.close();
    }
  }
  return { bench: 'peers', machine: machineText(), versions, options, absent, cells };
}

export function textOf({ machine, versions, options, absent, cells }: PeersReport): string {
  const range = (value: Spread | null, digits: number): string =>
    value === null
      ? '-'.padEnd(24)
      : `${value.median.toFixed(digits)} (${value.min.toFixed(digits)} to ${value.max.toFixed(digits)})`.padEnd(24);
  const besidePicker = (picker: PeersCell): string[] => {
    const { sizeKiB, backends } = picker;
    const own = cells.find((cell) => cell.arm === 'warmpath' && cell.sizeKiB === sizeKiB && cell.backends === backends);
    const share =
      own?.addedCpuUs && picker.addedCpuUs
        ? [
            `  CPU that warmpath adds over what epp adds: ${(own.addedCpuUs.median / picker.addedCpuUs.median).toFixed(3)}`,
          ]
        : [];
    return [`  of epp's CPU the picker's own: ${range(picker.pickerUs, 0).trimEnd()}`, ...share];
  };
  const lines = [
    'peers: median (least to most) over the rounds',
    machine,
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', '),
    `${options.rounds} rounds of ${options.requests} requests at 8 connections for CPU, half as many at 1 for latency`,
    'added: over plain Envoy (round robin) for what runs in Envoy, else over direct',
    ...absent,
  ];
  let head = '';
  for (const cell of cells) {
    const wanted = `${cell.sizeKiB} KiB, ${cell.backends} backends`;
    if (wanted !== head) {
      head = wanted;
      const titles = ['CPU us/request', 'added CPU us', 'p50 ms', 'p99 ms', 'added p50 ms', 'added p99 ms'];
      lines.push('', `${head.padEnd(24)}${titles.map((title) => title.padEnd(24)).join('')}`.trimEnd());
    }
    lines.push(
      (
        `  ${cell.arm.padEnd(22)}${range(cell.cpuUs, 0)}${range(cell.addedCpuUs, 0)}${range(cell.p50Ms, 3)}${range(cell.p99Ms, 2)}` +
        `${range(cell.addedP50Ms, 3)}${range(cell.addedP99Ms, 2)}`
      ).trimEnd(),
    );
  }
  for (const cell of cells) {
    if (cell.pickerUs === null) continue;
    lines.push('', `${cell.sizeKiB} KiB, ${cell.backends} backends`, ...besidePicker(cell));
  }
  return `${lines.join('\n')}\n`;
}

const whole = wholeNumber(1, 1_000_000);

async function main(): Promise<number> {
  const command = new Command('peers')
    .description('What each router costs beside the others: CPU for a request and added latency.')
    .option('--arms <name,...>', `some of ${ARMS.join(', ')}`, namesOf(ARMS), [...ARMS])
    .option('--sizes <KiB,...>', 'sizes of the bodies', (text) => text.split(',').map(whole), [1, 16, 128])
    .option('--backends <n,...>', 'numbers of backends', (text) => text.split(',').map(whole), [1, 8, 64])
    .option('--rounds <n>', 'rounds that count; one more warms up', whole, 7)
    .option('--requests <n>', 'requests of a round, for each router and size', whole, 600)
    .option('--envoy <version>', 'Envoy to measure in', envoyVersionDefault);
  return commandMain(command, measurePeers, textOf);
}

if (import.meta.main) process.exitCode = await main();
