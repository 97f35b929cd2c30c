// Scrapes the engines' /metrics: each endpoint once an interval, the endpoints spread over it, no more than a bounded number
// at once, on connections that stay open. A scrape that fails changes nothing but the age of what is known: whether a pod
// can serve is for Envoy's health checks and the filter to find out, not for its metrics.
import type { Clock } from './clock.ts';
import { FetchError, Pages } from './fetch-page.ts';
import type { FetchFailure } from './fetch-page.ts';
import { LIMITS } from './limits.ts';
import type { Log } from './log.ts';
import { readMetrics } from './metrics-text.ts';
import type { EngineMetrics, Family } from './metrics-text.ts';

/** The largest number that a frame carries: an engine's nonsense must not make a frame that every gateway refuses. */
const WIRE_NUMBER_MAX = 0xffff_ffff;
const whole = (value: number): number => Math.min(Math.round(value), WIRE_NUMBER_MAX);

export type ScrapeFailure = FetchFailure | 'no-metrics';

/** What is known of one engine from its metrics. */
export interface EngineState {
  running: number | null;
  waiting: number | null;
  kvUsage: number | null;
  /** When the last good scrape was answered, 0 = never. */
  scrapedMs: number;
  /** Which good scrape of this scraper that was, counted from 1. */
  scrapeNumber: number;
  failuresInRow: number;
  lastFailure: ScrapeFailure | null;
  missing: Family[];
  /** Mean time to first token over the last interval in which any request began, and how many began. */
  ttftMs: number;
  ttftRequests: number;
  /** The engine's own counters in tokens, as last read. */
  prefixQueries: number | null;
  prefixHits: number | null;
  /** Adapters of requests that run or wait there, by the hash of their names. */
  adapterHashes: number[];
}

export interface ScrapeEvents {
  /** After every good scrape, with the text's own numbers. */
  scraped(endpoint: string, metrics: EngineMetrics): void;
  result(endpoint: string, outcome: 'ok' | ScrapeFailure, seconds: number): void;
  missing(family: Family, endpoint: string): void;
}

interface Target {
  endpoint: string;
  state: EngineState;
  ttftCount: number | null;
  ttftSecondsSum: number | null;
  timer: NodeJS.Timeout | undefined;
  dueMs: number;
  isBusy: boolean;
  /** It is not wanted any more; another of the same endpoint may be. */
  isGone: boolean;
}

function emptyState(): EngineState {
  return {
    running: null,
    waiting: null,
    kvUsage: null,
    scrapedMs: 0,
    scrapeNumber: 0,
    failuresInRow: 0,
    lastFailure: null,
    missing: [],
    ttftMs: 0,
    ttftRequests: 0,
    prefixQueries: null,
    prefixHits: null,
    adapterHashes: [],
  };
}

/** At most so many at once; the rest waits in order. Shared by the pools. */
export class Gate {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(size: number) {
    this.#free = size;
  }

  async enter(): Promise<void> {
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free++;
    else next();
  }
}

export class Scraper {
  #intervalMs: number;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #gate: Gate;
  readonly #events: ScrapeEvents;
  readonly #pages = new Pages();
  readonly #targets = new Map<string, Target>();
  #isClosed = false;
  #scrapes = 0;
  #adaptersScrape = 0;
  /** The targets of the last scrapes, newest last. */
  #order: Target[] = [];

  constructor(intervalMs: number, timeoutMs: number, clock: Clock, log: Log, gate: Gate, events: ScrapeEvents) {
    this.#intervalMs = intervalMs;
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
    this.#log = log;
    this.#gate = gate;
    this.#events = events;
  }

  /** Sets how often each is scraped. All of them are due within one new interval, spread over it. */
  setInterval(intervalMs: number): void {
    if (intervalMs === this.#intervalMs) return;
    this.#intervalMs = intervalMs;
    const targets = [...this.#targets.values()];
    targets.forEach((target, index) => {
      clearTimeout(target.timer);
      target.dueMs = this.#clock.nowMs() + (index * intervalMs) / targets.length;
      this.#schedule(target);
    });
  }

  /** Sets whom to scrape. Known endpoints keep their rhythm and state; new ones are spread over the interval. */
  set(endpoints: string[]): void {
    const wanted = new Set(endpoints);
    for (const [endpoint, target] of this.#targets) {
      if (wanted.has(endpoint)) continue;
      clearTimeout(target.timer);
      target.isGone = true;
      this.#targets.delete(endpoint);
    }
    this.#pages.keep(wanted);
    const fresh = endpoints.filter((endpoint) => !this.#targets.has(endpoint));
    fresh.forEach((endpoint, index) => {
      const target: Target = {
        endpoint,
        state: emptyState(),
        ttftCount: null,
        ttftSecondsSum: null,
        timer: undefined,
        dueMs: this.#clock.nowMs() + (index * this.#intervalMs) / fresh.length,
        isBusy: false,
        isGone: false,
      };
      this.#targets.set(endpoint, target);
      this.#schedule(target);
    });
  }

  /** Scrapes all of them now, not spread: for the start, when nothing is known yet. */
  async scrapeAll(): Promise<void> {
    await Promise.all([...this.#targets.values()].map((target) => this.#scrape(target)));
  }

  state(endpoint: string): EngineState | undefined {
    return this.#targets.get(endpoint)?.state;
  }

  /** Endpoints that were scraped well after a scrape of that number, each once, as far back as every endpoint's last scrape. */
  eachAfter(scrapeNumber: number, take: (endpoint: string, state: EngineState) => void): void {
    const from = Math.max(0, this.#order.length - (this.#scrapes - scrapeNumber));
    for (let i = from; i < this.#order.length; i++) {
      const target = this.#order[i] as Target;
      const isLast = target.state.scrapeNumber === this.#scrapes - this.#order.length + i + 1;
      if (isLast && !target.isGone) take(target.endpoint, target.state);
    }
  }

  /** Good scrapes so far, of all endpoints. */
  get scrapes(): number {
    return this.#scrapes;
  }

  /** The number of the last good scrape of an engine with adapters in use, 0 = there was none. */
  get adaptersScrape(): number {
    return this.#adaptersScrape;
  }

  /** Age of what is known at a time. */
  ageMs({ scrapedMs }: EngineState, nowMs: number): number {
    return scrapedMs === 0 ? WIRE_NUMBER_MAX : Math.min(Math.max(0, Math.round(nowMs - scrapedMs)), WIRE_NUMBER_MAX);
  }

  /** Whether what is so old is too old to be relied upon. */
  isStale(ageMs: number): boolean {
    return ageMs > this.#intervalMs * LIMITS.scrapeStaleIntervals + this.#timeoutMs;
  }

  /** What is made of a page of an engine, over a connection that scrapes use. Fails with FetchError. */
  async page<T>(endpoint: string, path: string, read: (page: Buffer) => T): Promise<T> {
    return this.#pages.get(endpoint, path, this.#timeoutMs, read);
  }

  #schedule(target: Target): void {
    if (this.#isClosed) return;
    const soonestMs = this.#clock.nowMs();
    // A turn further away than the interval was set before the clock was set back.
    target.dueMs = Math.min(target.dueMs, soonestMs + this.#intervalMs);
    const delayMs = Math.max(0, target.dueMs - soonestMs);
    target.timer = setTimeout(() => {
      const nowMs = this.#clock.nowMs();
      // The rhythm is kept: the next turn is counted from the last due time, and turns that were missed are left out.
      const missed = Math.max(0, Math.floor((nowMs - target.dueMs) / this.#intervalMs));
      target.dueMs += this.#intervalMs * (1 + missed);
      this.#schedule(target);
      void this.#scrape(target);
    }, delayMs);
    target.timer.unref();
  }

  async #scrape(target: Target): Promise<void> {
    if (target.isBusy) return;
    target.isBusy = true;
    await this.#gate.enter();
    const startedMs = performance.now();
    let outcome: 'ok' | ScrapeFailure = 'ok';
    try {
      // It may have gone while it waited for its turn.
      const metrics = this.#isClosed || target.isGone ? null : await this.#fetch(target.endpoint);
      if (metrics === null) outcome = 'no-metrics';
      else this.#take(target, metrics);
    } catch (error) {
      outcome = error instanceof FetchError ? error.reason : 'connect';
    } finally {
      this.#gate.leave();
      target.isBusy = false;
    }
    if (this.#isClosed || target.isGone) return;
    if (outcome !== 'ok') this.#fail(target, outcome);
    this.#events.result(target.endpoint, outcome, (performance.now() - startedMs) / 1000);
  }

  async #fetch(endpoint: string): Promise<EngineMetrics | null> {
    const metrics = await this.page(endpoint, '/metrics', readMetrics);
    if (metrics.running === null && metrics.waiting === null && metrics.kvUsage === null) {
      return null;
    }
    return metrics;
  }

  #take(target: Target, metrics: EngineMetrics): void {
    if (target.isGone) return;
    const { state } = target;
    if (state.failuresInRow > 0) {
      this.#log.info('scrape works again', { endpoint: target.endpoint, failures: state.failuresInRow });
    }
    for (const family of metrics.missing) {
      this.#events.missing(family, target.endpoint);
      if (!state.missing.includes(family)) {
        this.#log.warn('metric family is missing', { endpoint: target.endpoint, family });
      }
    }
    state.missing = metrics.missing;
    state.running = metrics.running === null ? null : whole(metrics.running);
    state.waiting = metrics.waiting === null ? null : whole(metrics.waiting);
    state.kvUsage = metrics.kvUsage === null ? null : Math.min(metrics.kvUsage, 1);
    state.prefixQueries = metrics.prefixQueries;
    state.prefixHits = metrics.prefixHits;
    state.adapterHashes = metrics.adapters.slice(0, LIMITS.adaptersPerPod).map(adapterHash);
    state.scrapedMs = this.#clock.nowMs();
    state.scrapeNumber = ++this.#scrapes;
    if (state.adapterHashes.length > 0) this.#adaptersScrape = this.#scrapes;
    this.#order.push(target);
    if (this.#order.length > 8 * LIMITS.pods) this.#order = this.#order.slice(-4 * LIMITS.pods);
    state.failuresInRow = 0;
    state.lastFailure = null;
    learnTtft(target, metrics);
    this.#events.scraped(target.endpoint, metrics);
  }

  #fail(target: Target, reason: ScrapeFailure): void {
    target.state.failuresInRow++;
    target.state.lastFailure = reason;
    if (target.state.failuresInRow === 1) {
      this.#log.warn('scrape failed', { endpoint: target.endpoint, reason });
    }
  }

  close(): void {
    this.#isClosed = true;
    for (const target of this.#targets.values()) clearTimeout(target.timer);
    this.#pages.close();
  }
}

/** FNV-1a over a name, 32 bits, never 0: as the gateways' engine makes it (filter/engine/adapters.ts). */
export function adapterHash(name: string): number {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0 || 1;
}

/** The histogram's sum and count are totals: the mean of an interval is the quotient of their increases. */
function learnTtft(target: Target, metrics: EngineMetrics): void {
  const { ttftCount, ttftSecondsSum } = metrics;
  if (ttftCount === null || ttftSecondsSum === null) return;
  const count = ttftCount - (target.ttftCount ?? ttftCount);
  const seconds = ttftSecondsSum - (target.ttftSecondsSum ?? ttftSecondsSum);
  target.ttftCount = ttftCount;
  target.ttftSecondsSum = ttftSecondsSum;
  if (count <= 0 || seconds < 0) return;
  target.state.ttftMs = Math.min((seconds / count) * 1000, WIRE_NUMBER_MAX);
  target.state.ttftRequests = whole(count);
}
