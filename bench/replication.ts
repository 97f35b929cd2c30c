// What it costs that every worker of every gateway knows what the others know: several real Envoys with several workers each, and a control
// plane, under a steady rate of prompts of 72 blocks whose last quarter is new. The same rate goes through the same number of Envoys
// with a filter that does nothing; the difference, and all of the control plane, is what a request costs.
//
//   node bench/replication.ts [--json] [--gateways N] [--workers N] [--rate N] [--seconds N] [--rounds N] [--help]
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { Agent } from 'undici';
import { wholeNumber } from '../cli/arguments.ts';
import { envoyVersionDefault } from '../envoy/fetch.ts';
import { startEnvoy, type RunningEnvoy } from '../envoy/run.ts';
import { startControlPlaneProcess, type ControlPlaneProcess } from './control-plane/process.ts';
import { commandMain, machineText } from './measure.ts';
import { Bodies } from './overhead/bodies.ts';
import { Load } from './overhead/load.ts';
import { processNs } from './overhead/proc.ts';
import { spread, type Spread } from './overhead/spread.ts';
import { synced } from './overhead/synced.ts';

/** A prompt of so much text has 72 blocks. */
const BODY_BYTES = 24 * 1024;
const PODS = 16;
const BOUND_US = 150;
const READY_MS = 30_000;
const ARMS = ['empty', 'warmpath'] as const;
type Arm = (typeof ARMS)[number];

export interface ReplicationOptions {
  gateways: number;
  workers: number;
  rate: number;
  seconds: number;
  rounds: number;
  envoy: string;
}

export interface ReplicationReport {
  bench: 'replication';
  machine: string;
  versions: Record<string, string>;
  options: ReplicationOptions;
  /** CPU of all Envoys for a request, in microseconds. */
  envoysUs: Record<Arm, Spread>;
  /** CPU that the filter adds to all Envoys, ticks and syncs among it. */
  filterUs: Spread;
  controlPlaneUs: Spread;
  totalUs: Spread;
  /** Bytes that a request puts on the wire to and from the control plane, all gateways together. */
  upBytes: Spread;
  downBytes: Spread;
  boundUs: number;
  broken: string[];
}

class Fleet {
  readonly envoys: RunningEnvoy[] = [];
  readonly #options: ReplicationOptions;
  readonly #endpoints: string[];
  readonly #controlPlanePort: number;

  constructor(options: ReplicationOptions, endpoints: string[], controlPlanePort: number) {
    this.#options = options;
    this.#endpoints = endpoints;
    this.#controlPlanePort = controlPlanePort;
  }

  async start(arm: Arm): Promise<void> {
    const { gateways, workers, envoy } = this.#options;
    const endpoints = this.#endpoints;
    for (let i = 0; i < gateways; i++) {
      const pluginConfig = { pool: 'pool', gateway: `gateway-${i}`, sync: { cluster: 'warmpath' } };
      const wasmPath = fileURLToPath(new URL(`../build/${arm === 'empty' ? 'empty' : 'filter'}.wasm`, import.meta.url));
      const running = await startEnvoy({
        version: envoy,
        concurrency: workers,
        listeners: [
          { name: arm, chain: arm, cluster: 'pool', wasmPath, ...(arm === 'warmpath' ? { pluginConfig } : {}) },
        ],
        pools: [{ name: 'pool', endpoints, balancing: 'override-host' }],
        controlPlane: { host: '127.0.0.1', port: this.#controlPlanePort },
      });
      this.envoys.push(running);
    }
    if (arm === 'warmpath') await Promise.all(this.envoys.map((envoy) => synced(envoy, READY_MS)));
  }

  /** CPU of all of them so far, in microseconds. */
  cpuUs(): number {
    return this.envoys.reduce((sum, { pid }) => sum + processNs(pid) / 1000, 0);
  }

  /** Bytes to and from the control plane so far. */
  async syncBytes(): Promise<{ up: number; down: number }> {
    const bytes = { up: 0, down: 0 };
    for (const envoy of this.envoys) {
      const stats = await envoy.stats('cluster.warmpath.upstream_cx_');
      bytes.up += stats['cluster.warmpath.upstream_cx_tx_bytes_total'] ?? 0;
      bytes.down += stats['cluster.warmpath.upstream_cx_rx_bytes_total'] ?? 0;
    }
    return bytes;
  }

  async stop(): Promise<void> {
    await Promise.all(this.envoys.map((envoy) => envoy.stop()));
  }
}

/** Sends requests at a steady rate, to one gateway after the other, and waits for the last answer. */
async function drive(ports: number[], { rate, seconds }: ReplicationOptions, bodies: Bodies): Promise<number> {
  const agent = new Agent({ connections: 16, pipelining: 1 });
  const pending = new Set<Promise<void>>();
  let failed = 0;
  const ask = async (port: number): Promise<void> => {
    try {
      const answer = await agent.request({
        origin: `http://127.0.0.1:${port}`,
        path: '/v1/chat/completions',
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: Buffer.from(bodies.next(false)),
      });
      await answer.body.dump();
      if (answer.statusCode !== 200) failed++;
    } catch {
      failed++;
    }
  };
  const startMs = performance.now();
  const total = rate * seconds;
  for (let sent = 0; sent < total;) {
    const due = Math.min(total, Math.floor(((performance.now() - startMs) / 1000) * rate));
    for (; sent < due; sent++) {
      const one: Promise<void> = ask(ports[sent % ports.length]!).finally(() => pending.delete(one));
      pending.add(one);
    }
    await sleep(2);
  }
  await Promise.all(pending);
  await agent.destroy();
  if (failed > 0) throw new Error(`${failed} of ${total} requests failed`);
  return total;
}

interface Round {
  envoysUs: number;
  controlPlaneUs: number;
  upBytes: number;
  downBytes: number;
}

async function oneRound(arm: Arm, options: ReplicationOptions, load: Load, plane: ControlPlaneProcess): Promise<Round> {
  const fleet = new Fleet(options, [...load.endpoints], Number(new URL(plane.url).port));
  try {
    await fleet.start(arm);
    const ports = fleet.envoys.map((envoy) => envoy.ports[arm]!);
    const bodies = new Bodies(BODY_BYTES);
    await drive(ports, { ...options, seconds: 2 }, bodies);
    const before = { cpu: fleet.cpuUs(), plane: processNs(plane.pid) / 1000, bytes: await fleet.syncBytes() };
    const requests = await drive(ports, options, bodies);
    const bytes = await fleet.syncBytes();
    return {
      envoysUs: (fleet.cpuUs() - before.cpu) / requests,
      controlPlaneUs: (processNs(plane.pid) / 1000 - before.plane) / requests,
      upBytes: (bytes.up - before.bytes.up) / requests,
      downBytes: (bytes.down - before.bytes.down) / requests,
    };
  } finally {
    await fleet.stop();
  }
}

export async function measureReplication(
  options: ReplicationOptions,
  say: (line: string) => void,
): Promise<ReplicationReport> {
  const load = await Load.start(PODS);
  let plane: ControlPlaneProcess | undefined;
  try {
    plane = await startControlPlaneProcess({ port: 0, pools: [{ name: 'pool', endpoints: [...load.endpoints] }] });
    const rounds: Record<Arm, Round[]> = { empty: [], warmpath: [] };
    for (let round = 1; round <= options.rounds; round++) {
      for (const arm of round % 2 === 1 ? ARMS : ARMS.toReversed()) {
        say(`round ${round} of ${options.rounds}, ${arm}`);
        rounds[arm].push(await oneRound(arm, options, load, plane));
      }
    }
    const each = (value: (own: Round, empty: Round) => number): Spread =>
      spread(rounds.warmpath.map((own, i) => value(own, rounds.empty[i]!)));
    const totalUs = each((own, empty) => own.envoysUs - empty.envoysUs + own.controlPlaneUs);
    const holds = totalUs.median < BOUND_US;
    return {
      bench: 'replication',
      machine: machineText(),
      versions: { envoy: options.envoy, node: process.versions.node },
      options,
      envoysUs: { empty: each((_, empty) => empty.envoysUs), warmpath: each((own) => own.envoysUs) },
      filterUs: each((own, empty) => own.envoysUs - empty.envoysUs),
      controlPlaneUs: each((own) => own.controlPlaneUs),
      totalUs,
      upBytes: each((own) => own.upBytes),
      downBytes: each((own) => own.downBytes),
      boundUs: BOUND_US,
      broken: holds ? [] : [`${totalUs.median} us a request, wanted below ${BOUND_US}`],
    };
  } finally {
    await plane?.kill();
    await load.close();
  }
}

export function textOf(report: ReplicationReport): string {
  const { gateways, workers, rate, seconds, rounds } = report.options;
  const line = (what: string, { min, median, max }: Spread): string =>
    `  ${what.padEnd(44)} ${median.toFixed(1).padStart(8)} (${min.toFixed(1)} to ${max.toFixed(1)})`;
  const versions = Object.entries(report.versions).map(([name, version]) => `${name} ${version}`);
  const lines = [
    'replication: median (least to most) over the rounds',
    report.machine,
    versions.join(', '),
    `${gateways} gateways x ${workers} workers, ${rate} requests/s of ${BODY_BYTES / 1024} KiB, ${PODS} pods, ${rounds} rounds of ${seconds} s`,
    '',
    line('all Envoys with an empty filter, us/request', report.envoysUs.empty),
    line('all Envoys with the filter, us/request', report.envoysUs.warmpath),
    line('the filter in all Envoys, us/request', report.filterUs),
    line('control plane, us/request', report.controlPlaneUs),
    line('both, us/request', report.totalUs),
    line('bytes up, a request', report.upBytes),
    line('bytes down, a request', report.downBytes),
    report.broken.length === 0 ? `bound ${report.boundUs} us holds` : `DOES NOT HOLD: ${report.broken.join('; ')}`,
  ];
  return `${lines.join('\n')}\n`;
}

const whole = wholeNumber(1, 100_000);

async function main(): Promise<number> {
  const command = new Command('replication')
    .description('What it costs that every worker of every gateway knows what the others know.')
    .option('--gateways <n>', 'Envoys', whole, 8)
    .option('--workers <n>', 'workers of each', whole, 4)
    .option('--rate <n>', 'requests a second, all gateways together', whole, 500)
    .option('--seconds <n>', 'length of a round, after 2 s of warm-up', whole, 10)
    .option('--rounds <n>', 'rounds of each arm', whole, 3)
    .option('--envoy <version>', 'Envoy to measure in', envoyVersionDefault);
  return commandMain(command, measureReplication, textOf);
}

if (import.meta.main) process.exitCode = await main();
