// Runs an Envoy as a child process: writes its configuration, waits until it is ready, changes listeners and clusters under
// load by replacing watched files, reads its statistics, and ends it with the process that started it.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { discovery, dynamicBootstrap } from './bootstrap.ts';
import type { Resources } from './bootstrap.ts';
import { ensureEnvoy } from './fetch.ts';
import type { ListenerOptions } from './listener.ts';
import { freePort } from './ports.ts';
import { dieWithUs } from './watchdog.ts';

export type EnvoyLogLevel = 'trace' | 'debug' | 'info' | 'warning' | 'error' | 'off';
type Listener = Omit<ListenerOptions, 'port'> & { port?: number };

export interface EnvoyOptions extends Omit<Resources, 'listeners'> {
  /** Without a port, a free one is chosen. */
  listeners: Listener[];
  version?: string;
  /** Workers; each has a VM, and there are two more. */
  concurrency?: number;
  adminPort?: number;
  nodeId?: string;
  logLevel?: EnvoyLogLevel;
  /** Level of what filters log. */
  wasmLogLevel?: EnvoyLogLevel;
  /** Where Envoy's log is kept; a temporary file that goes with it if left out. */
  logPath?: string;
  readyTimeoutMs?: number;
  /**
   * How long connections that a change has made old may go on before they are cut; the filter's old root context ticks as long.
   * Envoy's own default is 600 s.
   */
  drainSeconds?: number;
}

export interface RunningEnvoy {
  readonly pid: number;
  /** As the binary tells it. */
  readonly version: string;
  readonly adminUrl: string;
  /** Port by listener name. */
  readonly ports: Readonly<Record<string, number>>;
  /**
   * Counters and gauges whose name contains `part`, by their full name. The filter tells Envoy at its ticks what it has counted; those with
   * its prefix are asked for after a few, so that they tell all that was before the call.
   */
  stats(part?: string): Promise<Record<string, number>>;
  /** The statistics as Prometheus reads them. */
  prometheus(): Promise<string>;
  /** Everything logged so far, filters included. */
  log(): Promise<string>;
  /**
   * Puts other listeners or clusters in force, and resolves when they are; rejects with Envoy's reason when it refuses them. A module is
   * read again only if its path or something else in its listener changes.
   */
  update(change: Partial<Pick<EnvoyOptions, 'listeners' | 'pools' | 'controlPlane' | 'picker'>>): Promise<void>;
  /** The end of the process, whoever caused it. */
  readonly exited: Promise<number | null>;
  stop(): Promise<void>;
}

const readyTimeoutMsDefault = 30_000;
const updateTimeoutMs = 15_000;
const stopTimeoutMs = 5_000;
const logTailLines = 25;
const pollMs = 20;
const filterPrefix = 'warmpath_';
/** The filter's longest tick, and some more. */
export const filterLagMs = 150;

/** Envoy did not start, or refused a configuration; the message has its reason. */
export class EnvoyError extends Error {
  override name = 'EnvoyError';
}

export async function startEnvoy(options: EnvoyOptions): Promise<RunningEnvoy> {
  const binary = await ensureEnvoy(options.version);
  const directory = await mkdtemp(join(tmpdir(), 'warmpath-envoy-'));
  const envoy = new EnvoyProcess(binary, directory, options);
  try {
    await envoy.start();
  } catch (error) {
    await envoy.stop();
    throw error;
  }
  return envoy;
}

class EnvoyProcess implements RunningEnvoy {
  readonly #binary: string;
  readonly #directory: string;
  readonly #options: EnvoyOptions;
  readonly #logPath: string;
  #resources: Resources = { listeners: [], pools: [] };
  #child: ChildProcess | undefined;
  #generation = 0;
  #exit: { code: number | null } | undefined;
  exited: Promise<number | null> = Promise.resolve(null);
  adminUrl = '';
  version = '';
  ports: Record<string, number> = {};

  constructor(binary: string, directory: string, options: EnvoyOptions) {
    this.#binary = binary;
    this.#directory = directory;
    this.#options = options;
    this.#logPath = options.logPath ?? join(directory, 'envoy.log');
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  async start(): Promise<void> {
    await this.#write(await this.#complete(this.#options));
    const config = join(this.#directory, 'bootstrap.json');
    const addressPath = join(this.#directory, 'admin');
    const {
      adminPort = 0,
      nodeId,
      concurrency = 1,
      logLevel = 'warning',
      wasmLogLevel = 'info',
      drainSeconds,
    } = this.#options;
    const bootstrap = dynamicBootstrap({ adminPort, ...(nodeId === undefined ? {} : { nodeId }) }, this.#files);
    await writeFile(config, JSON.stringify(bootstrap, null, 2));
    const flags = ['--concurrency', `${concurrency}`, '--disable-hot-restart', '--admin-address-path', addressPath];
    if (drainSeconds !== undefined) flags.push('--drain-time-s', `${drainSeconds}`);
    const levels = ['-l', logLevel, '--component-log-level', `wasm:${wasmLogLevel}`];
    this.#child = spawn(this.#binary, ['-c', config, ...flags, ...levels], { stdio: ['ignore', 'ignore', 'pipe'] });
    this.#child.stderr!.pipe(createWriteStream(this.#logPath, { flags: 'a' }));
    const watchdog = this.pid > 0 ? dieWithUs(this.pid) : undefined;
    this.exited = new Promise((resolve) => {
      const ended = (code: number | null): void => {
        this.#exit = { code };
        watchdog?.kill('SIGKILL');
        resolve(code);
      };
      this.#child!.once('error', () => ended(null));
      this.#child!.once('exit', ended);
    });
    await this.#ready(addressPath);
    const { version } = JSON.parse(await this.#admin('/server_info')) as { version: string };
    this.version = version.split('/')[1] ?? version;
  }

  async stats(part = ''): Promise<Record<string, number>> {
    if (part.startsWith(filterPrefix)) await sleep(filterLagMs);
    const filter = part === '' ? '' : `&filter=${encodeURIComponent(part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'))}`;
    const { stats } = JSON.parse(await this.#admin(`/stats?format=json${filter}`)) as {
      stats: { name?: string; value?: number }[];
    };
    return Object.fromEntries(stats.flatMap(({ name, value }) => (name === undefined ? [] : [[name, Number(value)]])));
  }

  prometheus(): Promise<string> {
    return this.#admin('/stats/prometheus');
  }

  log(): Promise<string> {
    return readFile(this.#logPath, 'utf8').catch(() => '');
  }

  async update(change: Parameters<RunningEnvoy['update']>[0]): Promise<void> {
    const [before, inForce] = [await this.#updates(), this.#resources];
    await this.#write(await this.#complete({ ...this.#resources, ...change }));
    const deadline = Date.now() + updateTimeoutMs;
    for (;;) {
      const now = await this.#updates();
      if (now.rejected > before.rejected) {
        this.#resources = inForce;
        throw new EnvoyError(`Envoy refused the change: ${await this.#refusal()}`);
      }
      // Both files are read again, each one counted once.
      if (now.accepted >= before.accepted + 2 && now.warming === 0) return;
      await this.#assertAlive();
      if (Date.now() > deadline) throw new EnvoyError(`the change is not in force after ${updateTimeoutMs} ms`);
      await sleep(pollMs);
    }
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child && !this.#exit) {
      child.kill('SIGTERM');
      const killed = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
      await this.exited;
      clearTimeout(killed);
    }
    await rm(this.#directory, { recursive: true, force: true });
  }

  get #files(): { listeners: string; clusters: string } {
    return { listeners: join(this.#directory, 'listeners.json'), clusters: join(this.#directory, 'clusters.json') };
  }

  /** Gives every listener a port; one that runs keeps its own. */
  async #complete(options: Pick<EnvoyOptions, 'listeners' | 'pools' | 'controlPlane' | 'picker'>): Promise<Resources> {
    const listeners: ListenerOptions[] = [];
    for (const one of options.listeners) {
      listeners.push({ ...one, port: one.port || this.ports[one.name] || (await freePort()) });
    }
    this.ports = Object.fromEntries(listeners.map(({ name, port }) => [name, port]));
    const { pools, controlPlane, picker } = options;
    this.#resources = {
      listeners,
      pools,
      ...(controlPlane ? { controlPlane } : {}),
      ...(picker === undefined ? {} : { picker }),
    };
    return this.#resources;
  }

  /** Envoy watches for renames, and so never reads half a file. Clusters come first: a listener must find its own. */
  async #write(resources: Resources): Promise<void> {
    this.#generation += 1;
    const contents = discovery(resources, `${this.#generation}`);
    for (const kind of ['clusters', 'listeners'] as const) {
      const path = this.#files[kind];
      await writeFile(`${path}.next`, JSON.stringify(contents[kind], null, 2));
      await rename(`${path}.next`, path);
    }
  }

  async #ready(addressPath: string): Promise<void> {
    const timeoutMs = this.#options.readyTimeoutMs ?? readyTimeoutMsDefault;
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      await this.#assertAlive();
      const address = (await readFile(addressPath, 'utf8').catch(() => '')).trim();
      if (address !== '') this.adminUrl = `http://${address}`;
      if (this.adminUrl !== '' && (await this.#isReady())) return;
      if (Date.now() > deadline)
        throw new EnvoyError(`Envoy is not ready after ${timeoutMs} ms:\n${await this.#tail()}`);
      await sleep(pollMs);
    }
  }

  async #isReady(): Promise<boolean> {
    const response = await fetch(`${this.adminUrl}/ready`).catch(() => undefined);
    await response?.arrayBuffer();
    if (!response?.ok) return false;
    const { accepted, rejected, warming } = await this.#updates();
    if (rejected > 0) throw new EnvoyError(`Envoy refused its configuration: ${await this.#refusal()}`);
    return accepted >= 2 && warming === 0;
  }

  async #updates(): Promise<{ accepted: number; rejected: number; warming: number }> {
    const stats = await this.stats('_manager.');
    const sum = (name: string): number =>
      (stats[`listener_manager.lds.${name}`] ?? 0) + (stats[`cluster_manager.cds.${name}`] ?? 0);
    const warming =
      (stats['listener_manager.total_listeners_warming'] ?? 0) + (stats['cluster_manager.warming_clusters'] ?? 0);
    return { accepted: sum('update_success'), rejected: sum('update_rejected'), warming };
  }

  /** Why Envoy refused: the log has a line for each listener or cluster. */
  async #refusal(): Promise<string> {
    const lines = (await this.log()).split('\n');
    return (
      lines
        .filter((line) => /rejected|error adding|Unable to/.test(line))
        .slice(-3)
        .join('\n') || (await this.#tail())
    );
  }

  async #assertAlive(): Promise<void> {
    if (this.#exit) throw new EnvoyError(`Envoy ended with code ${this.#exit.code}:\n${await this.#tail()}`);
  }

  async #tail(): Promise<string> {
    return (await this.log()).trimEnd().split('\n').slice(-logTailLines).join('\n');
  }

  async #admin(path: string): Promise<string> {
    const response = await fetch(`${this.adminUrl}${path}`);
    const text = await response.text();
    if (!response.ok) throw new EnvoyError(`admin ${path} answered ${response.status}: ${text}`);
    return text;
  }
}
