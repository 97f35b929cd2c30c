// The replica's /metrics page: the families of vLLM's own page in its order, with its names, help, types, labels and spelling of numbers, so that
// whatever scrapes a real engine scrapes this one. What is left out, and why, is listed in docs/FIDELITY.md.

import type { ReplicaEngine, Sequence } from './engine.ts';
import { float, Histogram } from './histogram.ts';

const TTFT_BOUNDS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
];
const TOKEN_BOUNDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80];
const REQUEST_BOUNDS = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680];
const STEP_BOUNDS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
const PARAMETER_N_BOUNDS = [1, 2, 5, 10, 20];
const PREEMPTIONS_BOUNDS = [1, 2, 3, 4, 5, 10, 20];

/** 1, 2, 5, 10 and so on, as far as the longest prompt goes. */
function lengthBounds(tokensMax: number): number[] {
  const bounds: number[] = [];
  for (let power = 1; power <= tokensMax; power *= 10) {
    for (const step of [1, 2, 5]) if (step * power <= tokensMax) bounds.push(step * power);
  }
  return bounds;
}

/** What one served name may say in a label. */
type Labels = Record<string, string>;

function labelText(labels: Labels): string {
  return Object.keys(labels)
    .toSorted()
    .map((name) => `${name}="${labels[name]}"`)
    .join(',');
}

/** Settings that vLLM's page tells and a simulated engine does not have keep the value of a plain start. */
const CONFIG_PLAIN: Labels = {
  _block_size_resolved: 'True',
  cache_dtype: 'auto',
  cache_hit_alignment_tokens: 'None',
  enable_mamba_shared_prefix_checkpoint: 'False',
  enable_prefix_caching: 'True',
  engine: '0',
  gpu_memory_utilization: '0.92',
  hash_block_size: 'None',
  is_attention_free: 'False',
  kv_cache_dtype_skip_layers: '[]',
  kv_cache_layout: 'None',
  kv_cache_memory_bytes: 'None',
  kv_offloading_backend: 'native',
  kv_offloading_size: 'None',
  kv_sharing_fast_prefill: 'False',
  mamba_block_size: 'None',
  mamba_cache_dtype: 'auto',
  mamba_cache_mode: 'none',
  mamba_page_size_padded: 'None',
  mamba_ssm_cache_dtype: 'auto',
  num_cpu_blocks: 'None',
  prefix_cache_retention_interval: '0',
  prefix_caching_hash_algo: 'sha256',
  prefix_match_unit: 'None',
  replayssm_buffer_len: '16',
  skip_page_size_padded: 'None',
  sliding_window: 'None',
  swa_bounded_replay: 'True',
  use_kda_recoverssm: 'False',
  use_replayssm: 'False',
  user_specified_block_size: 'True',
};

function seconds(fromMs: number, toMs: number): number {
  return Math.max(0, toMs - fromMs) / 1000;
}

export interface MetricsOptions {
  model: string;
  /** Names of LoRA adapters; their family is on the page only where there are any. */
  loras?: readonly string[];
  startMs: number;
}

export class ReplicaMetrics {
  readonly #engine: ReplicaEngine;
  readonly #model: string;
  readonly #loras: readonly string[];
  readonly #startSeconds: number;
  readonly #promptTokens: Histogram;
  readonly #outputTokens: Histogram;
  readonly #stepTokens: Histogram;
  readonly #outputTokensMax: Histogram;
  readonly #parameterN: Histogram;
  readonly #parameterMaxTokens: Histogram;
  readonly #ttft: Histogram;
  readonly #interToken: Histogram;
  readonly #timePerToken: Histogram;
  readonly #e2e: Histogram;
  readonly #queue: Histogram;
  readonly #inference: Histogram;
  readonly #prefill: Histogram;
  readonly #decode: Histogram;
  readonly #preemptions: Histogram;
  readonly #computedTokens: Histogram;
  /** All of them, in the page's order. */
  readonly #histograms: readonly Histogram[];
  readonly #byAdapter = new Map<Sequence, string>();
  /** When each combination of running and waiting adapters was last true: the page keeps old ones. */
  readonly #adapterSeries = new Map<string, number>();
  #cachedTokens = 0;
  #stopped = 0;
  #lengthFinished = 0;
  #rejected = 0;

  constructor(engine: ReplicaEngine, { model, loras = [], startMs }: MetricsOptions) {
    this.#engine = engine;
    this.#model = model;
    this.#loras = loras;
    this.#startSeconds = startMs / 1000;
    if (loras.length > 0) this.#adapterSeries.set(this.#adapterLabels([], []), this.#startSeconds);
    const lengths = lengthBounds(engine.constants.modelTokensMax);
    const histograms: Histogram[] = [];
    const histogram = (name: string, help: string, bounds: readonly number[]): Histogram => {
      const made = new Histogram(`vllm:${name}`, help, bounds);
      histograms.push(made);
      return made;
    };
    this.#promptTokens = histogram('request_prompt_tokens', 'Number of prefill tokens processed.', lengths);
    this.#outputTokens = histogram('request_generation_tokens', 'Number of generation tokens processed.', lengths);
    this.#stepTokens = histogram(
      'iteration_tokens_total',
      'Histogram of number of tokens per engine_step.',
      STEP_BOUNDS,
    );
    this.#outputTokensMax = histogram(
      'request_max_num_generation_tokens',
      'Histogram of maximum number of requested generation tokens.',
      lengths,
    );
    this.#parameterN = histogram('request_params_n', 'Histogram of the n request parameter.', PARAMETER_N_BOUNDS);
    this.#parameterMaxTokens = histogram(
      'request_params_max_tokens',
      'Histogram of the max_tokens request parameter.',
      lengths,
    );
    this.#ttft = histogram('time_to_first_token_seconds', 'Histogram of time to first token in seconds.', TTFT_BOUNDS);
    this.#interToken = histogram(
      'inter_token_latency_seconds',
      'Histogram of inter-token latency in seconds.',
      TOKEN_BOUNDS,
    );
    this.#timePerToken = histogram(
      'request_time_per_output_token_seconds',
      'Histogram of time_per_output_token_seconds per request.',
      TOKEN_BOUNDS,
    );
    const request = (name: string, what: string): Histogram =>
      histogram(name, `Histogram of ${what} for request.`, REQUEST_BOUNDS);
    this.#e2e = histogram(
      'e2e_request_latency_seconds',
      'Histogram of e2e request latency in seconds.',
      REQUEST_BOUNDS,
    );
    this.#queue = request('request_queue_time_seconds', 'time spent in WAITING phase');
    this.#inference = request('request_inference_time_seconds', 'time spent in RUNNING phase');
    this.#prefill = request('request_prefill_time_seconds', 'time spent in PREFILL phase');
    this.#decode = request('request_decode_time_seconds', 'time spent in DECODE phase');
    this.#preemptions = histogram(
      'request_num_preemptions',
      'Histogram of the number of times a request was preempted.',
      PREEMPTIONS_BOUNDS,
    );
    this.#computedTokens = histogram(
      'request_prefill_kv_computed_tokens',
      'Histogram of new KV tokens computed during prefill (excluding cached tokens).',
      lengths,
    );
    this.#histograms = histograms;
    engine.onStep = (tokens) => this.#stepTokens.observe(tokens);
  }

  /** A sequence comes to the engine, by the name of the model or of an adapter. */
  added(sequence: Sequence, model: string): void {
    if (this.#loras.includes(model)) this.#byAdapter.set(sequence, model);
  }

  token(sequence: Sequence, nowMs: number): void {
    if (sequence.outputTokens === 1) {
      this.#ttft.observe(seconds(sequence.arrivedMs, nowMs));
      this.#cachedTokens += Math.max(0, sequence.cachedTokens);
    } else {
      this.#interToken.observe(seconds(sequence.lastTokenMs, nowMs));
    }
  }

  finished(sequence: Sequence, nowMs: number, tokensAsked: number): void {
    const { promptTokens, outputTokens, arrivedMs, scheduledMs, firstTokenMs } = sequence;
    const decodeSeconds = seconds(firstTokenMs, nowMs);
    this.#promptTokens.observe(promptTokens);
    this.#outputTokens.observe(outputTokens);
    this.#outputTokensMax.observe(outputTokens);
    this.#parameterN.observe(1);
    this.#parameterMaxTokens.observe(tokensAsked);
    this.#timePerToken.observe(outputTokens > 1 ? decodeSeconds / (outputTokens - 1) : 0);
    this.#e2e.observe(seconds(arrivedMs, nowMs));
    this.#queue.observe(seconds(arrivedMs, scheduledMs));
    this.#inference.observe(seconds(scheduledMs, nowMs));
    this.#prefill.observe(seconds(scheduledMs, firstTokenMs));
    this.#decode.observe(decodeSeconds);
    this.#preemptions.observe(sequence.preemptions);
    this.#computedTokens.observe(promptTokens - Math.max(0, sequence.cachedTokens));
    if (sequence.finishReason === 'stop') this.#stopped += 1;
    else this.#lengthFinished += 1;
    this.#byAdapter.delete(sequence);
  }

  rejected(): void {
    this.#rejected += 1;
  }

  #adapterLabels(running: readonly string[], waiting: readonly string[]): string {
    return labelText({
      max_lora: String(this.#loras.length),
      running_lora_adapters: running.join(','),
      waiting_lora_adapters: waiting.join(','),
    });
  }

  #noteAdapters(): void {
    const running = new Set<string>();
    const waiting = new Set<string>();
    for (const [sequence, adapter] of this.#byAdapter) {
      if (sequence.aborted) this.#byAdapter.delete(sequence);
      else (sequence.scheduledMs < 0 ? waiting : running).add(adapter);
    }
    this.#adapterSeries.set(this.#adapterLabels([...running].toSorted(), [...waiting].toSorted()), Date.now() / 1000);
  }

  text(): string {
    const engine = this.#engine;
    const { counters, cache } = engine;
    const model = this.#model;
    const startSeconds = float(this.#startSeconds);
    const plain = labelText({ engine: '0', model_name: model });
    const lines: string[] = [];
    const family = (name: string, type: string, help: string): void => {
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
    };
    const gauge = (name: string, help: string, value: number): void => {
      family(`vllm:${name}`, 'gauge', help);
      lines.push(`vllm:${name}{${plain}} ${float(value)}`);
    };
    /** A counter of several series is followed by when each of them began. */
    const counters_ = (name: string, help: string, series: readonly (readonly [Labels, number])[]): void => {
      family(`vllm:${name}_total`, 'counter', help);
      for (const [labels, value] of series) lines.push(`vllm:${name}_total{${labelText(labels)}} ${float(value)}`);
      family(`vllm:${name}_created`, 'gauge', help);
      for (const [labels] of series) lines.push(`vllm:${name}_created{${labelText(labels)}} ${startSeconds}`);
    };
    const counter = (name: string, help: string, value: number): void =>
      counters_(name, help, [[{ engine: '0', model_name: model }, value]]);
    const by = (label: string, values: Record<string, number>): [Labels, number][] =>
      Object.entries(values).map(([value, count]) => [{ engine: '0', model_name: model, [label]: value }, count]);

    family('process_start_time_seconds', 'gauge', 'Start time of the process since unix epoch in seconds.');
    lines.push(`process_start_time_seconds ${startSeconds}`);
    for (const [name, what] of [
      ['flops', 'floating point operations'],
      ['read_bytes', 'bytes read from memory'],
      ['write_bytes', 'bytes written to memory'],
    ] as const) {
      const help = `Estimated number of ${what} per GPU (for Model Flops Utilization calculations).`;
      counter(`estimated_${name}_per_gpu`, help, 0);
    }
    gauge('num_requests_running', 'Number of requests in model execution batches.', engine.running);
    gauge('num_requests_waiting', 'Number of requests waiting to be processed.', engine.waiting);
    family(
      'vllm:num_requests_waiting_by_reason',
      'gauge',
      "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by " +
        'transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.',
    );
    for (const [labels, value] of by('reason', { capacity: engine.waiting, deferred: 0 })) {
      lines.push(`vllm:num_requests_waiting_by_reason{${labelText(labels)}} ${float(value)}`);
    }
    family(
      'vllm:engine_sleep_state',
      'gauge',
      'Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep ' +
        'level 1; discard_all = 1 means sleep level 2.',
    );
    for (const [labels, value] of by('sleep_state', { awake: 1, weights_offloaded: 0, discard_all: 0 })) {
      lines.push(`vllm:engine_sleep_state{${labelText(labels)}} ${float(value)}`);
    }
    gauge('kv_cache_usage_perc', 'KV-cache usage. 1 means 100 percent usage.', cache.usedShare);
    const queried = 'in terms of number of queried tokens.';
    counter('prefix_cache_queries', `Prefix cache queries, ${queried}`, counters.prefixQueriesTokens);
    counter('prefix_cache_hits', 'Prefix cache hits, in terms of number of cached tokens.', counters.prefixHitsTokens);
    const external = 'from KV connector cross-instance cache sharing, in terms of number of';
    counter('external_prefix_cache_queries', `External prefix cache queries ${external} queried tokens.`, 0);
    counter('external_prefix_cache_hits', `External prefix cache hits ${external} cached tokens.`, 0);
    counter('mm_cache_queries', 'Multi-modal cache queries, in terms of number of queried items.', 0);
    counter('mm_cache_hits', 'Multi-modal cache hits, in terms of number of cached items.', 0);
    counter('num_preemptions', 'Cumulative number of preemption from the engine.', counters.preemptions);
    counter('prompt_tokens', 'Number of prefill tokens processed.', counters.promptTokens);
    counters_(
      'prompt_tokens_by_source',
      'Number of prompt tokens by source.',
      by('source', {
        local_compute: counters.promptTokens - this.#cachedTokens,
        local_cache_hit: this.#cachedTokens,
        external_kv_transfer: 0,
      }),
    );
    counter('prompt_tokens_cached', 'Number of cached prompt tokens (local + external).', this.#cachedTokens);
    counters_(
      'prompt_tokens_cached_by_source',
      'Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p ' +
        '(transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + ' +
        'vllm:external_prefix_cache_hits.',
      by('source', { device: counters.prefixHitsTokens, host: 0, p2p: 0, disk: 0, external_unspecified: 0 }),
    );
    counter('generation_tokens', 'Number of generation tokens processed.', counters.outputTokens);
    counters_(
      'request_success',
      'Count of successfully processed requests.',
      by('finished_reason', {
        stop: this.#stopped,
        length: this.#lengthFinished,
        abort: counters.aborted,
        error: 0,
        repetition: 0,
      }),
    );
    counters_('admission_rejections', 'Number of admission attempts rejected by a queue limit, by reason.', [
      [{ model_name: model, reason: 'max_num_queued_reqs' }, this.#rejected],
      [{ model_name: model, reason: 'max_num_queued_tokens' }, 0],
    ]);
    for (const histogram of this.#histograms) histogram.write(lines, model, this.#startSeconds);
    if (this.#loras.length > 0) {
      this.#noteAdapters();
      family('vllm:lora_requests_info', 'gauge', 'Running stats on lora requests.');
      for (const [labels, at] of this.#adapterSeries) lines.push(`vllm:lora_requests_info{${labels}} ${float(at)}`);
    }
    const tokens = cache.blocks * engine.blockTokens;
    family('vllm:cache_config_info', 'gauge', 'Information of the LLMEngine CacheConfig');
    const config = labelText({
      ...CONFIG_PLAIN,
      block_size: String(engine.blockTokens),
      effective_attention_block_size: String(engine.blockTokens),
      kv_cache_max_concurrency: float(tokens / engine.constants.modelTokensMax),
      kv_cache_size_tokens: String(tokens),
      num_gpu_blocks: String(cache.blocks),
      // The size of a simulated memory is always given, never measured.
      num_gpu_blocks_override: String(cache.blocks),
    });
    lines.push(`vllm:cache_config_info{${config}} 1.0`, '');
    return lines.join('\n');
  }
}
