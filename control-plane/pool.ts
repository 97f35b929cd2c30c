// One pool: its settings, endpoints, scraped metrics, table of touches and gateways, held together. Everything a gateway is
// told about a pool is made here; sync.ts only carries it.
import type { PoolSettings } from './annotations.ts';
import { Breaks } from './breaks.ts';
import { CAPACITY_TOKENS_UNKNOWN, LearnedCapacity } from './capacity.ts';
import type { Clock } from './clock.ts';
import type { EndpointConfig, PoolConfig } from './config.ts';
import { loadRecords, noLoadRows, policyKeyOf, POLICY_CODES } from './engine/frames.ts';
import type {
  AdapterRecord,
  EndpointRecord,
  MetricsRecord,
  PolicyName,
  PoolRecord,
  PutMetrics,
} from './engine/frames.ts';
import type { OutcomeRecord } from './engine/outcomes.ts';
import { Gateways } from './gateways.ts';
import { KvListener } from './kv-events/listener.ts';
import { readKvEvents } from './kv-events/sources.ts';
import { Learned } from './learned.ts';
import { LIMITS } from './limits.ts';
import type { Log } from './log.ts';
import { PoolCounts } from './metrics.ts';
import type { Metrics } from './metrics.ts';
import type { EngineMetrics } from './metrics-text.ts';
import { ModelNames } from './models.ts';
import { Pods } from './pods.ts';
import type { Pod, PodChange } from './pods.ts';
import { Scraper } from './scrape.ts';
import type { EngineState, Gate } from './scrape.ts';
import type { PoolTable } from './table.ts';
import { TouchLog } from './touch-log.ts';

/** What may be set together with a policy. */
export type PolicyOptions = Partial<Pick<PoolSettings, 'weights' | 'sessionKey' | 'prefixHeader'>>;

export interface PoolParts {
  hash: bigint;
  secret: Uint8Array;
  table: PoolTable;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  gate: Gate;
  scrapeTimeoutMs: number;
}

const BYTES_PER_TOKEN_UNKNOWN = 4;

export class Pool {
  readonly name: string;
  readonly hash: bigint;
  readonly secret: Uint8Array;
  readonly pods: Pods;
  readonly gateways: Gateways;
  readonly log: TouchLog;
  readonly table: PoolTable;
  readonly scraper: Scraper;
  readonly learned: Learned;
  readonly kvEvents: KvListener;
  readonly models: ModelNames;
  readonly counts: PoolCounts;
  readonly #parts: PoolParts;
  #settings: PoolSettings;
  #configVersion = 0;
  /** Endpoints by pod id, as of a version of the pods. */
  #names = new Map<number, string>();
  #namesVersion = 0;
  /** Each engine's count of tokens looked up in its cache, as last read. */
  readonly #queries = new Map<string, number>();
  /** What answers say of each engine's capacity, used only where the engine tells none. */
  readonly #capacities = new Map<string, LearnedCapacity>();

  constructor(config: PoolConfig, parts: PoolParts) {
    this.name = config.name;
    this.hash = parts.hash;
    this.secret = parts.secret;
    this.#settings = config;
    this.pods = new Pods(config.capacityTokens);
    this.gateways = new Gateways(parts.clock.nowMs());
    this.log = new TouchLog(LIMITS.touchLogBytes);
    this.table = parts.table;
    this.counts = new PoolCounts(parts.metrics, config.name);
    this.learned = new Learned(config.name, parts.metrics);
    this.#parts = parts;
    const { clock, log, metrics, gate, scrapeTimeoutMs } = parts;
    const pool = config.name;
    this.scraper = new Scraper(config.scrapeIntervalMs, scrapeTimeoutMs, clock, log, gate, {
      scraped: (endpoint, m) => {
        this.#apply(this.pods.learn(endpoint, m.startedSeconds, m.cacheConfig), endpoint);
        this.#watchCounters(endpoint, m);
        this.models.look(endpoint, m.startedSeconds);
      },
      result: (_endpoint, outcome, seconds) => {
        if (outcome === 'ok') this.counts.scrapesOk.add(1);
        else metrics.scrapes.inc({ pool, outcome });
        metrics.scrapeSeconds.observe({ pool }, seconds);
      },
      missing: (family) => metrics.missingFamilies.inc({ pool, family }),
    });
    this.models = new ModelNames(pool, log, {
      fetch: (endpoint, path) => this.scraper.page(endpoint, path, String),
      changed: () => this.#configVersion++,
      asked: (outcome) => metrics.modelLists.inc({ pool, outcome }),
    });
    this.kvEvents = new KvListener(pool, clock, log, metrics, scrapeTimeoutMs, {
      cleared: (endpoint, timeMs) => {
        const pod = this.pods.byEndpoint(endpoint);
        if (pod === undefined || !this.tableClear(pod.id, timeMs)) return;
        log.info('engine dropped its cache', { pool, endpoint });
      },
      held: (endpoint, tokens, isWhole) => {
        const pod = this.pods.byEndpoint(endpoint);
        if (pod === undefined || !this.pods.holdCapacity(pod, tokens, isWhole)) return;
        this.table.podSet(pod.id, this.#capacityBytes(tokens));
      },
    });
    this.kvEvents.configure(readKvEvents(config.kvEvents) ?? { mode: 'off' });
  }

  /** Counts every change of settings, endpoints or capacities; a gateway that holds this version needs none of them. */
  get settingsVersion(): number {
    return this.pods.version + this.#configVersion;
  }

  get policy(): PolicyName {
    return this.#settings.policy;
  }

  setPolicy(policy: PolicyName, options: PolicyOptions): void {
    this.configure({ ...this.#settings, ...options, policy });
  }

  /** Sets what may change while the control plane runs; gateways have it with their next sync. */
  configure(settings: PoolSettings): void {
    const before = this.#settings;
    const keys = (Object.keys(settings) as (keyof PoolSettings)[]).filter(
      (key) => JSON.stringify(settings[key]) !== JSON.stringify(before[key]),
    );
    if (keys.length === 0) return;
    this.#settings = { ...before, ...settings };
    this.#configVersion++;
    this.scraper.setInterval(settings.scrapeIntervalMs);
    this.pods.setCapacity(settings.capacityTokens);
    this.kvEvents.configure(readKvEvents(settings.kvEvents) ?? { mode: 'off' });
    this.#apply({ removed: [], added: [], isRestart: false });
    const shown = keys.map((key) => [key, JSON.stringify(settings[key])]);
    this.#parts.log.info('settings changed', { pool: this.name, ...Object.fromEntries(shown) });
  }

  setEndpoints(endpoints: EndpointConfig[]): void {
    const change = this.pods.set(endpoints);
    this.#apply(change);
    this.scraper.set(endpoints.map((endpoint) => endpoint.address.text));
    this.kvEvents.set(endpoints.map((endpoint) => endpoint.address));
    this.models.set(endpoints.map((endpoint) => endpoint.address.text));
    for (const kept of [this.#queries, this.#capacities]) {
      for (const text of kept.keys()) if (this.pods.byEndpoint(text) === undefined) kept.delete(text);
    }
    const [added, removed] = [change.added.length, change.removed.length];
    this.#parts.log.info('endpoints set', { pool: this.name, endpoints: endpoints.length, added, removed });
  }

  async close(): Promise<void> {
    this.scraper.close();
    await this.kvEvents.close();
  }

  /** Takes over the pod ids that a gateway knows from an earlier control plane. */
  adopt(known: EndpointRecord[]): void {
    this.#apply(this.pods.adopt(known));
  }

  /**
   * A pod's engine has dropped its cache and goes on (AllBlocksCleared, a restart that only shows in its counters): what it held before that
   * time is forgotten here, and by each gateway with its next sync. False when there is no such pod.
   */
  tableClear(podId: number, timeMs = this.#parts.clock.nowMs()): boolean {
    const chunk = this.table.clear(podId, timeMs);
    if (chunk === null) return false;
    this.log.append('', chunk);
    this.#parts.metrics.cleared.inc({ pool: this.name });
    return true;
  }

  // An engine that does not tell when it started shows a restart by counters that begin again.
  #watchCounters(endpoint: string, { startedSeconds, prefixQueries }: EngineMetrics): void {
    const pod = this.pods.byEndpoint(endpoint);
    const before = this.#queries.get(endpoint);
    if (prefixQueries === null) this.#queries.delete(endpoint);
    else this.#queries.set(endpoint, prefixQueries);
    const hasRestarted = startedSeconds === null && before !== undefined && (prefixQueries ?? before) < before;
    if (!hasRestarted || pod === undefined || !this.tableClear(pod.id)) return;
    this.#parts.metrics.restarts.inc({ pool: this.name });
    this.models.restarted(endpoint);
    this.#parts.log.info('engine counts from the beginning again', { pool: this.name, endpoint });
  }

  // Brings the table into line with the pods. Capacities follow the learned ratio of bytes to tokens, so the pod that was
  // just scraped is looked at even when nothing changed.
  #apply(change: PodChange, scraped?: string): void {
    for (const id of change.removed) this.table.podRemove(id);
    const isSet = change.added.length + change.removed.length > 0;
    const changed = isSet || scraped === undefined ? this.pods.list() : [this.pods.byEndpoint(scraped)];
    for (const pod of changed) {
      if (pod === undefined) continue;
      const capacityBytes = this.#capacityBytes(this.pods.capacityTokensOf(pod));
      if (this.table.podSet(pod.id, capacityBytes) || !change.added.includes(pod.id)) continue;
      this.#parts.log.warn('no room in the table', { pool: this.name, endpoint: pod.address.text });
    }
    if (!change.isRestart) return;
    if (scraped !== undefined) this.kvEvents.restarted(scraped);
    this.#parts.metrics.restarts.inc({ pool: this.name });
    this.#parts.log.info('engine has another start time', { pool: this.name, endpoint: scraped ?? '' });
  }

  #capacityBytes(tokens: number): number {
    return Math.round((tokens || CAPACITY_TOKENS_UNKNOWN) * (this.bytesPerToken || BYTES_PER_TOKEN_UNKNOWN));
  }

  /** Prompt bytes per token: as learned from what gateways report, until then as configured, 0 = not known yet. */
  get bytesPerToken(): number {
    return this.learned.ratio.learned || this.#settings.bytesPerToken;
  }

  /** Takes in what a gateway has counted of its pods since it was heard of last. */
  takeOutcomes(rises: OutcomeRecord[]): void {
    if (this.#namesVersion !== this.pods.version) {
      this.#names = new Map(this.pods.list().map((pod) => [pod.id, pod.address.text]));
      this.#namesVersion = this.pods.version;
    }
    for (const rise of rises) {
      const endpoint = this.#names.get(rise.podId);
      this.learned.takePod(endpoint, rise);
      if (endpoint !== undefined) this.#learnCapacity(endpoint, rise);
    }
    if (this.learned.ratio.moved()) this.#configVersion++;
  }

  #learnCapacity(endpoint: string, rise: OutcomeRecord): void {
    const pod = this.pods.byEndpoint(endpoint);
    if (pod === undefined || rise.confirmed + rise.contradicted + rise.exceeded === 0) return;
    const tokens = this.pods.capacityTokensOf(pod) || CAPACITY_TOKENS_UNKNOWN;
    const capacity = this.#capacities.get(endpoint) ?? new LearnedCapacity(tokens);
    this.#capacities.set(endpoint, capacity);
    capacity.learn(rise, this.table.held(pod.id).bytes / this.#capacityBytes(tokens));
    if (!capacity.moved() || !this.pods.learnCapacity(pod, capacity.tokens)) return;
    this.table.podSet(pod.id, this.#capacityBytes(capacity.tokens));
  }

  settings(): PoolRecord {
    const { mode, toolsPosition, blockBytes, windowBytes, syncIntervalMs, weights } = this.#settings;
    const policy = POLICY_CODES[this.policy];
    const policyKey = policyKeyOf(this.policy, this.#settings.sessionKey, this.#settings.prefixHeader);
    const { bytesPerToken } = this;
    const record = { mode, policy, toolsPosition, blockBytes, windowBytes, syncIntervalMs, bytesPerToken, weights };
    return policyKey === undefined ? record : { ...record, policyKey };
  }

  /** What is known of all pods, also of those that were never scraped. */
  metricsRecords(nowMs: number): MetricsRecord[] {
    return this.pods.list().map((pod) => this.#metricsRecord(pod, nowMs));
  }

  /** What was scraped after a scrape of that number, told pod by pod. */
  putMetrics(scrapeNumber: number, nowMs: number, put: PutMetrics): void {
    this.scraper.eachAfter(scrapeNumber, (endpoint, state) => {
      const pod = this.pods.byEndpoint(endpoint);
      if (pod === undefined) return;
      const ageMs = this.scraper.ageMs(state, nowMs);
      put(pod.id, state, ageMs, this.scraper.isStale(ageMs));
    });
  }

  #metricsRecord(pod: Pod, nowMs: number): MetricsRecord {
    const state = this.scraper.state(pod.address.text);
    if (state === undefined) {
      const unknown = { running: null, waiting: null, kvUsage: null, ttftMs: 0, ttftRequests: 0 };
      return { podId: pod.id, ...unknown, ageMs: 0xffff_ffff, stale: true };
    }
    const { running, waiting, kvUsage, ttftMs, ttftRequests } = state;
    return { podId: pod.id, running, waiting, kvUsage, ttftMs, ttftRequests, ...this.#age(state, nowMs) };
  }

  /** The adapters in use on the pods that were scraped since a scrape of that number. */
  adapterRecords(scrapeNumber: number): AdapterRecord[] {
    const records: AdapterRecord[] = [];
    if (this.scraper.adaptersScrape <= scrapeNumber) return records;
    this.scraper.eachAfter(scrapeNumber, (endpoint, { adapterHashes }) => {
      if (adapterHashes.length === 0) return;
      const podId = this.pods.byEndpoint(endpoint)?.id;
      if (podId !== undefined) for (const hash of adapterHashes) records.push({ podId, hash });
    });
    return records;
  }

  /** Sets the gauges that are derived from state, when somebody asks for them, in pieces. */
  async collect(nowMs: number): Promise<void> {
    const { metrics } = this.#parts;
    const pool = this.name;
    const stale = this.metricsRecords(nowMs).filter((record) => record.stale).length;
    metrics.pods.set({ pool }, this.pods.list().length);
    metrics.podsStale.set({ pool }, stale);
    const live = this.gateways.list().filter((gateway) => this.gateways.isLive(gateway, nowMs));
    metrics.gateways.set({ pool }, live.length);
    metrics.settingsVersion.set({ pool }, this.settingsVersion);
    metrics.touchSequence.set({ pool }, Number(this.log.last));
    metrics.touchLogBytes.set({ pool }, this.log.bytes);
    metrics.kvListening.set({ pool }, this.kvEvents.listening);
    metrics.bytesPerToken.set({ pool }, this.bytesPerToken);
    const breaks = new Breaks();
    for (const pod of this.pods.list()) {
      await breaks.between();
      const held = this.table.held(pod.id);
      metrics.tableBlocks.set({ pool, endpoint: pod.address.text }, held.blocks);
      metrics.tableBytes.set({ pool, endpoint: pod.address.text }, held.bytes);
      this.#collectUsage(pod.address.text);
    }
  }

  #collectUsage(endpoint: string): void {
    const { podCachedTokens, podMatches } = this.#parts.metrics;
    const labels = { pool: this.name, endpoint };
    const totals = this.learned.endpoint(endpoint);
    const pod = this.pods.byEndpoint(endpoint);
    const { podCapacityTokens } = this.#parts.metrics;
    const used = pod === undefined ? 0 : this.pods.capacityTokensOf(pod);
    podCapacityTokens.set({ ...labels, kind: 'used' }, used || CAPACITY_TOKENS_UNKNOWN);
    podCapacityTokens.set({ ...labels, kind: 'learned' }, this.#capacities.get(endpoint)?.tokens ?? 0);
    podCachedTokens.inc({ ...labels, kind: 'predicted' }, totals.predictedCachedTokens);
    podCachedTokens.inc({ ...labels, kind: 'actual' }, totals.actualCachedTokens);
    for (const result of ['confirmed', 'contradicted', 'exceeded'] as const) {
      podMatches.inc({ ...labels, result }, totals[result]);
    }
  }

  #age(engine: EngineState, nowMs: number): { ageMs: number; stale: boolean } {
    const ageMs = this.scraper.ageMs(engine, nowMs);
    return { ageMs, stale: this.scraper.isStale(ageMs) };
  }

  /** What all gateways have in hand, by pod. */
  #loads(nowMs: number): Map<number, { inFlight: number; prefillTokens: number; usedTokens: number }> {
    const rows = noLoadRows();
    this.gateways.loadOfOthers(null, this.pods.ids(), nowMs, rows);
    return new Map(loadRecords(rows).map((record) => [record.podId, record]));
  }

  /** What /v1/state shows of the pool. The secret is not part of it. */
  state(nowMs: number): object {
    const loads = this.#loads(nowMs);
    return {
      name: this.name,
      hash: this.hash.toString(16).padStart(16, '0'),
      settingsVersion: this.settingsVersion,
      sequence: Number(this.log.last),
      settings: { ...this.settings(), policy: this.policy },
      modelNames: this.models.groups,
      endpoints: this.pods.list().map((pod) => {
        const engine = this.scraper.state(pod.address.text);
        const load = loads.get(pod.id);
        return {
          endpoint: pod.address.text,
          podId: pod.id,
          weight: pod.weight,
          drain: pod.drain,
          ready: pod.ready,
          capacityTokens: this.pods.capacityTokensOf(pod),
          learnedCapacityTokens: this.#capacities.get(pod.address.text)?.tokens ?? 0,
          startedSeconds: pod.startedSeconds,
          table: this.table.held(pod.id),
          usage: this.learned.endpoint(pod.address.text),
          kvEvents: this.kvEvents.state(pod.address.text),
          load: load === undefined ? { inFlight: 0, prefillTokens: 0, usedTokens: 0 } : load,
          metrics: engine === undefined ? null : { ...engine, ...this.#age(engine, nowMs) },
        };
      }),
      usage: this.learned.kinds(),
      gateways: this.gateways.list().map((gateway) => ({
        name: gateway.name,
        incarnation: gateway.incarnation.toString(16),
        workers: gateway.workers,
        live: this.gateways.isLive(gateway, nowMs),
        ageMs: nowMs - gateway.seenMs,
        reports: gateway.reports,
        settingsVersion: gateway.settingsVersion,
        touchesNext: Number(gateway.touchesNext),
        sequence: Number(gateway.sequence),
      })),
    };
  }
}
