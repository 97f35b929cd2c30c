// The replica's /metrics page, in vLLM's names, labels and order of text, so that whatever scrapes a real engine scrapes this one.

import type { ReplicaEngine, Sequence } from './engine.ts';

const TTFT_BOUNDS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
];
const TOKEN_BOUNDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80];
const REQUEST_BOUNDS = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680];

/** Python prints a float with a point, always. */
function float(value: number): string {
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

export class Histogram {
  readonly name: string;
  readonly help: string;
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;
  #count = 0;

  constructor(name: string, help: string, bounds: readonly number[]) {
    this.name = name;
    this.help = help;
    this.#bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  observe(value: number): void {
    this.#sum += value;
    this.#count += 1;
    for (let i = this.#bounds.length - 1; i >= 0 && value <= this.#bounds[i]!; i--) this.#counts[i]! += 1;
  }

  write(lines: string[], model: string): void {
    const { name } = this;
    lines.push(`# HELP ${name} ${this.help}`, `# TYPE ${name} histogram`);
    this.#bounds.forEach((bound, i) => {
      lines.push(`${name}_bucket{engine="0",le="${float(bound)}",model_name="${model}"} ${float(this.#counts[i]!)}`);
    });
    lines.push(`${name}_bucket{engine="0",le="+Inf",model_name="${model}"} ${float(this.#count)}`);
    lines.push(`${name}_count{engine="0",model_name="${model}"} ${float(this.#count)}`);
    lines.push(`${name}_sum{engine="0",model_name="${model}"} ${float(this.#sum)}`);
  }
}

function seconds(fromMs: number, toMs: number): number {
  return Math.max(0, toMs - fromMs) / 1000;
}

export class ReplicaMetrics {
  readonly #engine: ReplicaEngine;
  readonly #model: string;
  readonly #startSeconds: number;
  readonly #ttft = new Histogram(
    'vllm:time_to_first_token_seconds',
    'Histogram of time to first token in seconds.',
    TTFT_BOUNDS,
  );
  readonly #interToken = new Histogram(
    'vllm:inter_token_latency_seconds',
    'Histogram of inter-token latency in seconds.',
    TOKEN_BOUNDS,
  );
  readonly #e2e = new Histogram(
    'vllm:e2e_request_latency_seconds',
    'Histogram of e2e request latency in seconds.',
    REQUEST_BOUNDS,
  );
  readonly #queue = new Histogram(
    'vllm:request_queue_time_seconds',
    'Histogram of time spent in WAITING phase for request.',
    REQUEST_BOUNDS,
  );
  readonly #prefill = new Histogram(
    'vllm:request_prefill_time_seconds',
    'Histogram of time spent in PREFILL phase for request.',
    REQUEST_BOUNDS,
  );
  readonly #decode = new Histogram(
    'vllm:request_decode_time_seconds',
    'Histogram of time spent in DECODE phase for request.',
    REQUEST_BOUNDS,
  );
  #cachedTokens = 0;
  #stopped = 0;
  #lengthFinished = 0;
  #rejected = 0;

  constructor(engine: ReplicaEngine, model: string, startMs: number) {
    this.#engine = engine;
    this.#model = model;
    this.#startSeconds = startMs / 1000;
  }

  token(sequence: Sequence, nowMs: number): void {
    if (sequence.outputTokens === 1) {
      this.#ttft.observe(seconds(sequence.arrivedMs, nowMs));
      this.#queue.observe(seconds(sequence.arrivedMs, sequence.scheduledMs));
      this.#prefill.observe(seconds(sequence.scheduledMs, nowMs));
      this.#cachedTokens += Math.max(0, sequence.cachedTokens);
    } else {
      this.#interToken.observe(seconds(sequence.lastTokenMs, nowMs));
    }
  }

  finished(sequence: Sequence, nowMs: number): void {
    this.#e2e.observe(seconds(sequence.arrivedMs, nowMs));
    this.#decode.observe(seconds(sequence.firstTokenMs, nowMs));
    if (sequence.finishReason === 'stop') this.#stopped += 1;
    else this.#lengthFinished += 1;
  }

  rejected(): void {
    this.#rejected += 1;
  }

  text(): string {
    const engine = this.#engine;
    const { counters, cache } = engine;
    const model = this.#model;
    const labels = `engine="0",model_name="${model}"`;
    const lines: string[] = [];
    const put = (name: string, type: string, help: string, value: number): void => {
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, `${name}{${labels}} ${float(value)}`);
    };
    lines.push(
      '# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.',
      '# TYPE process_start_time_seconds gauge',
      `process_start_time_seconds ${float(this.#startSeconds)}`,
    );
    put('vllm:num_requests_running', 'gauge', 'Number of requests in model execution batches.', engine.running);
    put('vllm:num_requests_waiting', 'gauge', 'Number of requests waiting to be processed.', engine.waiting);
    put('vllm:kv_cache_usage_perc', 'gauge', 'KV-cache usage. 1 means 100 percent usage.', cache.usedShare);
    put(
      'vllm:prefix_cache_queries_total',
      'counter',
      'Prefix cache queries, in terms of number of queried tokens.',
      counters.prefixQueriesTokens,
    );
    put(
      'vllm:prefix_cache_hits_total',
      'counter',
      'Prefix cache hits, in terms of number of cached tokens.',
      counters.prefixHitsTokens,
    );
    put(
      'vllm:num_preemptions_total',
      'counter',
      'Cumulative number of preemption from the engine.',
      counters.preemptions,
    );
    put('vllm:prompt_tokens_total', 'counter', 'Number of prefill tokens processed.', counters.promptTokens);
    put(
      'vllm:prompt_tokens_cached_total',
      'counter',
      'Number of cached prompt tokens (local + external).',
      this.#cachedTokens,
    );
    put('vllm:generation_tokens_total', 'counter', 'Number of generation tokens processed.', counters.outputTokens);
    lines.push(
      '# HELP vllm:request_success_total Count of successfully processed requests.',
      '# TYPE vllm:request_success_total counter',
    );
    const finished: [string, number][] = [
      ['stop', this.#stopped],
      ['length', this.#lengthFinished],
      ['abort', counters.aborted],
      ['error', 0],
    ];
    for (const [reason, count] of finished) {
      lines.push(
        `vllm:request_success_total{engine="0",finished_reason="${reason}",model_name="${model}"} ${float(count)}`,
      );
    }
    lines.push(
      '# HELP vllm:admission_rejections_total Number of admission attempts rejected by a queue limit, by reason.',
      '# TYPE vllm:admission_rejections_total counter',
      `vllm:admission_rejections_total{model_name="${model}",reason="max_num_queued_reqs"} ${float(this.#rejected)}`,
    );
    for (const histogram of [this.#ttft, this.#interToken, this.#e2e, this.#queue, this.#prefill, this.#decode]) {
      histogram.write(lines, model);
    }
    const config =
      `block_size="${engine.blockTokens}",cache_dtype="auto",enable_prefix_caching="True",engine="0",` +
      `kv_cache_size_tokens="${cache.blocks * engine.blockTokens}",num_gpu_blocks="${cache.blocks}"`;
    lines.push(
      '# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig',
      '# TYPE vllm:cache_config_info gauge',
      `vllm:cache_config_info{${config}} 1.0`,
      '',
    );
    return lines.join('\n');
  }
}
