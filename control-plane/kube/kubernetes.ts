// The control plane in Kubernetes: follows the objects of its pools, tells of annotations that are wrong, keeps the pools' secret,
// and takes part in the election of the active replica. The only one that server.ts knows of this folder.
import { createHmac } from 'node:crypto';
import { ANNOTATION_FAULTS, settingsOf } from '../annotations.ts';
import type { ControlPlaneConfig, PoolConfig, ReplicaConfig } from '../config.ts';
import { ControlPlaneError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { Pool } from '../pool.ts';
import { ActiveSlice } from './active-slice.ts';
import { KubeApi, reasonOf } from './api.ts';
import { FaultEvents } from './fault-events.ts';
import { Lease, leaseTimeoutMs } from './lease.ts';
import { keepAnnotations, readKept } from './pool-secret.ts';
import type { PoolTexts } from './pool-secret.ts';
import { PoolSource } from './pool-source.ts';
import type { ObjectFaults, PoolSourceState } from './pool-source.ts';

/** So often faults that are still there are looked through for those to tell of again, and what could not be kept is tried again. */
const AGAIN_MS = 60_000;

export interface ReplicaState {
  name: string;
  active: boolean;
  /** Name of the active replica's pod, null when there is none. */
  holder: string | null;
}

export class Kubernetes {
  readonly #api: KubeApi;
  readonly #leaseApi: KubeApi;
  readonly #replica: ReplicaConfig | null;
  readonly #metrics: Metrics;
  readonly #log: Log;
  readonly #sources = new Map<string, PoolSource>();
  readonly #faults = new Map<string, ObjectFaults[]>();
  readonly #known = new Map<string, string>();
  readonly #events: FaultEvents;
  readonly #again: NodeJS.Timeout;
  readonly #stop = new AbortController();
  /** The pools' annotations in force, what of them the Secret has, and a write that is under way. */
  #annotations: PoolTexts = {};
  #kept = '';
  #isKeeping = false;
  #lease: Lease | null = null;
  #slice: ActiveSlice | null = null;

  constructor(config: ControlPlaneConfig, metrics: Metrics, log: Log) {
    try {
      this.#api = KubeApi.load(config.kubeconfig);
      this.#leaseApi = KubeApi.load(config.kubeconfig, leaseTimeoutMs);
    } catch (error) {
      const message = `kubeconfig: ${config.kubeconfig ?? 'the files of a pod'}: ${(error as Error).message}`;
      throw new ControlPlaneError('WARMPATH_KUBECONFIG_UNREADABLE', message, { cause: error });
    }
    this.#replica = config.replica;
    this.#metrics = metrics;
    this.#log = log;
    this.#events = new FaultEvents(this.#api, config.replica, log);
    this.#again = setInterval(() => {
      this.#tell();
      void this.#keep();
    }, AGAIN_MS);
    this.#again.unref();
  }

  /** A function from pool name to that pool's secret, from the Secret that all replicas share. */
  async secrets(): Promise<((pool: string) => Uint8Array) | null> {
    if (this.#replica === null) return null;
    const { secret: root, annotations } = await readKept(this.#api, this.#replica, this.#log, this.#stop.signal);
    this.#annotations = annotations;
    this.#kept = JSON.stringify(annotations);
    return (pool) => new Uint8Array(createHmac('sha256', root).update(`warmpath pool ${pool}`).digest());
  }

  /** Keeps a pool as its object says. */
  follow(pool: Pool, config: PoolConfig): void {
    if (config.object === null) return;
    const source = new PoolSource(
      this.#api,
      config.object,
      settingsOf(config),
      this.#annotations[pool.name] ?? {},
      {
        endpoints: (endpoints) => pool.setEndpoints(endpoints),
        settings: (settings, texts) => {
          pool.configure(settings);
          if (texts !== null) this.#annotations = { ...this.#annotations, [pool.name]: texts };
          void this.#keep();
        },
        faults: (objects) => this.#setFaults(pool.name, objects),
        failed: (resource, reason) => this.#metrics.watchFailures.inc({ resource, reason }),
      },
      this.#log,
    );
    this.#sources.set(pool.name, source);
    source.start();
  }

  /** Resolves when every pool has been read, however long that takes. */
  async synced(): Promise<void> {
    await Promise.all([...this.#sources.values()].map((source) => source.synced));
  }

  /** Stands for election; without replicas that know of each other, this one is active. */
  elect(port: number, events: { activated(): void; steppedDown(): void }): void {
    if (this.#replica === null) {
      events.activated();
      return;
    }
    const slice = new ActiveSlice(this.#api, this.#replica, port, this.#log);
    this.#slice = slice;
    this.#lease = new Lease(
      this.#leaseApi,
      this.#replica,
      {
        activated: () => {
          events.activated();
          slice.hold();
          this.#tell();
          // What the one before has written since this one read it is not known.
          this.#kept = '';
          void this.#keep();
        },
        steppedDown: () => {
          slice.letGo();
          events.steppedDown();
        },
      },
      this.#log,
    );
    this.#lease.start();
  }

  get #isActive(): boolean {
    return this.#replica === null || this.#lease?.isActive === true;
  }

  #setFaults(pool: string, objects: ObjectFaults[]): void {
    this.#faults.set(pool, objects);
    const counts = new Map<string, number>(ANNOTATION_FAULTS.map((fault) => [fault, 0]));
    const present = new Set<string>();
    for (const { kind, namespace, name, uid, faults } of objects) {
      for (const { fault, message } of faults) {
        counts.set(fault, (counts.get(fault) ?? 0) + 1);
        const key = `${pool} ${uid} ${message}`;
        present.add(key);
        if (this.#known.has(key)) continue;
        this.#known.set(key, pool);
        this.#log.warn('annotation refused, the last good value stays', {
          pool,
          kind,
          namespace,
          name,
          fault,
          message,
        });
      }
    }
    for (const [key, of] of this.#known) if (of === pool && !present.has(key)) this.#known.delete(key);
    for (const [fault, count] of counts) this.#metrics.annotationFaults.set({ pool, fault }, count);
    this.#tell();
  }

  /** Writes the annotations in force where the next control plane finds them, whenever they are others than it has there. */
  async #keep(): Promise<void> {
    if (this.#replica === null || !this.#isActive || this.#isKeeping) return;
    this.#isKeeping = true;
    try {
      for (let text = this.#annotationsText(); text !== this.#kept; text = this.#annotationsText()) {
        await keepAnnotations(this.#api, this.#replica, JSON.parse(text) as PoolTexts);
        this.#kept = text;
      }
    } catch (error) {
      const fields = { reason: reasonOf(error), error: String(error) };
      if (!this.#stop.signal.aborted)
        this.#log.warn('the annotations in force could not be kept for the next start', fields);
    } finally {
      this.#isKeeping = false;
    }
  }

  #annotationsText(): string {
    const mine = Object.entries(this.#annotations).filter(([pool]) => this.#sources.has(pool));
    return JSON.stringify(Object.fromEntries(mine));
  }

  #tell(): void {
    if (this.#isActive) this.#events.tell([...this.#faults.values()].flat());
  }

  state(pool: string): PoolSourceState | null {
    return this.#sources.get(pool)?.state() ?? null;
  }

  replicaState(): ReplicaState | null {
    if (this.#replica === null) return null;
    return { name: this.#replica.podName, active: this.#isActive, holder: this.#lease?.holder ?? null };
  }

  async close(): Promise<void> {
    this.#stop.abort();
    clearInterval(this.#again);
    this.#slice?.letGo();
    this.#events.close();
    await this.#lease?.close();
    await Promise.all([...this.#sources.values()].map((source) => source.close()));
  }
}
