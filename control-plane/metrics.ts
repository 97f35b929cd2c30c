// What the control plane tells Prometheus about itself, in a registry of its own. Labels come from configuration or from
// fixed lists only; nothing that a client or a gateway chooses becomes a label.
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { Breaks } from './breaks.ts';
import type { OutcomeRecord } from './engine/outcomes.ts';

const PREFIX = 'warmpath_';
/** A kind of request: an API and a language out of short lists (engine/outcomes.ts). */
const KIND = ['pool', 'api', 'language'] as const;

/**
 * One series that is counted many times a second: a plain number, which the registry gets when it is read. To count in the registry itself costs a
 * text of all labels each time.
 */
export class Series {
  #value = 0;

  add(value: number): void {
    this.#value += value;
  }

  /** What was counted since this was asked last. */
  take(): number {
    const value = this.#value;
    this.#value = 0;
    return value;
  }
}

/** What is counted of one pool with each sync and each scrape. */
export class PoolCounts {
  readonly deltas: Series;
  readonly snapshots: Series;
  readonly touches: Series;
  readonly scrapesOk: Series;
  readonly #ok: Series;
  readonly #clientErrors: Series;
  readonly #serverErrors: Series;
  readonly #resets: Series;
  readonly #elsewhere: Series;
  readonly #completionTokens: Series;
  readonly #ttftSeconds: Series;
  readonly #ttftCount: Series;

  constructor(metrics: Metrics, pool: string) {
    const outcome = (name: string): Series => metrics.series(metrics.requests, { pool, outcome: name });
    this.deltas = metrics.series(metrics.syncs, { pool, answer: 'delta' });
    this.snapshots = metrics.series(metrics.syncs, { pool, answer: 'snapshot' });
    this.touches = metrics.series(metrics.touches, { pool });
    this.scrapesOk = metrics.series(metrics.scrapes, { pool, outcome: 'ok' });
    this.#ok = outcome('ok');
    this.#clientErrors = outcome('client-error');
    this.#serverErrors = outcome('server-error');
    this.#resets = outcome('reset');
    this.#elsewhere = outcome('elsewhere');
    this.#completionTokens = metrics.series(metrics.completionTokens, { pool });
    this.#ttftSeconds = metrics.series(metrics.ttftSeconds, { pool });
    this.#ttftCount = metrics.series(metrics.ttftCount, { pool });
  }

  takeOutcome(rise: OutcomeRecord): void {
    this.#ok.add(rise.ok);
    this.#clientErrors.add(rise.clientErrors);
    this.#serverErrors.add(rise.serverErrors);
    this.#resets.add(rise.resets);
    this.#elsewhere.add(rise.elsewhere);
    this.#completionTokens.add(rise.completionTokens);
    this.#ttftSeconds.add(rise.ttftMsSum / 1000);
    this.#ttftCount.add(rise.ttftCount);
  }
}

export class Metrics {
  readonly registry = new Registry();
  /** What each counter takes from its series before it is read. */
  readonly #taken = new Map<object, (() => void)[]>();

  readonly scrapes = this.#counter('scrapes_total', 'Scrapes of engines by outcome', ['pool', 'outcome']);
  readonly scrapeSeconds = new Histogram({
    name: `${PREFIX}scrape_duration_seconds`,
    help: 'Duration of a scrape, waiting for its turn included',
    labelNames: ['pool'] as const,
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
    registers: [this.registry],
  });
  readonly missingFamilies = this.#counter(
    'scrape_missing_family_total',
    'Scrapes in which a metric family was absent or not a number',
    ['pool', 'family'],
  );
  readonly modelLists = this.#counter('model_lists_total', 'Engines asked for the names of their models, by outcome', [
    'pool',
    'outcome',
  ]);
  readonly syncs = this.#counter('sync_requests_total', 'Reports taken in, by what they were answered with', [
    'pool',
    'answer',
  ]);
  readonly syncRefused = this.#counter('sync_refused_total', 'Sync requests refused, by error code', ['code']);
  readonly syncSeconds = new Histogram({
    name: `${PREFIX}sync_duration_seconds`,
    help: 'Time to take in a report and to make its answer',
    buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25],
    registers: [this.registry],
  });
  readonly syncBytes = this.#counter('sync_bytes_total', 'Bytes of reports and answers', ['direction']);
  readonly syncBytesIn = this.series(this.syncBytes, { direction: 'in' });
  readonly syncBytesOut = this.series(this.syncBytes, { direction: 'out' });
  readonly eventLoopDelay = this.#gauge(
    'event_loop_delay_seconds',
    'How late the process got to what was due, 99 % of the time since this was asked last: what a sync waits beside its own duration',
    [],
  );
  readonly touches = this.#counter('touches_total', 'Touch records taken in from gateways', ['pool']);
  readonly touchesSkipped = this.#counter('touches_skipped_total', 'Touch records of pods that are not known', [
    'pool',
  ]);
  readonly gatewaysDoubled = this.#counter(
    'gateway_name_conflicts_total',
    'Names that two gateways report under; each must have its own',
    ['pool'],
  );
  readonly endpointsRefused = this.#counter('endpoints_file_refused_total', 'Versions of an endpoints file refused', [
    'pool',
  ]);
  readonly restarts = this.#counter('pod_restarts_total', 'Engines that were seen to have started anew', ['pool']);

  readonly watchFailures = this.#counter('kube_watch_failures_total', 'Lists and watches of Kubernetes that failed', [
    'resource',
    'reason',
  ]);
  readonly annotationFaults = this.#gauge('annotation_faults', 'Annotations that are not in force, by what is wrong', [
    'pool',
    'fault',
  ]);
  readonly active = this.#gauge('active', '1 when this replica answers gateways, 0 when it stands by', []);

  readonly kvRefused = this.#counter('kv_events_refused_total', 'Messages of cache events refused, by what is wrong', [
    'pool',
    'reason',
  ]);
  readonly kvGaps = this.#counter('kv_events_gaps_total', 'Gaps in cache events, by whether they came again', [
    'pool',
    'result',
  ]);
  readonly kvListening = this.#gauge('kv_events_engines', 'Engines whose cache events are listened to', ['pool']);
  readonly cleared = this.#counter('pod_clears_total', 'Pods whose engine dropped its cache and went on', ['pool']);

  readonly pods = this.#gauge('pods', 'Endpoints of a pool', ['pool']);
  readonly podsStale = this.#gauge('pods_stale', 'Endpoints whose metrics are stale', ['pool']);
  readonly gateways = this.#gauge('gateways', 'Gateways that reported lately', ['pool']);
  readonly settingsVersion = this.#gauge('settings_version', 'Version of the settings in force', ['pool']);
  readonly touchSequence = this.#gauge('touch_sequence', 'Sequence of the newest touches', ['pool']);
  readonly touchLogBytes = this.#gauge('touch_log_bytes', 'Bytes of touches kept for gateways that lag', ['pool']);
  readonly tableBlocks = this.#gauge('table_blocks', 'Blocks that a pod is held to have', ['pool', 'endpoint']);
  readonly tableBytes = this.#gauge('table_bytes', 'Prompt bytes that a pod is held to have', ['pool', 'endpoint']);
  readonly startTime = this.#gauge('start_time_seconds', 'When this control plane started', []);

  readonly requests = this.#counter('requests_total', 'Requests that gateways saw end, by how', ['pool', 'outcome']);
  readonly ttftSeconds = this.#counter('ttft_seconds_sum', 'Sum of times to first token at the gateways', ['pool']);
  readonly ttftCount = this.#counter('ttft_seconds_count', 'Number of times to first token at the gateways', ['pool']);

  readonly kindRequests = this.#counter('usage_requests_total', 'Requests with usage in their answer', KIND);
  readonly completionTokens = this.#counter('usage_completion_tokens_total', 'Completion tokens of these', ['pool']);
  readonly kindPromptBytes = this.#counter('usage_prompt_bytes_total', 'Prompt bytes of these', KIND);
  readonly kindPromptTokens = this.#counter(
    'usage_prompt_tokens_total',
    'Prompt tokens of these, as estimated from their bytes and as usage says',
    [...KIND, 'kind'],
  );
  readonly kindCachedTokens = this.#counter(
    'usage_cached_tokens_total',
    'Cached prompt tokens of these, as predicted when they were sent and as usage says',
    [...KIND, 'kind'],
  );
  readonly kindClose = this.#counter(
    'predictions_close_total',
    'Requests whose cached tokens were predicted to within a block and 3 % of the match',
    KIND,
  );
  /** A histogram's buckets; its sum would be the difference of two counters above. */
  readonly cachedTokensError = this.#counter(
    'cached_tokens_error_bucket',
    'Requests whose cached tokens were predicted by at most so many too many; below zero, by at least so many too few',
    [...KIND, 'le'],
  );
  readonly podCachedTokens = this.#counter(
    'pod_cached_tokens_total',
    'Cached prompt tokens of requests to an endpoint, as predicted and as usage says',
    ['pool', 'endpoint', 'kind'],
  );
  readonly podMatches = this.#counter(
    'pod_matches_total',
    'Predicted matches of an endpoint, by whether usage confirmed them, contradicted them or exceeded them',
    ['pool', 'endpoint', 'result'],
  );
  readonly podCapacityTokens = this.#gauge(
    'pod_capacity_tokens',
    'Capacity of an endpoint: what its table is made for, and what matches say of it, 0 = nothing yet',
    ['pool', 'endpoint', 'kind'],
  );
  readonly bytesPerToken = this.#gauge('bytes_per_token', 'Prompt bytes per token, 0 = not known yet', ['pool']);

  /**
   * All of it as text, in pieces: with a thousand endpoints the whole takes longer than a sync may wait.
   */
  async text(): Promise<string> {
    const texts: string[] = [];
    const breaks = new Breaks();
    for (const { name } of this.registry.getMetricsAsArray()) {
      texts.push(await this.registry.getSingleMetricAsString(name));
      await breaks.between();
    }
    return `${texts.join('\n\n')}\n`;
  }

  /** A counter's series with these labels, for those that are counted often. It begins at 0 when it is first read. */
  series<L extends string>(counter: Counter<L>, labels: Record<L, string>): Series {
    const series = new Series();
    this.#taken.get(counter)?.push(() => counter.inc(labels, series.take()));
    return series;
  }

  #counter<L extends string>(name: string, help: string, labelNames: readonly L[]): Counter<L> {
    const taken: (() => void)[] = [];
    const collect = (): void => taken.forEach((take) => take());
    const counter = new Counter({ name: PREFIX + name, help, labelNames, registers: [this.registry], collect });
    this.#taken.set(counter, taken);
    return counter;
  }

  #gauge<L extends string>(name: string, help: string, labelNames: readonly L[]): Gauge<L> {
    return new Gauge({ name: PREFIX + name, help, labelNames, registers: [this.registry] });
  }
}
