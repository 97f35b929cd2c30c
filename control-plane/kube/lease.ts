// Which replica is the active one: a Lease that the active one renews and the others watch.
//
// A replica takes the Lease over when it was let go, or when nothing has happened to it for its whole time as measured by this
// replica's own clock. The active one steps down when it sees another name in the Lease, and not because the API
// server is out of reach: then nobody can take over, and gateways had rather be answered.
import type { ReplicaConfig } from '../config.ts';
import { LIMITS } from '../limits.ts';
import type { Log } from '../log.ts';
import { KubeError, reasonOf } from './api.ts';
import type { KubeApi } from './api.ts';
import type { KubeObject } from './reflector.ts';

interface LeaseObject extends KubeObject {
  apiVersion: 'coordination.k8s.io/v1';
  kind: 'Lease';
  spec: {
    holderIdentity?: string;
    leaseDurationSeconds?: number;
    acquireTime?: string;
    renewTime?: string;
    leaseTransitions?: number;
  };
}

export interface LeaseEvents {
  activated(): void;
  steppedDown(holder: string): void;
}

/** How often the active one renews and the others look, within the Lease's time. */
const TURNS = 4;

export class Lease {
  readonly #api: KubeApi;
  readonly #replica: ReplicaConfig;
  readonly #events: LeaseEvents;
  readonly #log: Log;
  readonly #path: string;
  #lease: LeaseObject | null = null;
  #seenMs = 0;
  #isActive = false;
  #failuresInRow = 0;
  #timer: NodeJS.Timeout | undefined;
  #turn: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(api: KubeApi, replica: ReplicaConfig, events: LeaseEvents, log: Log) {
    this.#api = api;
    this.#replica = replica;
    this.#events = events;
    this.#log = log;
    this.#path = `/apis/coordination.k8s.io/v1/namespaces/${replica.namespace}/leases`;
  }

  get isActive(): boolean {
    return this.#isActive;
  }

  /** Who holds the Lease as far as is known, null when nobody. */
  get holder(): string | null {
    return this.#lease?.spec.holderIdentity || null;
  }

  start(): void {
    this.#schedule(0);
  }

  #schedule(delayMs: number): void {
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => {
      const startedMs = performance.now();
      this.#turn = this.#look().then(() => {
        const everyMs = (this.#replica.leaseSeconds * 1000) / TURNS;
        this.#schedule(Math.max(0, everyMs - (performance.now() - startedMs)));
      });
    }, delayMs);
  }

  async #look(): Promise<void> {
    try {
      if (this.#isActive) await this.#renew();
      else await this.#tryToTake();
      this.#failuresInRow = 0;
    } catch (error) {
      this.#failuresInRow++;
      const { name } = this.#replica;
      if (this.#failuresInRow === 1) this.#log.warn('lease out of reach', { name, reason: reasonOf(error) });
    }
  }

  async #read(): Promise<LeaseObject | null> {
    try {
      return await this.#api.request<LeaseObject>('GET', `${this.#path}/${this.#replica.name}`);
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return null;
      throw error;
    }
  }

  async #tryToTake(): Promise<void> {
    const lease = await this.#read();
    const nowMs = performance.now();
    if (lease?.metadata.resourceVersion !== this.#lease?.metadata.resourceVersion) this.#seenMs = nowMs;
    this.#lease = lease;
    if (lease === null) return this.#write('POST', null);
    const { holderIdentity: holder = '', leaseDurationSeconds: seconds = this.#replica.leaseSeconds } = lease.spec;
    // A name of our own in it is from before this process: nobody else uses it.
    const isFree = holder === '' || holder === this.#replica.podName || nowMs - this.#seenMs > seconds * 1000;
    if (isFree) await this.#write('PUT', lease);
  }

  async #renew(): Promise<void> {
    try {
      await this.#write('PUT', this.#lease);
    } catch (error) {
      if (!(error instanceof KubeError) || (error.status !== 409 && error.status !== 404)) throw error;
      // Somebody changed or removed it. Whoever stands in it now is the active one.
      this.#lease = await this.#read();
      this.#seenMs = performance.now();
      if (this.#lease === null) await this.#write('POST', null);
      else if (this.holder !== this.#replica.podName && this.holder !== null) this.#stepDown();
      else await this.#write('PUT', this.#lease);
    }
  }

  async #write(method: 'POST' | 'PUT', before: LeaseObject | null): Promise<void> {
    const { name, namespace, podName, leaseSeconds } = this.#replica;
    const now = new Date().toISOString().replace('Z', '000Z');
    const isOurs = before?.spec.holderIdentity === podName;
    const lease: LeaseObject = {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { ...before?.metadata, name, namespace },
      spec: {
        holderIdentity: podName,
        leaseDurationSeconds: leaseSeconds,
        acquireTime: isOurs ? (before?.spec.acquireTime ?? now) : now,
        renewTime: now,
        leaseTransitions: (before?.spec.leaseTransitions ?? 0) + (isOurs || before === null ? 0 : 1),
      },
    };
    const path = method === 'POST' ? this.#path : `${this.#path}/${name}`;
    this.#lease = await this.#api.request<LeaseObject>(method, path, {}, lease);
    if (this.#isActive || this.#isClosed) return;
    this.#isActive = true;
    this.#log.info('this replica is active', { lease: name, replica: podName });
    this.#events.activated();
  }

  #stepDown(): void {
    this.#isActive = false;
    const holder = this.holder ?? '';
    this.#log.warn('another replica is active', { lease: this.#replica.name, holder });
    this.#events.steppedDown(holder);
  }

  /** Lets go of the Lease, so that another replica need not wait for its end. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#turn;
    clearTimeout(this.#timer);
    if (!this.#isActive || this.#lease === null) return;
    this.#isActive = false;
    const { spec, ...rest } = this.#lease;
    const released = { ...rest, spec: { ...spec, holderIdentity: '', leaseDurationSeconds: 1 } };
    await this.#api.request('PUT', `${this.#path}/${this.#replica.name}`, {}, released).catch((error: unknown) => {
      this.#log.warn('the lease could not be let go', { reason: reasonOf(error) });
    });
  }
}

/** The Lease's own requests end sooner than others, so that a renewal that hangs does not cost the Lease. */
export const leaseTimeoutMs = LIMITS.leaseRequestMs;
