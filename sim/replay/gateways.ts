// The gateways of a replay and what they know of each other, with the delays of the real system: the workers of a gateway see each other's
// picks at once (they read shared data at every pick); other gateways' picks and load come by the control plane, at the leader's
// sync and the tick after it; engine metrics come from the control plane's scrapes the same way. See filter/exchange.ts and filter/leader.ts.

import type { ReplicaEngine } from '../engine.ts';
import type { Random } from '../random.ts';
import type { EventQueue } from '../virtual.ts';
import { Router, type Scraped } from './router.ts';
import type { ReplayPrompt } from './source.ts';

/** Workers look at shared data this often between picks. */
export const TICK_MS = 5;
const SCRAPE_INTERVAL_MS = 1000;

interface Touch {
  gateway: number;
  pod: number;
  atMs: number;
  prompt: ReplayPrompt;
  /** Of a request that is over. */
  outputTokens?: number;
}

interface Load {
  inFlight: number;
  queuedTokens: number;
  usedTokens: number;
}

interface Gateway {
  index: number;
  workers: Router[];
  outbox: Touch[];
  /** How far it has read the control plane's log. */
  readTo: number;
  /** What it told last, and when. */
  told: Load[];
  toldMs: number;
  /** When what it knows of the others was true, about. */
  othersMs: number;
}

export interface GatewaysOptions {
  gateways: number;
  workers: number;
  pods: number;
  capacityTokens: number;
  syncIntervalMs: number;
  hasMetrics: boolean;
  random: Random;
}

/** Which router a request came to. */
export interface Place {
  gateway: number;
  worker: number;
}

export class Gateways {
  readonly #gateways: Gateway[];
  readonly #options: GatewaysOptions;
  /** Touches as the control plane keeps them, from number `#logFirst` on. */
  #log: Touch[] = [];
  #logFirst = 0;
  readonly #scraped: Scraped[] = [];

  private constructor(options: GatewaysOptions, gateways: Gateway[]) {
    this.#options = options;
    this.#gateways = gateways;
  }

  static async create(options: GatewaysOptions): Promise<Gateways> {
    const { random, pods, capacityTokens } = options;
    const gateways: Gateway[] = [];
    for (let index = 0; index < options.gateways; index++) {
      const workers: Router[] = [];
      for (let i = 0; i < options.workers; i++) {
        workers.push(await Router.create(random.seed(), pods, capacityTokens));
      }
      gateways.push({ index, workers, outbox: [], readTo: 0, told: [], toldMs: 0, othersMs: 0 });
    }
    return new Gateways(options, gateways);
  }

  get routers(): Router[] {
    return this.#gateways.flatMap((gateway) => gateway.workers);
  }

  /** The router of a place, knowing what it would know now. */
  router({ gateway, worker }: Place, nowMs: number): Router {
    const { workers, othersMs } = this.#gateways[gateway]!;
    const router = workers[worker]!;
    const tickMs = Math.floor(nowMs / TICK_MS) * TICK_MS;
    router.tick();
    if (this.#gateways.length > 1) router.gatewaysAge(tickMs - othersMs);
    return router;
  }

  touch(place: Place, pod: number, prompt: ReplayPrompt, nowMs: number): void {
    const gateway = this.#gateways[place.gateway]!;
    for (const [index, router] of gateway.workers.entries()) router.touch(pod, prompt, nowMs, index === place.worker);
    if (this.#gateways.length > 1) gateway.outbox.push({ gateway: gateway.index, pod, atMs: nowMs, prompt });
  }

  /** A request is over: its blocks are the newest (docs/decisions/0005), and its answer stands behind them. */
  touchAnswer({ gateway }: Place, pod: number, prompt: ReplayPrompt, outputTokens: number, nowMs: number): void {
    const { index, workers, outbox } = this.#gateways[gateway]!;
    for (const router of workers) router.touchAnswer(pod, prompt, outputTokens, nowMs);
    if (this.#gateways.length > 1) outbox.push({ gateway: index, pod, atMs: nowMs, prompt, outputTokens });
  }

  /** A router's counters of a pod have changed: its siblings see that before they pick again. */
  publish({ gateway, worker }: Place, pod: number): void {
    const { workers } = this.#gateways[gateway]!;
    if (workers.length === 1) return;
    const own = workers[worker]!;
    const inFlight = own.ownInFlight(pod);
    const queuedTokens = own.ownQueuedTokens(pod);
    const usedTokens = own.ownUsedTokens(pod);
    for (const [index, router] of workers.entries()) {
      if (index !== worker) router.siblingSet(worker, pod, inFlight, queuedTokens, usedTokens);
    }
  }

  /** Begins scrapes and syncs, each with a phase of its own, until the replay is over. */
  start(queue: EventQueue, engines: readonly ReplicaEngine[], isOver: () => boolean): void {
    const { random, syncIntervalMs } = this.#options;
    const every = (intervalMs: number, action: (nowMs: number) => void): void => {
      const run = (nowMs: number): void => {
        if (isOver()) return;
        action(nowMs);
        queue.at(nowMs + intervalMs, run);
      };
      queue.at(random.unit() * intervalMs, run);
    };
    // As the control plane does (control-plane/scrape.ts): the mean of the last interval in which any request began.
    const ttfts = engines.map(() => ({ firstTokens: 0, ttftMsSum: 0, requests: 0, meanMs: 0 }));
    for (const [pod, engine] of this.#options.hasMetrics ? engines.entries() : []) {
      every(SCRAPE_INTERVAL_MS, (atMs) => {
        const { running, waiting, cache, counters } = engine;
        const ttft = ttfts[pod]!;
        const begun = counters.firstTokens - ttft.firstTokens;
        if (begun > 0) {
          const { firstTokens, ttftMsSum } = counters;
          ttfts[pod] = { firstTokens, ttftMsSum, requests: begun, meanMs: (ttftMsSum - ttft.ttftMsSum) / begun };
        }
        const { meanMs: ttftMs, requests: ttftRequests } = ttfts[pod]!;
        this.#scraped[pod] = { atMs, running, waiting, kvUsage: cache.usedShare, ttftMs, ttftRequests };
      });
    }
    for (const gateway of this.#gateways) {
      every(syncIntervalMs, (nowMs) => {
        this.#tell(gateway, nowMs);
        this.#hear(gateway, nowMs, queue);
      });
    }
  }

  /** The report: load and touches of all workers of a gateway. */
  #tell(gateway: Gateway, nowMs: number): void {
    if (this.#gateways.length === 1) return;
    gateway.toldMs = nowMs;
    gateway.told = Array.from({ length: this.#options.pods }, (_, pod) => {
      const load = { inFlight: 0, queuedTokens: 0, usedTokens: 0 };
      for (const router of gateway.workers) {
        load.inFlight += router.ownInFlight(pod);
        load.queuedTokens += router.ownQueuedTokens(pod);
        load.usedTokens += router.ownUsedTokens(pod);
      }
      return load;
    });
    this.#log.push(...gateway.outbox);
    gateway.outbox = [];
  }

  /** The answer to a report, in force at the tick after it. */
  #hear(gateway: Gateway, nowMs: number, queue: EventQueue): void {
    const metrics = this.#scraped.slice();
    const touches = this.#log.slice(Math.max(0, gateway.readTo - this.#logFirst));
    gateway.readTo = this.#logFirst + this.#log.length;
    this.#forget();
    const others = this.#gateways.length > 1 ? this.#others(gateway, nowMs) : null;
    queue.at(nowMs + TICK_MS, (thenMs) => {
      for (const router of gateway.workers) {
        metrics.forEach((told, pod) => router.metrics(pod, told));
        for (const touch of touches) {
          const { pod, prompt, atMs, outputTokens } = touch;
          if (touch.gateway === gateway.index) continue;
          if (outputTokens === undefined) router.touch(pod, prompt, atMs, false);
          else router.touchAnswer(pod, prompt, outputTokens, atMs);
        }
        others?.loads.forEach((load, pod) =>
          router.gatewaysSet(pod, load.inFlight, load.queuedTokens, load.usedTokens),
        );
      }
      if (others !== null) gateway.othersMs = thenMs - others.ageMs;
    });
  }

  /** What all gateways but one told last, and its age: for each pod the mean over its requests, of which the oldest counts. */
  #others(except: Gateway, nowMs: number): { loads: Load[]; ageMs: number } {
    let ageMs = 0;
    const loads = Array.from({ length: this.#options.pods }, (_, pod) => {
      const sum = { inFlight: 0, queuedTokens: 0, usedTokens: 0 };
      let weight = 0;
      let weightedAgeMs = 0;
      for (const gateway of this.#gateways) {
        const load = gateway.told[pod];
        if (gateway === except || load === undefined || load.inFlight === 0) continue;
        sum.inFlight += load.inFlight;
        sum.queuedTokens += load.queuedTokens;
        sum.usedTokens += load.usedTokens;
        weight += load.inFlight;
        weightedAgeMs += load.inFlight * (nowMs - gateway.toldMs);
      }
      if (weight > 0) ageMs = Math.max(ageMs, weightedAgeMs / weight);
      return sum;
    });
    return { loads, ageMs };
  }

  /** Drops what every gateway has read. */
  #forget(): void {
    const readTo = Math.min(...this.#gateways.map((gateway) => gateway.readTo));
    if (readTo - this.#logFirst < 4096) return;
    this.#log = this.#log.slice(readTo - this.#logFirst);
    this.#logFirst = readTo;
  }
}
