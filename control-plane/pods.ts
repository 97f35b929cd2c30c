// The endpoints of one pool and their identities. A pod id stands for one life of one engine: an endpoint that comes back
// after it was gone, or whose engine started anew, gets another id, so that nobody credits it with a cache it has lost.
//
// Ids are derived from address, start time and life, not counted up: a control plane that starts again while the engines
// go on arrives at the same ids, and the gateways' tables stay good. In Kubernetes a life is a pod's UID and how often its container
// was started again, so that replicas of the control plane arrive at the same ids, too.
import { createHash } from 'node:crypto';
import type { EndpointConfig } from './config.ts';
import type { EndpointRecord } from './engine/frames.ts';
import { LIMITS } from './limits.ts';

export interface Pod extends EndpointConfig {
  id: number;
  /** Start time of the engine's process, 0 while unknown. */
  startedSeconds: number;
  /** Capacity as the engine reports it, 0 while unknown. */
  reportedCapacityTokens: number;
  /** Capacity as guessed from answers, 0 while nothing was learned; for engines that do not report one. */
  learnedCapacityTokens: number;
  /** Tokens that the engine held when it had to evict, by its own cache events; 0 while it has not told. */
  heldCapacityTokens: number;
  /** How often the engine was started again: as Kubernetes counts, or one more as soon as a scrape has shown it. */
  restarts: number;
}

export interface PodChange {
  removed: number[];
  added: number[];
  /** The engine was known to have started at another time. */
  isRestart: boolean;
}

const unchanged = (): PodChange => ({ removed: [], added: [], isRestart: false });

/** Start times this close together are one start: the gauge is a float of seconds. */
const SAME_START_SECONDS = 0.5;
/** What an engine holds when it evicts differs from time to time; tables are sized anew beyond this. */
const HELD_DRIFT_MAX = 0.02;

const placeOf = (address: Uint8Array, port: number): string => `${Buffer.from(address).toString('hex')} ${port}`;

export class Pods {
  #capacityTokens: number;
  readonly #lives = new Map<string, number>();
  #pods = new Map<string, Pod>();
  #ids: { version: number; set: Set<number> } | undefined;
  /** Counts every change that gateways must hear of. */
  version = 1;
  /** Once an id has been handed out, what gateways bring along is no longer taken over. */
  #handedOut = false;

  constructor(capacityTokens: number) {
    this.#capacityTokens = capacityTokens;
  }

  /** The capacity of all pods that have none of their own; 0 = as each engine reports it. */
  setCapacity(tokens: number): void {
    if (tokens === this.#capacityTokens) return;
    this.#capacityTokens = tokens;
    this.version++;
  }

  list(): Pod[] {
    return [...this.#pods.values()];
  }

  /** The ids in force. */
  ids(): ReadonlySet<number> {
    if (this.#ids?.version !== this.version) {
      this.#ids = { version: this.version, set: new Set(this.list().map((pod) => pod.id)) };
    }
    return this.#ids.set;
  }

  byEndpoint(text: string): Pod | undefined {
    return this.#pods.get(text);
  }

  #newId(text: string, startedSeconds: number, uid: string | undefined, restarts: number): number {
    const used = new Set(this.list().map((pod) => pod.id));
    const life = uid === undefined ? `${startedSeconds} ${this.#lives.get(text) ?? 0}` : `${uid} ${restarts}`;
    for (let salt = 0; ; salt++) {
      const digest = createHash('sha256').update(`${text} ${life} ${salt}`).digest();
      const id = digest.readUInt32LE(0);
      if (id !== 0 && !used.has(id)) return id;
    }
  }

  // An endpoint is gone: should it come back, that is another life. The oldest memories make room.
  #end(text: string): void {
    const life = (this.#lives.get(text) ?? 0) + 1;
    this.#lives.delete(text);
    this.#lives.set(text, life);
    const [oldest] = this.#lives.keys();
    if (this.#lives.size > LIMITS.endpointsRemembered && oldest !== undefined) this.#lives.delete(oldest);
  }

  /** Sets the whole list of endpoints. */
  set(endpoints: EndpointConfig[]): PodChange {
    const change = unchanged();
    const next = new Map<string, Pod>();
    let isChanged = false;
    for (const endpoint of endpoints) {
      const { text } = endpoint.address;
      const old = this.#pods.get(text);
      const isSamePod = old !== undefined && old.life?.uid === endpoint.life?.uid;
      const restarts = endpoint.life?.restarts ?? 0;
      if (isSamePod && restarts <= old.restarts) {
        const same = ['weight', 'drain', 'capacityTokens', 'ready'] as const;
        isChanged ||= same.some((key) => old[key] !== endpoint[key]);
        next.set(text, { ...old, ...endpoint });
        continue;
      }
      const id = this.#newId(text, 0, endpoint.life?.uid, restarts);
      next.set(text, {
        ...endpoint,
        id,
        startedSeconds: 0,
        reportedCapacityTokens: 0,
        learnedCapacityTokens: 0,
        heldCapacityTokens: 0,
        restarts,
      });
      change.added.push(id);
      if (old !== undefined) change.removed.push(old.id);
      change.isRestart ||= isSamePod;
    }
    for (const [text, pod] of this.#pods) {
      if (next.has(text)) continue;
      this.#end(text);
      change.removed.push(pod.id);
    }
    this.#pods = next;
    if (isChanged || change.added.length + change.removed.length > 0) this.version++;
    return change;
  }

  /** What a scrape told of an engine. The first start time seen names the pod; another one is another life. */
  learn(text: string, startedSeconds: number | null, capacityTokens: number | null): PodChange {
    const pod = this.#pods.get(text);
    const change = unchanged();
    if (pod === undefined) return change;
    if (capacityTokens !== null && capacityTokens !== pod.reportedCapacityTokens) {
      pod.reportedCapacityTokens = capacityTokens;
      this.version++;
    }
    if (startedSeconds === null || Math.abs(startedSeconds - pod.startedSeconds) < SAME_START_SECONDS) return change;
    const isFirst = pod.startedSeconds === 0;
    pod.startedSeconds = startedSeconds;
    this.version++;
    // An id that gateways know already stays when it only becomes known since when the engine runs.
    if (isFirst && (this.#handedOut || pod.life !== null)) return change;
    if (!isFirst) pod.restarts++;
    const id = this.#newId(text, startedSeconds, pod.life?.uid, pod.restarts);
    if (id !== pod.id) {
      change.removed.push(pod.id);
      change.added.push(id);
      change.isRestart = !isFirst;
      pod.heldCapacityTokens = 0;
      pod.id = id;
    }
    return change;
  }

  /**
   * Takes over the ids that a gateway knows from an earlier control plane, for engines that are not known to have started
   * since. Only before this control plane has handed out ids of its own.
   */
  adopt(known: EndpointRecord[]): PodChange {
    const change = unchanged();
    const byAddress = new Map(this.list().map((pod) => [placeOf(pod.address.bytes, pod.address.port), pod]));
    const taken = new Set(this.list().map((pod) => pod.id));
    for (const record of known) {
      const pod = byAddress.get(placeOf(record.address, record.port));
      if (pod === undefined) continue;
      // A guess is better than none, whatever life it comes from.
      if (pod.learnedCapacityTokens === 0) this.learnCapacity(pod, record.capacityTokens);
      if (this.#handedOut || taken.has(record.podId)) continue;
      const bothKnown = pod.startedSeconds !== 0 && record.startedSeconds !== 0;
      // Another pod may have got the address since: where UIDs are known, only a start time makes them the same.
      if (pod.life !== null && !bothKnown) continue;
      if (bothKnown && Math.abs(pod.startedSeconds - record.startedSeconds) >= SAME_START_SECONDS) continue;
      change.removed.push(pod.id);
      change.added.push(record.podId);
      taken.add(record.podId);
      pod.id = record.podId;
      this.version++;
    }
    return change;
  }

  capacityTokensOf(pod: Pod): number {
    return this.#knownCapacityOf(pod) || pod.learnedCapacityTokens;
  }

  #knownCapacityOf(pod: Pod): number {
    return pod.capacityTokens || this.#capacityTokens || pod.heldCapacityTokens || pod.reportedCapacityTokens;
  }

  /**
   * Takes what an engine held when it had to evict: the truth, where it has told of all its blocks, else the least that it can hold. True when
   * the pod's capacity is another now, by more than tables need to follow.
   */
  holdCapacity(pod: Pod, tokens: number, isWhole: boolean): boolean {
    const before = this.capacityTokensOf(pod);
    if (!isWhole && (before === 0 || tokens <= before)) return false;
    if (before > 0 && Math.abs(tokens / before - 1) <= HELD_DRIFT_MAX) return false;
    pod.heldCapacityTokens = tokens;
    if (this.capacityTokensOf(pod) === before) return false;
    this.version++;
    return true;
  }

  /** Takes a guess of a pod's capacity; true when it is in force because nothing better is known. */
  learnCapacity(pod: Pod, tokens: number): boolean {
    const isInForce = this.#knownCapacityOf(pod) === 0;
    if (isInForce && pod.learnedCapacityTokens !== tokens) this.version++;
    pod.learnedCapacityTokens = tokens;
    return isInForce;
  }

  /** The list as the wire carries it; from now on the ids are out. */
  records(): EndpointRecord[] {
    this.#handedOut = true;
    return this.list().map((pod) => ({
      podId: pod.id,
      address: pod.address.bytes,
      port: pod.address.port,
      ready: pod.ready,
      drain: pod.drain,
      weight: pod.weight,
      capacityTokens: this.capacityTokensOf(pod),
      startedSeconds: pod.startedSeconds,
    }));
  }
}
