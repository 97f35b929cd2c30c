// Listens to the cache events of one pool's engines, where the pool's settings ask for them: finds out where each publishes, subscribes, and passes
// on what its feeds say. An engine that does not publish is asked again, more and more seldom, and told of once.
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent } from 'undici';
import type { Address } from '../address.ts';
import type { Clock } from '../clock.ts';
import { LIMITS } from '../limits.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import { Gate } from '../scrape.ts';
import { KvFeed } from './feed.ts';
import { findSources, showKvEvents } from './sources.ts';
import type { KvEventsSetting, KvSource } from './sources.ts';

export interface ListenerEvents {
  /** The endpoint's engine dropped its cache and goes on. */
  cleared(endpoint: string, timeMs: number): void;
  /** Tokens that the endpoint's engine held when it had to evict; not all of them are counted unless `isWhole`. */
  held(endpoint: string, tokens: number, isWhole: boolean): void;
}

/** What /v1/state shows of an endpoint's events. */
export interface ListenerState {
  listening: boolean;
  batches: number;
  sequence: number;
  heldTokens: number;
  whole: boolean;
}

interface Target {
  address: Address;
  stop: AbortController;
  feeds: KvFeed[];
  told: Set<string>;
}

const replays = new Gate(LIMITS.kvReplayConcurrency);

export class KvListener {
  readonly #pool: string;
  readonly #events: ListenerEvents;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #agent: Agent;
  readonly #targets = new Map<string, Target>();
  #setting: KvEventsSetting = { mode: 'off' };
  #addresses: Address[] = [];

  constructor(pool: string, clock: Clock, log: Log, metrics: Metrics, timeoutMs: number, events: ListenerEvents) {
    this.#pool = pool;
    this.#events = events;
    this.#clock = clock;
    this.#log = log;
    this.#metrics = metrics;
    this.#agent = new Agent({ connections: 1, headersTimeout: timeoutMs, bodyTimeout: timeoutMs });
  }

  configure(setting: KvEventsSetting): void {
    if (showKvEvents(setting) === showKvEvents(this.#setting)) return;
    this.#setting = setting;
    for (const endpoint of this.#targets.keys()) this.#end(endpoint);
    this.set(this.#addresses);
  }

  /** Sets whom to listen to. */
  set(addresses: Address[]): void {
    this.#addresses = addresses;
    const wanted = new Set(addresses.map((address) => address.text));
    for (const endpoint of this.#targets.keys()) if (!wanted.has(endpoint)) this.#end(endpoint);
    if (this.#setting.mode === 'off') return;
    for (const address of addresses) if (!this.#targets.has(address.text)) this.#begin(address);
  }

  /** An engine started anew: it may publish elsewhere, and its numbers begin again. */
  restarted(endpoint: string): void {
    const address = this.#targets.get(endpoint)?.address;
    if (address === undefined) return;
    this.#end(endpoint);
    this.#begin(address);
  }

  state(endpoint: string): ListenerState | null {
    const target = this.#targets.get(endpoint);
    if (target === undefined) return null;
    const { feeds } = target;
    const sum = (of: (feed: KvFeed) => number): number => feeds.reduce((total, feed) => total + of(feed), 0);
    return {
      listening: feeds.length > 0,
      batches: sum((feed) => feed.batches),
      sequence: feeds[0]?.sequence ?? -1,
      heldTokens: Math.round(sum((feed) => feed.peakTokens)),
      whole: feeds.length > 0 && feeds.every((feed) => feed.isWhole),
    };
  }

  get listening(): number {
    return [...this.#targets.values()].filter((target) => target.feeds.length > 0).length;
  }

  async close(): Promise<void> {
    for (const endpoint of this.#targets.keys()) this.#end(endpoint);
    this.#addresses = [];
    await this.#agent.destroy();
  }

  #end(endpoint: string): void {
    this.#targets.get(endpoint)?.stop.abort();
    this.#targets.delete(endpoint);
  }

  #begin(address: Address): void {
    const target: Target = { address, stop: new AbortController(), feeds: [], told: new Set() };
    this.#targets.set(address.text, target);
    void this.#run(target);
  }

  /** Goes on until it is stopped, whatever happens: what fails is told of and tried again. */
  async #run(target: Target): Promise<void> {
    const { signal } = target.stop;
    for (
      let waitMs: number = LIMITS.kvRetryMsMin;
      !signal.aborted;
      waitMs = Math.min(waitMs * 2, LIMITS.kvRetryMsMax)
    ) {
      try {
        const sources = await findSources(this.#setting, target.address, this.#agent, signal);
        await this.#follow(target, sources);
      } catch (error) {
        if (signal.aborted) return;
        this.#warn(target, 'no cache events', error instanceof Error ? error.message : String(error));
      } finally {
        target.feeds = [];
      }
      await sleep(waitMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  async #follow(target: Target, sources: KvSource[]): Promise<void> {
    const { signal } = target.stop;
    const { subscribe } = await import('./sockets.ts');
    target.feeds = sources.map((source) => this.#feed(target, source));
    await Promise.all(
      sources.map(async ({ endpoint }, index) => {
        for await (const frames of subscribe(endpoint, signal)) await target.feeds[index]?.take(frames);
      }),
    );
  }

  #feed(target: Target, source: KvSource): KvFeed {
    const pool = this.#pool;
    const endpoint = target.address.text;
    const { signal } = target.stop;
    return new KvFeed({
      nowMs: () => this.#clock.nowMs(),
      replay: async (from) => {
        if (source.replayEndpoint === null) return [];
        const { replay } = await import('./sockets.ts');
        await replays.enter();
        try {
          return await replay(source.replayEndpoint, from, signal);
        } finally {
          replays.leave();
        }
      },
      cleared: (timeMs) => {
        if (!signal.aborted) this.#events.cleared(endpoint, timeMs);
      },
      held: () => {
        const { feeds } = target;
        if (signal.aborted || feeds.some((feed) => feed.peakTokens === 0)) return;
        const tokens = feeds.reduce((total, feed) => total + feed.peakTokens, 0);
        this.#events.held(
          endpoint,
          Math.round(tokens),
          feeds.every((feed) => feed.isWhole),
        );
      },
      refused: (reason, what) => {
        this.#metrics.kvRefused.inc({ pool, reason });
        this.#warn(target, `cache events refused: ${reason}`, what);
      },
      gap: (result, messages) => {
        this.#metrics.kvGaps.inc({ pool, result });
        if (result === 'lost') this.#warn(target, 'cache events lost', `${messages} messages cannot be had again`);
      },
    });
  }

  /** Once for each endpoint and kind of message. */
  #warn(target: Target, message: string, reason: string): void {
    if (target.told.has(message)) return;
    target.told.add(message);
    this.#log.warn(message, { pool: this.#pool, endpoint: target.address.text, reason });
  }
}
