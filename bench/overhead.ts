// What the filter costs in a real Envoy: CPU a request by body size, CPU an event of a streamed answer, and added latency, against the
// same chain with a filter that does nothing and against plain round robin. One Envoy with one worker has the three chains as three
// listeners over the same backends; rounds of the three alternate, so that what else the machine does meets them alike.
//
//   node bench/overhead.ts [--json] [--sizes KIB,...] [--rounds N] [--requests N] [--events N] [--connections N] [--envoy VERSION]
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import { startControlPlane } from '../control-plane/server.ts';
import { envoyVersionDefault } from '../envoy/fetch.ts';
import type { Chain as AnyChain } from '../envoy/listener.ts';
import { startEnvoy } from '../envoy/run.ts';
import type { RunningEnvoy } from '../envoy/run.ts';
import { commandMain, machineText } from './measure.ts';
import { Load } from './overhead/load.ts';
import { ProcessCpu } from './overhead/proc.ts';
import { spread, type Spread } from './overhead/spread.ts';

type Chain = Exclude<AnyChain, 'picker'>;
const chains: readonly Chain[] = ['plain', 'empty', 'warmpath'];
/** CPU of a worker for a request in microseconds that the filter may add to the empty filter's chain, by KiB of the body. */
const boundsUs: Readonly<Record<number, number>> = { 1: 15, 16: 30, 128: 110 };
const boundEventUs = 2;
/** CPU of a worker for a request, in times of what plain round robin takes, by KiB of the body. */
const boundsRatio: Readonly<Record<number, number>> = { 1: 1.3, 16: 1.4, 128: 2 };
const streamSizeKiB = 1;
const streamsAtOnce = 8;
const idleMs = 1000;
const settleTimeoutMs = 20_000;

export interface OverheadOptions {
  sizes: number[];
  rounds: number;
  requests: number;
  events: number;
  connections: number;
  envoy: string;
  wasm: string;
}

/** One chain at one size: what an operation costs Envoy's worker, and what all of its threads. */
export interface Cell {
  chain: Chain;
  workerUs: Spread;
  allUs: Spread;
  /** At one connection; absent for streams. */
  latencyMs?: { p50: Spread; p99: Spread };
}

export interface Comparison {
  what: string;
  sizeKiB: number | null;
  cells: Cell[];
  /** Round by round: the filter's chain less the empty filter's. */
  filterUs: Spread;
  /** The same from the least disturbed quarter of each chain's rounds: what else the machine does only ever adds. */
  quietFilterUs: number;
  /** And the filter's chain in times of plain round robin, from the same rounds. */
  quietRatio: number;
  boundRatio: number | null;
  allFilterUs: Spread;
  addedMs?: { p50: Spread; p99: Spread };
  boundUs: number | null;
  holds: boolean | null;
}

export interface OverheadReport {
  bench: 'overhead';
  machine: string;
  versions: Record<string, string>;
  options: OverheadOptions;
  comparisons: Comparison[];
  /** CPU of the worker and of all threads in a second without a request: ticks, and the sync of whoever leads. */
  idle: { workerMs: number; allMs: number };
  matchedShare: number;
}

type Rounds = Record<Chain, { workerUs: number[]; allUs: number[]; p50: number[]; p99: number[] }>;

const less = (a: readonly number[], b: readonly number[]): Spread => spread(a.map((value, i) => value - b[i]!));

function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
}

/** Mean of the lowest quarter of the rounds. */
function quiet(values: readonly number[]): number {
  const least = values.toSorted((a, b) => a - b).slice(0, Math.ceil(values.length / 4));
  return least.reduce((sum, value) => sum + value, 0) / least.length;
}

const hundredths = (value: number): number => Math.round(value * 100) / 100;

const noRounds = (): Rounds => {
  const one = (): Rounds[Chain] => ({ workerUs: [], allUs: [], p50: [], p99: [] });
  return { plain: one(), empty: one(), warmpath: one() };
};

function compare(what: string, sizeKiB: number | null, rounds: Rounds, boundUs: number | null): Comparison {
  const { empty, warmpath } = rounds;
  const hasLatency = warmpath.p50.length > 0;
  const filterUs = less(warmpath.workerUs, empty.workerUs);
  return {
    what,
    sizeKiB,
    cells: chains.map((chain) => ({
      chain,
      workerUs: spread(rounds[chain].workerUs),
      allUs: spread(rounds[chain].allUs),
      ...(hasLatency ? { latencyMs: { p50: spread(rounds[chain].p50), p99: spread(rounds[chain].p99) } } : {}),
    })),
    filterUs,
    quietFilterUs: hundredths(quiet(warmpath.workerUs) - quiet(empty.workerUs)),
    quietRatio: hundredths(quiet(warmpath.workerUs) / quiet(rounds.plain.workerUs)),
    boundRatio: sizeKiB === null ? null : (boundsRatio[sizeKiB] ?? null),
    allFilterUs: less(warmpath.allUs, empty.allUs),
    ...(hasLatency ? { addedMs: { p50: less(warmpath.p50, empty.p50), p99: less(warmpath.p99, empty.p99) } } : {}),
    boundUs,
    holds: boundUs === null ? null : filterUs.median < boundUs,
  };
}

const wasmPath = (name: string): string => fileURLToPath(new URL(`../build/${name}.wasm`, import.meta.url));

class Overhead {
  readonly #options: OverheadOptions;
  readonly #envoy: RunningEnvoy;
  readonly #load: Load;
  readonly #cpu: ProcessCpu;
  readonly #say: (line: string) => void;

  constructor(options: OverheadOptions, envoy: RunningEnvoy, load: Load, say: (line: string) => void) {
    this.#options = options;
    this.#envoy = envoy;
    this.#load = load;
    this.#cpu = new ProcessCpu(envoy.pid);
    this.#say = say;
  }

  /** Until requests are picked for: what is measured before is Envoy's own balancing. */
  async settle(): Promise<void> {
    const deadline = Date.now() + settleTimeoutMs;
    for (;;) {
      const before = await this.#count('picks_total');
      const { failed } = await this.#requests('warmpath', 1, 4, 1);
      if (failed === 0 && (await this.#count('picks_total')) - before === 4) return;
      if (Date.now() > deadline) throw new Error(`nothing is picked:\n${await this.#envoy.log()}`);
      await sleep(50);
    }
  }

  async measure(): Promise<Pick<OverheadReport, 'comparisons' | 'idle' | 'matchedShare'>> {
    const { sizes, rounds, requests, events } = this.#options;
    const before = await this.#picked();
    const bySize = new Map(sizes.map((size) => [size, noRounds()]));
    const streamed = noRounds();
    let sent = 0;
    // Round 0 warms up: code is compiled, connections are open, prefixes are held.
    for (let round = 0; round <= rounds; round++) {
      this.#say(`round ${round} of ${rounds}`);
      for (const size of sizes) {
        const one = round === 0 ? noRounds() : bySize.get(size)!;
        for (let i = 0; i < chains.length; i++) {
          const chain = chains[(round + i) % chains.length]!;
          await this.#round(one[chain], chain, size);
          if (chain === 'warmpath') sent += requests + this.#latencyRequests;
        }
      }
      const one = round === 0 ? noRounds() : streamed;
      for (let i = 0; events > 0 && i < chains.length; i++) {
        const chain = chains[(round + i) % chains.length]!;
        await this.#events(one[chain], chain);
        if (chain === 'warmpath') sent += streamsAtOnce;
      }
    }
    const after = await this.#picked();
    const picks = after.picks - before.picks;
    if (picks !== sent) throw new Error(`${sent} requests, but ${picks} picks:\n${await this.#envoy.log()}`);
    const comparisons = sizes.map((size) =>
      compare(`a request of ${size} KiB`, size, bySize.get(size)!, boundsUs[size] ?? null),
    );
    if (events > 0) comparisons.push(compare('an event of a streamed answer', null, streamed, boundEventUs));
    const matchedShare = (after.matched - before.matched) / Math.max(1, after.prompt - before.prompt);
    return { comparisons, idle: await this.#idle(), matchedShare: Math.round(matchedShare * 1000) / 1000 };
  }

  get #latencyRequests(): number {
    return Math.ceil(this.#options.requests / 4);
  }

  async #round(into: Rounds[Chain], chain: Chain, size: number): Promise<void> {
    const { requests, connections } = this.#options;
    const { used, failed } = await this.#requests(chain, size, requests, connections);
    if (failed > 0) throw new Error(`${failed} of ${requests} requests failed:\n${await this.#envoy.log()}`);
    into.workerUs.push(used.workers / 1000 / requests);
    into.allUs.push(used.all / 1000 / requests);
    const { latenciesMs } = await this.#requests(chain, size, this.#latencyRequests, 1);
    into.p50.push(percentile(latenciesMs, 0.5));
    into.p99.push(percentile(latenciesMs, 0.99));
  }

  async #events(into: Rounds[Chain], chain: Chain): Promise<void> {
    const each = Math.ceil(this.#options.events / streamsAtOnce);
    const { used, events } = await this.#requests(chain, streamSizeKiB, streamsAtOnce, streamsAtOnce, each);
    if (events < each * streamsAtOnce) throw new Error(`${events} events of ${each * streamsAtOnce} arrived`);
    into.workerUs.push(used.workers / 1000 / events);
    into.allUs.push(used.all / 1000 / events);
  }

  async #requests(chain: Chain, size: number, requests: number, connections: number, events?: number) {
    const port = this.#envoy.ports[chain]!;
    const before = this.#cpu.read();
    const round = { port, sizeBytes: size * 1024, requests, connections };
    const result = await this.#load.run(events === undefined ? round : { ...round, events });
    const after = this.#cpu.read();
    return { ...result, used: { workers: after.workers - before.workers, all: after.all - before.all } };
  }

  async #idle(): Promise<OverheadReport['idle']> {
    const before = this.#cpu.read();
    const startedMs = performance.now();
    await sleep(idleMs);
    const after = this.#cpu.read();
    const perSecond = (ns: number): number => Math.round((ns / 1000 / (performance.now() - startedMs)) * 100) / 100;
    return { workerMs: perSecond(after.workers - before.workers), allMs: perSecond(after.all - before.all) };
  }

  async #picked(): Promise<{ picks: number; prompt: number; matched: number }> {
    const [picks, prompt, matched] = await Promise.all(
      ['picks_total', 'prompt_bytes_total', 'matched_bytes_total'].map((name) => this.#count(name)),
    );
    return { picks: picks!, prompt: prompt!, matched: matched! };
  }

  async #count(name: string): Promise<number> {
    const stats = await this.#envoy.stats(`warmpath_${name}`);
    return Object.values(stats).reduce((sum, value) => sum + value, 0);
  }
}

export async function measureOverhead(
  options: OverheadOptions,
  say: (line: string) => void = () => {},
): Promise<OverheadReport> {
  const load = await Load.start();
  const endpoints = [...load.endpoints];
  const controlPlane = await startControlPlane({
    port: 0,
    pools: [{ name: 'pool', endpoints, policy: 'prefill-cost' }],
  });
  let envoy: RunningEnvoy | undefined;
  try {
    envoy = await startEnvoy({
      version: options.envoy,
      concurrency: 1,
      listeners: chains.map((chain) => ({
        name: chain,
        chain,
        cluster: chain === 'plain' ? 'plain' : 'pool',
        ...(chain === 'plain' ? {} : { wasmPath: chain === 'empty' ? wasmPath('empty') : options.wasm }),
        ...(chain === 'warmpath' ? { pluginConfig: { pool: 'pool', sync: { cluster: 'warmpath' } } } : {}),
      })),
      pools: [
        { name: 'pool', endpoints, balancing: 'override-host' },
        { name: 'plain', endpoints, balancing: 'round-robin' },
      ],
      controlPlane: { host: '127.0.0.1', port: controlPlane.port },
    });
    const overhead = new Overhead(options, envoy, load, say);
    await overhead.settle();
    const measured = await overhead.measure();
    return {
      bench: 'overhead',
      machine: machineText(),
      versions: { envoy: envoy.version, node: process.versions.node },
      options,
      ...measured,
    };
  } finally {
    await envoy?.stop();
    await controlPlane.close();
    await load.close();
  }
}

export function textOf(report: OverheadReport): string {
  const { options, idle } = report;
  const number = (value: number, digits: number): string => value.toFixed(digits).padStart(8);
  const range = ({ min, median, max }: Spread, digits: number): string =>
    `${number(median, digits)} (${min.toFixed(digits)} to ${max.toFixed(digits)})`.padEnd(28);
  const lines = [
    'overhead: CPU of Envoy, median (min to max) over the rounds',
    report.machine,
    Object.entries(report.versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', '),
    `${options.rounds} rounds of ${options.requests} requests on ${options.connections} connections; 1 worker, 4 pods, prefill-cost; ` +
      `${(report.matchedShare * 100).toFixed(1)} % of the prompts' bytes matched`,
    `idle: ${idle.workerMs} ms of CPU a second on the worker, ${idle.allMs} on all threads`,
  ];
  for (const comparison of report.comparisons) {
    const { what, cells, filterUs, allFilterUs, addedMs, boundUs, boundRatio, holds } = comparison;
    lines.push('', `${what.padEnd(34)} ${'worker, us'.padEnd(28)} ${'all threads, us'.padEnd(28)}`);
    for (const { chain, workerUs, allUs, latencyMs } of cells) {
      const latency = latencyMs ? ` p50 ${range(latencyMs.p50, 3)} p99 ${range(latencyMs.p99, 3)} ms` : '';
      lines.push(`  ${chain.padEnd(32)} ${range(workerUs, 2)} ${range(allUs, 2)}${latency}`.trimEnd());
    }
    const added = addedMs ? ` p50 ${range(addedMs.p50, 3)} p99 ${range(addedMs.p99, 3)} ms` : '';
    lines.push(`  ${'filter over empty'.padEnd(32)} ${range(filterUs, 2)} ${range(allFilterUs, 2)}${added}`.trimEnd());
    const ratio = `${comparison.quietRatio.toFixed(2)} x plain${boundRatio === null ? '' : ` (bound ${boundRatio.toFixed(1)})`}`;
    lines.push(
      `  ${'in the least disturbed rounds'.padEnd(32)} ${number(comparison.quietFilterUs, 2)} us; all of it ${ratio}`,
    );
    if (boundUs !== null)
      lines.push(`  ${`bound ${boundUs} us a worker`.padEnd(32)} ${holds ? 'holds' : 'DOES NOT HOLD'}`);
  }
  return `${lines.join('\n')}\n`;
}

const whole =
  (min: number, max: number) =>
  (text: string): number => {
    const value = Number(text);
    if (Number.isInteger(value) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`expected a whole number from ${min} to ${max}`);
  };

async function main(): Promise<number> {
  const size = whole(1, 16_384);
  const command = new Command('overhead')
    .description(
      'What the filter costs in a real Envoy, against the same chain with an empty filter and against plain round robin.',
    )
    .option('--sizes <KiB,...>', 'sizes of the bodies', (text) => text.split(',').map(size), [1, 16, 128])
    .option('--rounds <n>', 'rounds that count; one more warms up', whole(1, 1000), 15)
    .option('--requests <n>', 'requests of a round, for each chain and size', whole(1, 1_000_000), 2000)
    .option('--events <n>', 'events of streamed answers in a round; 0 leaves them out', whole(0, 10_000_000), 10_000)
    .option('--connections <n>', 'connections at a time', whole(1, 256), 8)
    .option('--envoy <version>', 'Envoy to measure in', envoyVersionDefault)
    .option('--wasm <path>', 'the filter to measure', wasmPath('filter'));
  return commandMain(command, measureOverhead, textOf);
}

if (import.meta.main) process.exitCode = await main();
