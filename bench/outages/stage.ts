// What an outage happens to: a real Envoy with two arms, the filter's and a plain one, each with replicas of its own, and a control plane.
// Both arms have the same retries, timeouts and outlier settings, those that Warmpath ships.

import { fileURLToPath } from 'node:url';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Balancing } from '../../envoy/cluster.ts';
import { controlPlaneCluster } from '../../envoy/names.ts';
import { freePort } from '../../envoy/ports.ts';
import { startEnvoy, type RunningEnvoy } from '../../envoy/run.ts';
import type { ReplicaOptions } from '../../sim/server.ts';
import { ControlPlaneProcess, Fleet } from './processes.ts';

const filterPath = fileURLToPath(new URL('../../build/filter.wasm', import.meta.url));
const readyMsMax = 10_000;
const pool = 'llm';

export interface StageOptions {
  replicas: number;
  replica: ReplicaOptions;
  /** How the plain arm balances. */
  plain: Exclude<Balancing, 'override-host'>;
  workers: number;
  /** Silence after which Envoy tries another pod, as long as nothing was answered; and after which it gives up. */
  tryTimeoutMs: number;
  idleTimeoutMs: number;
  scrapeIntervalMs: number;
  /** Whether the control plane is there when Envoy starts. */
  hasControlPlane: boolean;
  /** Whether its secret outlives it. */
  keepsSecret: boolean;
  version?: string;
}

export const armNames = ['warmpath', 'plain'] as const;
export type ArmName = (typeof armNames)[number];

export interface Stage {
  envoy: RunningEnvoy;
  fleets: Record<ArmName, Fleet>;
  controlPlane: ControlPlaneProcess;
  url(arm: ArmName): string;
  /** Does something to the replicas of both arms at once. */
  each(what: (fleet: Fleet) => void | Promise<void>): Promise<void>;
  close(): Promise<void>;
}

export async function startStage(options: StageOptions): Promise<Stage> {
  const closers: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const closer of closers.toReversed()) await closer();
  };
  try {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-outages-'));
    closers.push(() => rm(folder, { recursive: true, force: true }));
    const [picked, plain] = await Promise.all(armNames.map(() => Fleet.start(options.replicas, options.replica)));
    const fleets = { warmpath: picked!, plain: plain! };
    closers.push(async () => void (await Promise.all([picked!.close(), plain!.close()])));
    const port = await freePort();
    const controlPlane = new ControlPlaneProcess({
      port,
      scrapeIntervalMs: options.scrapeIntervalMs,
      pools: [{ name: pool, endpoints: fleets.warmpath.endpoints }],
      ...(options.keepsSecret ? { secretFile: join(folder, 'secret') } : {}),
    });
    closers.push(() => controlPlane.kill());
    if (options.hasControlPlane) await controlPlane.start();
    const envoy = await startGateway(options, fleets, port);
    closers.push(() => envoy.stop());
    if (options.hasControlPlane) await synced(envoy);
    return {
      envoy,
      fleets,
      controlPlane,
      url: (arm) => `http://127.0.0.1:${envoy.ports[arm]}`,
      each: async (what) => void (await Promise.all(armNames.map(async (arm) => what(fleets[arm])))),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function startGateway(options: StageOptions, fleets: Stage['fleets'], port: number): Promise<RunningEnvoy> {
  const { tryTimeoutMs, idleTimeoutMs } = options;
  const common = { showUpstream: true, tryTimeoutMs, idleTimeoutMs };
  return startEnvoy({
    concurrency: options.workers,
    ...(options.version === undefined ? {} : { version: options.version }),
    listeners: [
      {
        ...common,
        name: 'warmpath',
        cluster: pool,
        chain: 'warmpath',
        wasmPath: filterPath,
        pluginConfig: { pool, gateway: 'outages', sync: { cluster: controlPlaneCluster } },
      },
      { ...common, name: 'plain', cluster: 'plain', chain: 'plain' },
    ],
    pools: [
      { name: pool, endpoints: fleets.warmpath.endpoints, balancing: 'override-host' },
      { name: 'plain', endpoints: fleets.plain.endpoints, balancing: options.plain },
    ],
    controlPlane: { host: '127.0.0.1', port },
  });
}

/** Waits for the leader's first syncs, and a few ticks in which every worker takes over what came. */
async function synced(envoy: RunningEnvoy): Promise<void> {
  const deadline = performance.now() + readyMsMax;
  for (;;) {
    const stats = await envoy.stats('warmpath_syncs_total');
    if (Object.entries(stats).some(([name, value]) => name.endsWith('result.ok') && value >= 3)) break;
    if (performance.now() > deadline) throw new Error(`outages: no sync after ${readyMsMax} ms\n${await envoy.log()}`);
    await sleep(20);
  }
  await sleep(100);
}
