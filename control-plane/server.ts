// Puts a control plane together from its parts, starts it and stops it. The command line and the tests both come in here.
import type { FastifyInstance } from 'fastify';
import { randomBytes } from 'node:crypto';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Clock } from './clock.ts';
import { systemClock } from './clock.ts';
import { readConfig, readPolicyOptions } from './config.ts';
import type { ControlPlaneConfig, ControlPlaneOptions, PoolConfig } from './config.ts';
import { EndpointsFile, readEndpointsFile } from './endpoints-file.ts';
import { Frames, POLICIES } from './engine/frames.ts';
import type { FrameExports } from './engine/frame-exports.ts';
import type { PolicyName } from './engine/frames.ts';
import { loadEngine } from './engine/instance.ts';
import { ControlPlaneError, invalid } from './errors.ts';
import { buildHttp } from './http.ts';
import type { HttpParts } from './http.ts';
import { LIMITS } from './limits.ts';
import { silentLog } from './log.ts';
import type { Log } from './log.ts';
import type { Kubernetes } from './kube/kubernetes.ts';
import { Metrics } from './metrics.ts';
import { Pool } from './pool.ts';
import type { PolicyOptions } from './pool.ts';
import { Gate } from './scrape.ts';
import { poolSecrets } from './secret.ts';
import { Sync } from './sync.ts';
import { PoolTable } from './table.ts';

export type { ControlPlaneOptions, EndpointOptions, PoolOptions } from './config.ts';

export interface ControlPlane {
  readonly url: string;
  readonly port: number;
  /** Where everything but sync is: the same, unless that has a port of its own. */
  readonly adminUrl: string;
  /** What GET /v1/state answers. */
  state(): object;
  /** Sets a pool's policy, and the weights or the key that it goes by; gateways have it with their next sync. */
  setPolicy(pool: string, policy: PolicyName, options?: PolicyOptions): void;
  close(): Promise<void>;
}

export interface ControlPlaneParts {
  clock?: Clock;
  log?: Log;
}

const SWEEP_MS = 1_000;
const DELAY_RESOLUTION_MS = 50;

/** Later control planes have larger epochs, and no two of them the same: ms since 1970, then 20 random bits. */
function newEpoch(nowMs: number): bigint {
  return (BigInt(Math.max(1, Math.floor(nowMs))) << 20n) | BigInt(randomBytes(4).readUInt32LE(0) >>> 12);
}

async function buildPools(
  config: ControlPlaneConfig,
  secretOf: (pool: string) => Uint8Array,
  frames: Frames,
  metrics: Metrics,
  clock: Clock,
  log: Log,
): Promise<Pool[]> {
  const gate = new Gate(LIMITS.scrapeConcurrency);
  return Promise.all(
    config.pools.map(async (pool) => {
      const endpoints = pool.endpointsFile === null ? pool.endpoints : readEndpointsFile(pool.endpointsFile, pool.name);
      // How many pods an object in Kubernetes will select is not known yet.
      const expected = pool.object === null ? (endpoints?.length ?? 0) : LIMITS.tablePodsObject;
      const pods = Math.min(Math.max(LIMITS.tablePodsMin, expected * 2), LIMITS.pods);
      const table = await PoolTable.create(pods, LIMITS.tableNodes);
      const { scrapeTimeoutMs } = config;
      const hash = frames.poolHash(pool.name);
      return new Pool(pool, { hash, secret: secretOf(pool.name), table, clock, log, metrics, gate, scrapeTimeoutMs });
    }),
  );
}

/** Gives a pool its endpoints, from the configuration or from a file or an object that is watched from now on. */
function feed(
  pool: Pool,
  config: PoolConfig,
  kubernetes: Kubernetes | null,
  metrics: Metrics,
  log: Log,
): EndpointsFile | null {
  if (config.object !== null) {
    kubernetes?.follow(pool, config);
    return null;
  }
  if (config.endpointsFile === null) {
    pool.setEndpoints(config.endpoints ?? []);
    return null;
  }
  const path = config.endpointsFile;
  const file = new EndpointsFile(
    path,
    pool.name,
    (endpoints) => pool.setEndpoints(endpoints),
    (error) => {
      metrics.endpointsRefused.inc({ pool: pool.name });
      log.warn('endpoints file refused, the last good one stays', { pool: pool.name, path, reason: error.message });
    },
  );
  pool.setEndpoints(file.start());
  return file;
}

/** The client for Kubernetes is large: it is loaded only where it is needed. */
async function connect(config: ControlPlaneConfig, metrics: Metrics, log: Log): Promise<Kubernetes | null> {
  if (config.replica === null && config.pools.every((pool) => pool.object === null)) return null;
  const { Kubernetes } = await import('./kube/kubernetes.ts');
  return new Kubernetes(config, metrics, log);
}

export async function startControlPlane(
  options: ControlPlaneOptions,
  { clock = systemClock, log = silentLog }: ControlPlaneParts = {},
): Promise<ControlPlane> {
  const config = readConfig(options);
  const frames = new Frames((await loadEngine<FrameExports>()).exports);
  const metrics = new Metrics();
  const delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });
  delay.enable();
  const kubernetes = await connect(config, metrics, log);
  const startedMs = clock.nowMs();
  metrics.startTime.set(startedMs / 1000);

  let pools: Pool[] = [];
  let sync: Sync | null = null;
  let isWarm = false;
  let isActive = false;
  const files: (EndpointsFile | null)[] = [];
  const closePools = async (): Promise<void> => {
    for (const file of files) file?.close();
    await kubernetes?.close();
    await Promise.all(pools.map((pool) => pool.close()));
  };
  const state = (): object => ({
    epoch: sync?.epoch.toString(16) ?? null,
    startedMs,
    ready: isWarm,
    active: isActive,
    replica: kubernetes?.replicaState() ?? null,
    pools: pools.map((pool) => ({ ...pool.state(clock.nowMs()), object: kubernetes?.state(pool.name) ?? null })),
  });
  const face: HttpParts = {
    token: config.token,
    metrics,
    sync: (body) => {
      if (sync === null || !isWarm) throw new ControlPlaneError('WARMPATH_NOT_READY', 'the pools are not known yet');
      if (!isActive) throw new ControlPlaneError('WARMPATH_STANDBY', 'another replica is active');
      return sync.answer(body);
    },
    sent: (answer) => sync?.sent(answer),
    state,
    notReady: () => (isWarm ? null : 'the pools are being read'),
    collect: async () => {
      // Endpoints come and go; the gauges of those that are gone must not stay.
      metrics.tableBlocks.reset();
      metrics.tableBytes.reset();
      metrics.podCachedTokens.reset();
      metrics.podMatches.reset();
      metrics.podCapacityTokens.reset();
      metrics.active.set(isActive ? 1 : 0);
      metrics.eventLoopDelay.set(Math.max(0, delay.percentile(99) / 1e9 - DELAY_RESOLUTION_MS / 1000));
      delay.reset();
      for (const pool of pools) await pool.collect(clock.nowMs());
    },
  };
  const onInternal = (error: unknown): void =>
    log.warn('internal error', { error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  const http = buildHttp(face, onInternal, config.adminPort === null ? 'all' : 'sync');
  const admin = config.adminPort === null ? null : buildHttp(face, onInternal, 'admin');
  const warmUp = async (): Promise<void> => {
    const secretOf = (await kubernetes?.secrets()) ?? poolSecrets(config.secretFile);
    pools = await buildPools(config, secretOf, frames, metrics, clock, log);
    sync = new Sync(newEpoch(startedMs), frames, pools, clock, metrics, log);
    pools.forEach((pool, index) => {
      files.push(feed(pool, config.pools[index] as PoolConfig, kubernetes, metrics, log));
    });
    await kubernetes?.synced();
    // A pod's id names the start of its engine, so the engines are asked once before any id is given out.
    await firstScrape(pools, config.scrapeTimeoutMs);
    isWarm = true;
  };
  let isClosed = false;
  // In Kubernetes a probe must be answered even when the API server is away and nothing can be known for a while.
  const listenFirst = kubernetes !== null;
  try {
    if (!listenFirst) await warmUp();
    await http.listen({ host: config.host, port: config.port });
    await admin?.listen({ host: config.host, port: config.adminPort ?? 0 });
  } catch (error) {
    await closePools();
    await http.close();
    await admin?.close();
    throw error;
  }
  const portOf = ({ server }: FastifyInstance): number => (server.address() as { port: number }).port;
  const port = portOf(http);
  if (kubernetes === null) {
    isActive = true;
  } else {
    void warmUp()
      .then(() =>
        kubernetes.elect(port, {
          activated: () => {
            // What gateways were told by the replica before is not ours: they are asked for what they hold.
            sync?.begin(newEpoch(clock.nowMs()));
            isActive = true;
          },
          steppedDown: () => (isActive = false),
        }),
      )
      .catch((error: unknown) => {
        if (!isClosed) throw error;
      });
  }

  const sweep = setInterval(() => {
    for (const pool of pools) {
      for (const gateway of pool.gateways.sweep(clock.nowMs())) {
        log.warn('gateway is silent', { pool: pool.name, gateway });
      }
    }
  }, SWEEP_MS);
  sweep.unref();

  const host = config.host.includes(':') ? `[${config.host}]` : config.host;
  const url = `http://${host}:${port}`;
  const adminUrl = admin === null ? url : `http://${host}:${portOf(admin)}`;
  log.info('control plane listens', { url, adminUrl, pools: config.pools.map((pool) => pool.name).join(',') });
  return {
    url,
    port,
    adminUrl,
    state,
    setPolicy: (name, policy, options = {}) => {
      const pool = pools.find((candidate) => candidate.name === name);
      if (pool === undefined) throw new ControlPlaneError('WARMPATH_POOL_UNKNOWN', `there is no pool ${name}`);
      if (!POLICIES.includes(policy)) throw invalid('policy', policy, `one of ${POLICIES.join(', ')}`);
      pool.setPolicy(policy, readPolicyOptions(options));
    },
    close: async () => {
      isClosed = true;
      delay.disable();
      clearInterval(sweep);
      await http.close();
      await admin?.close();
      await closePools();
    },
  };
}

async function firstScrape(pools: Pool[], waitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const bell = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, waitMs);
  });
  await Promise.race([Promise.all(pools.map((pool) => pool.scraper.scrapeAll())), bell]);
  clearTimeout(timer);
}
