// What the engines' own metrics say: traffic that nobody counted, and how full the KV cache is.
import { METRICS_ARRIVAL_MS, METRICS_FRESH_MS, METRICS_JITTER_MS } from './limits';
import {
  at,
  EXTRA_N,
  EXTRA_Q,
  get,
  known,
  KV_USAGE,
  METRICS_AT,
  N,
  PEAK,
  PEAK_BEFORE,
  podsKept,
  positive,
  WAITING,
} from './load-record';
import { loadPrefillMs } from './load-slowness';
import { poolUncachedTokens } from './pool';
import { podPool } from './residency-store';

const SLACK_REQUESTS: f64 = 1;
const SLACK_SHARE: f64 = 0.1;
const UNTOLD_SHARE: f64 = 0.9;

/**
 * What a pod's metrics said at a time; a negative number = not told. Requests beyond all known ones, with a slack of one
 * and a tenth, are traffic that went around Warmpath: they count as in flight, and those of them that wait as prefill. False when they are not new.
 */
export function loadMetrics(pod: u32, running: f64, waiting: f64, kvUsage: f64, atMs: f64): bool {
  if (pod >= podsKept) return false;
  // What is older by more than counts was read before the clock was set back.
  const newerMs = atMs - load<f64>(at(pod) + METRICS_AT);
  if (!(newerMs > METRICS_JITTER_MS || newerMs < -METRICS_FRESH_MS)) return false;
  store<f64>(at(pod) + METRICS_AT, atMs);
  store<f64>(at(pod) + WAITING, waiting >= 0 ? positive(waiting) : -1);
  store<f64>(at(pod) + KV_USAGE, kvUsage >= 0 && kvUsage < Infinity ? min(kvUsage, <f64>1) : -1);
  const most = max(load<f64>(at(pod) + PEAK), load<f64>(at(pod) + PEAK_BEFORE));
  const seen = positive(running) + positive(waiting);
  const extra = max(seen - most * (1 + SLACK_SHARE) - SLACK_REQUESTS, <f64>0);
  // Nothing told is not nothing there: what was known before counts on, less each time.
  const isTold = running >= 0 || waiting >= 0;
  store<f64>(at(pod) + EXTRA_N, isTold ? extra : get(pod, EXTRA_N) * UNTOLD_SHARE);
  store<f64>(
    at(pod) + EXTRA_Q,
    !isTold ? get(pod, EXTRA_Q) * UNTOLD_SHARE : min(extra, positive(waiting)) * poolUncachedTokens(podPool(pod)),
  );
  store<f64>(at(pod) + PEAK_BEFORE, load<f64>(at(pod) + PEAK));
  store<f64>(at(pod) + PEAK, known(pod));
  return true;
}
/** When a pod's metrics were read; -Infinity before the first. */
export function podMetricsAt(pod: u32): f64 {
  return pod < podsKept ? load<f64>(at(pod) + METRICS_AT) : -Infinity;
}
/**
 * Whether a request had begun when its pod's metrics were read. Engines begin in the order of arrival, so of what was there the youngest wait,
 * as many as the metrics say. `younger` = requests known to have been sent after it and before the metrics were read; others that nobody here knows
 * of only make more of them.
 */
export function loadHadBegun(pod: u32, sentMs: f64, younger: f64): bool {
  if (pod >= podsKept || !(sentMs + METRICS_ARRIVAL_MS <= load<f64>(at(pod) + METRICS_AT))) return false;
  const waiting = load<f64>(at(pod) + WAITING);
  return waiting >= 0 && younger >= waiting;
}
/**
 * Whether a request still waited then: as many as the metrics say, the youngest of all that are there. Of those sent after it this VM knows its own,
 * and others are taken to have sent as many for each of its own as are in flight.
 */
export function loadWaited(pod: u32, sentMs: f64, younger: f64): bool {
  if (pod >= podsKept || !(sentMs + METRICS_ARRIVAL_MS <= load<f64>(at(pod) + METRICS_AT))) return false;
  return (younger + 1) * loadCrowd(pod) <= load<f64>(at(pod) + WAITING);
}
/** Requests on a pod, as far as known, for each that this VM has there. */
export function loadCrowd(pod: u32): f64 {
  const own = get(pod, N);
  return own > 0 ? (known(pod) + get(pod, EXTRA_N)) / own : 1;
}
/**
 * When the first token of a request is to be expected, in ms since its pod's metrics were read, by what they tell: of a request that had begun its own
 * prefill was all that was before it; of one that waited, that of those which wait before it too. `expectedMs` is what was expected so far and
 * stays where they do not tell; `aheadTokens` are uncached tokens of this VM's requests that were sent before it and have no first token yet.
 */
export function loadExpectedMs(
  pod: u32,
  sentMs: f64,
  younger: f64,
  aheadTokens: f64,
  tokens: f64,
  expectedMs: f64,
): f64 {
  if (loadWaited(pod, sentMs, younger)) return loadPrefillMs(pod, aheadTokens * loadCrowd(pod) + tokens);
  if (loadHadBegun(pod, sentMs, younger)) return min(expectedMs, loadPrefillMs(pod, tokens));
  return expectedMs;
}
function fresh(pod: u32, nowMs: f64): bool {
  return Math.abs(nowMs - load<f64>(at(pod) + METRICS_AT)) < METRICS_FRESH_MS;
}

/**
 * Traffic that went around Warmpath does not end because its pod's metrics stop, and the pod must not look idle then: it counts
 * on, less the longer they are out.
 */
export function extraOf(pod: u32, field: usize, nowMs: f64): f64 {
  const value = get(pod, field);
  const ageMs = nowMs - load<f64>(at(pod) + METRICS_AT);
  if (value == 0 || ageMs <= -METRICS_FRESH_MS) return 0;
  return ageMs < METRICS_FRESH_MS ? value : (value * METRICS_FRESH_MS) / ageMs;
}
/** Share of the KV cache in use as the engine tells it, -1 = not known or not fresh. */
export function podKvUsage(pod: u32, nowMs: f64): f64 {
  return pod < podsKept && fresh(pod, nowMs) ? load<f64>(at(pod) + KV_USAGE) : -1;
}
