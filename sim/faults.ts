// What can be wrong with a replica while it runs: with its answers, and with its metrics page, which may go wrong on its own.

import type { ReplicaMetrics } from './metrics.ts';

/**
 * `error` answers every completion 500 at once, `busy` 503; `freeze` takes requests and never answers. The health page stays green in all.
 */
export type Fault = 'none' | 'error' | 'busy' | 'freeze';

/** `missing`: 404. `renamed`: other family names. `stale`: the same text for ever. `nan`: no gauge is a number. */
export type MetricsFault = 'none' | 'missing' | 'renamed' | 'stale' | 'nan';

export class MetricsPage {
  readonly #metrics: ReplicaMetrics;
  #fault: MetricsFault = 'none';
  #kept = '';

  constructor(metrics: ReplicaMetrics) {
    this.#metrics = metrics;
  }

  set fault(fault: MetricsFault) {
    this.#kept = this.#metrics.text();
    this.#fault = fault;
  }

  /** The page's text, null when there is no page. */
  text(): string | null {
    switch (this.#fault) {
      case 'missing':
        return null;
      case 'stale':
        return this.#kept;
      case 'renamed':
        return this.#metrics.text().replaceAll('vllm:', 'engine:');
      case 'nan':
        return this.#metrics.text().replaceAll(/^(vllm:[^ ]*) .*$/gm, '$1 NaN');
      default:
        return this.#metrics.text();
    }
  }
}
