// What one comparison runs on: replicas and a pool for each arm, one control plane, one real Envoy with a listener for each arm. Arms share
// nothing but the machine, so that none warms the caches of another.

import { lookup } from 'node:dns/promises';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { PolicyName } from '../../control-plane/engine/frames.ts';
import { startControlPlane, type ControlPlane } from '../../control-plane/server.ts';
import { envoyVersionDefault } from '../../envoy/fetch.ts';
import { controlPlaneCluster, upstreamHeader } from '../../envoy/names.ts';
import { startEnvoy, type RunningEnvoy } from '../../envoy/run.ts';
import { startReplicas } from '../../sim/replicas.ts';
import { MODEL_DEFAULT } from '../../sim/server.ts';
import type { Closers } from '../closers.ts';
import { CommandError, messageOf } from '../errors.ts';
import { orInterrupted } from '../interrupt.ts';
import { freePortOr } from './ports.ts';
import type { RunPlan, UpOptions } from './options.ts';
import type { Progress } from './progress.ts';

const filterPath = fileURLToPath(new URL('../../build/filter.wasm', import.meta.url));
const syncIntervalMs = 50;
const readyMsMax = 30_000;
/** The response header by which the driver knows which pod answered. */
export const podHeader = upstreamHeader;

export interface Arm {
  name: PolicyName;
  /** Where its gateway listens. */
  baseUrl: string;
  /** `ip:port` of its pods. */
  endpoints: string[];
  /** How late its simulated replicas ran in all, because the machine had no time for them. */
  lateMs: () => Promise<number>;
}

export interface Stage {
  arms: Arm[];
  model: string;
  engine: string;
  /** Workers of its Envoy. */
  workers: number;
  /** Everything else that listens, for whoever wants to look. */
  addresses: { name: string; address: string }[];
  /** Rejects when a part dies that nobody closed. */
  broken: Promise<never>;
}

export async function startStage(
  plan: RunPlan,
  options: UpOptions,
  closers: Closers,
  progress: Progress,
  signal: AbortSignal,
): Promise<Stage> {
  const gatewayPort = await freePortOr(options.port);
  const model = options.upstreams.length > 0 ? await upstreamModel(options) : MODEL_DEFAULT;
  const arms = await startArms(plan, options, closers, progress);
  signal.throwIfAborted();

  const controlPlane = await startControlPlane({
    host: '127.0.0.1',
    port: 0,
    syncIntervalMs,
    pools: arms.map(({ name, endpoints }) => ({ name, endpoints, policy: name })),
  });
  closers.add('the control plane', () => controlPlane.close());
  signal.throwIfAborted();

  const { envoy, logFolder } = await startGateway(arms, options, gatewayPort, controlPlane.port, closers, progress);
  const broken = envoy.exited.then(async (code) => {
    const tail = (await envoy.log()).trimEnd().split('\n').slice(-10).join('\n  ');
    throw new CommandError(
      `Envoy ended by itself (code ${code ?? 'none'}), and the comparison with it. Its log ends:\n  ${tail}`,
    );
  });
  // Without a listener a closed stage would count as an unhandled rejection.
  broken.catch(() => undefined);
  const stage: Stage = {
    arms: arms.map((arm) => ({ ...arm, baseUrl: `http://127.0.0.1:${envoy.ports[arm.name]}` })),
    model,
    engine: options.upstreams.length > 0 ? 'real' : plan.engine,
    workers: options.concurrency,
    addresses: [
      { name: "Envoy's admin port", address: envoy.adminUrl },
      { name: 'control plane', address: `${controlPlane.url}/v1/state` },
      { name: "Envoy's log", address: join(logFolder, 'envoy.log') },
    ],
    broken,
  };
  await orInterrupted(Promise.race([ready(stage, controlPlane, envoy), broken]), signal);
  return stage;
}

/** Each arm's pods: simulated ones of its own, or the real ones that all arms share. */
async function startArms(
  plan: RunPlan,
  options: UpOptions,
  closers: Closers,
  progress: Progress,
): Promise<Omit<Arm, 'baseUrl'>[]> {
  if (options.upstreams.length > 0) {
    const endpoints = await Promise.all(options.upstreams.map(addressOf));
    return options.policies.map((name) => ({ name, endpoints, lateMs: async () => 0 }));
  }
  progress.say(
    `${plan.workload}: starting ${plan.replicas} simulated ${plan.engine} replicas for each of ${options.policies.join(', ')}`,
  );
  return Promise.all(
    options.policies.map(async (name) => {
      const replicas = await startReplicas({ engine: plan.engine, count: plan.replicas });
      closers.add(`the replicas of ${name}`, () => replicas.close());
      return {
        name,
        endpoints: replicas.urls.map((url) => new URL(url).host),
        lateMs: async () => Math.max(...(await replicas.stats()).map(({ lostMs }) => lostMs)),
      };
    }),
  );
}

async function startGateway(
  arms: readonly Omit<Arm, 'baseUrl'>[],
  options: UpOptions,
  gatewayPort: number | null,
  controlPlanePort: number,
  closers: Closers,
  progress: Progress,
): Promise<{ envoy: RunningEnvoy; logFolder: string }> {
  const version = options.envoyVersion ?? envoyVersionDefault;
  const logFolder = await mkdtemp(join(tmpdir(), 'warmpath-up-'));
  closers.add('the log folder', () => rm(logFolder, { recursive: true, force: true }));
  progress.say(`starting Envoy ${process.env.ENVOY_BIN ?? version} with ${options.concurrency} workers`);
  const envoy = await startEnvoy({
    version,
    concurrency: options.concurrency,
    nodeId: 'warmpath-up',
    logPath: join(logFolder, 'envoy.log'),
    // The last arm is the one whose gateway people try, so a wished port goes to it.
    listeners: arms.map(({ name }, i) => ({
      name,
      ...(i === arms.length - 1 && gatewayPort !== null ? { port: gatewayPort } : {}),
      cluster: name,
      chain: 'warmpath',
      wasmPath: filterPath,
      showUpstream: true,
      pluginConfig: {
        pool: name,
        gateway: 'warmpath-up',
        sync: { cluster: controlPlaneCluster, authority: 'warmpath', intervalMs: syncIntervalMs },
      },
    })),
    pools: arms.map(({ name, endpoints }) => ({ name, endpoints, balancing: 'override-host' })),
    controlPlane: { host: '127.0.0.1', port: controlPlanePort },
  });
  closers.add('Envoy', () => envoy.stop());
  return { envoy, logFolder };
}

/** What of the control plane's state tells that gateways are there. */
interface Gateways {
  pools: { name: string; gateways: { live: boolean; reports: number; workers: number }[] }[];
}

/** Waits until every arm's filter has synchronised: before that a worker knows no endpoints, and picks nothing. */
async function ready(stage: Stage, controlPlane: ControlPlane, envoy: RunningEnvoy): Promise<void> {
  const deadline = Date.now() + readyMsMax;
  for (;;) {
    const { pools } = controlPlane.state() as Gateways;
    const silent = pools.filter(
      ({ gateways }) => !gateways.some(({ live, reports, workers }) => live && reports > 2 && workers >= stage.workers),
    );
    if (silent.length === 0) break;
    if (Date.now() > deadline) {
      const tail = (await envoy.log()).trimEnd().split('\n').slice(-10).join('\n  ');
      const names = silent.map(({ name }) => name).join(', ');
      throw new CommandError(
        `the filter of ${names} has not synchronised after ${readyMsMax / 1000} s. Envoy's log ends:\n  ${tail}`,
      );
    }
    await sleep(50);
  }
  for (const { name, baseUrl } of stage.arms) {
    const response = await fetch(`${baseUrl}/v1/models`, { signal: AbortSignal.timeout(5_000) });
    await response.arrayBuffer();
    if (!response.ok) throw new CommandError(`the gateway of ${name} answers ${response.status} to GET /v1/models`);
  }
}

/** `ip:port` of a URL: Envoy's clusters and the filter's picks know addresses, not names. */
async function addressOf(url: string): Promise<string> {
  const { hostname, port } = new URL(url);
  const bare = hostname.replace(/^\[|\]$/g, '');
  try {
    const { address, family } = await lookup(bare);
    return `${family === 6 ? `[${address}]` : address}:${port || 80}`;
  } catch (error) {
    throw new CommandError(`--upstream ${url}: its host cannot be found (${messageOf(error)})`);
  }
}

/** The model to ask for: the wished one, or the first that the first engine serves. */
async function upstreamModel({ model, upstreams }: UpOptions): Promise<string> {
  if (model !== null) return model;
  const url = `${upstreams[0]}/v1/models`;
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(5_000) });
    const { data } = (await response.json()) as { data: { id: string }[] };
    if (data[0] === undefined) throw new Error('it serves no model');
    return data[0].id;
  } catch (error) {
    throw new CommandError(`${url} does not tell which model it serves (${messageOf(error)}); --model names one`);
  }
}
