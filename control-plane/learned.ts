// What a pool's gateways have learned from the usage in their answers: what was predicted to be in the engines' caches beside what was, by
// endpoint and by kind of request, and the ratio of bytes to tokens. It comes as rises of totals (gateways.ts).
//
// Endpoints and kinds are counted apart and not by pairs: what is wrong with one pod shows in its row, what is wrong with a language or an API in
// theirs, and the number of series stays bounded by their sum.
import { ERROR_BOUNDS, KIND_COUNTERS } from './engine/outcomes.ts';
import type { KindCounter, OutcomeKindRecord, OutcomeRecord } from './engine/outcomes.ts';
import { LIMITS } from './limits.ts';
import type { Metrics } from './metrics.ts';
import { Ratio } from './ratio.ts';

/** Totals of one endpoint since this control plane began. */
export interface EndpointTotals {
  promptTokens: number;
  predictedCachedTokens: number;
  actualCachedTokens: number;
  confirmed: number;
  contradicted: number;
  exceeded: number;
}

export interface KindTotals extends Record<KindCounter, number> {
  api: string;
  language: string;
  /** Requests by predicted minus actual cached tokens, each with the bucket's upper bound; null = no bound. */
  errors: { le: number | null; requests: number }[];
}

export class Learned {
  readonly ratio = new Ratio();
  readonly #pool: string;
  readonly #metrics: Metrics;
  readonly #kinds = new Map<string, OutcomeKindRecord>();
  readonly #endpoints = new Map<string, EndpointTotals>();

  constructor(pool: string, metrics: Metrics) {
    this.#pool = pool;
    this.#metrics = metrics;
  }

  takePod(endpoint: string | undefined, rise: OutcomeRecord): void {
    this.ratio.learn(rise.promptBytes, rise.promptTokens);
    if (endpoint === undefined) return;
    const before = this.endpoint(endpoint);
    // Set last, so that the first is the endpoint that was heard of longest ago: it makes room, since endpoints come and go.
    this.#endpoints.delete(endpoint);
    this.#endpoints.set(endpoint, {
      promptTokens: before.promptTokens + rise.promptTokens,
      predictedCachedTokens: before.predictedCachedTokens + rise.predictedCachedTokens,
      actualCachedTokens: before.actualCachedTokens + rise.actualCachedTokens,
      confirmed: before.confirmed + rise.confirmed,
      contradicted: before.contradicted + rise.contradicted,
      exceeded: before.exceeded + rise.exceeded,
    });
    const [oldest] = this.#endpoints.keys();
    if (this.#endpoints.size > LIMITS.outcomePods && oldest !== undefined) this.#endpoints.delete(oldest);
  }

  takeKind(rise: OutcomeKindRecord): void {
    const { api, language } = rise;
    const labels = { pool: this.#pool, api, language };
    const { kindRequests, kindPromptBytes, kindPromptTokens, kindCachedTokens, kindClose, cachedTokensError } =
      this.#metrics;
    kindRequests.inc(labels, rise.requests);
    kindPromptBytes.inc(labels, rise.promptBytes);
    kindPromptTokens.inc({ ...labels, kind: 'estimated' }, rise.estimatedTokens);
    kindPromptTokens.inc({ ...labels, kind: 'actual' }, rise.promptTokens);
    kindCachedTokens.inc({ ...labels, kind: 'predicted' }, rise.predictedCachedTokens);
    kindCachedTokens.inc({ ...labels, kind: 'actual' }, rise.actualCachedTokens);
    kindClose.inc(labels, rise.close);
    let below = 0;
    for (const [bucket, requests] of rise.errors.entries()) {
      below += requests;
      cachedTokensError.inc({ ...labels, le: ERROR_BOUNDS[bucket] ?? '+Inf' }, below);
    }
    const key = `${api} ${language}`;
    const before = this.#kinds.get(key);
    if (before === undefined) {
      this.#kinds.set(key, { ...rise, errors: [...rise.errors] });
      return;
    }
    for (const counter of KIND_COUNTERS) before[counter] += rise[counter];
    rise.errors.forEach((requests, bucket) => (before.errors[bucket] = (before.errors[bucket] ?? 0) + requests));
  }

  endpoint(endpoint: string): EndpointTotals {
    const none = { promptTokens: 0, predictedCachedTokens: 0, actualCachedTokens: 0 };
    return this.#endpoints.get(endpoint) ?? { ...none, confirmed: 0, contradicted: 0, exceeded: 0 };
  }

  kinds(): KindTotals[] {
    return [...this.#kinds.values()].map((kind) => ({
      ...kind,
      errors: kind.errors.map((requests, bucket) => ({ le: ERROR_BOUNDS[bucket] ?? null, requests })),
    }));
  }
}
