// What each pod has in hand: what this VM sent there, what siblings and other gateways say they sent, and what nobody
// counted but the engine's own metrics show.
//
// This VM counts its requests one by one: loadDispatch() once, loadFirstToken() at most once, loadEnd() once. A counter
// that would fall below zero stays at zero, and that is counted. Others' counters are kept per source with running sums,
// weighed by their age. Tokens are uncached prompt tokens throughout.
import {
  COOL_FORGET_MS,
  COOL_MS_MAX,
  COOL_MS_MIN,
  LOAD_SOURCES_MAX,
  METRICS_FRESH_MS,
  METRICS_JITTER_MS,
  NUMBER_MAX,
  POOLS_MAX,
  SILENCE_MS_MIN,
  SILENCE_PREDICTIONS,
  SLOWNESS_MAX,
  STRIKES_MAX,
  WEIGHT_MAX,
} from './limits';
import { poolObserveUncached, poolUncachedTokens } from './pool';
import { POOL_NONE, podPool, podsMax, poolWordAt, words } from './residency-store';

export const POD_READY: u32 = 1;
export const POD_DRAIN: u32 = 2;

// One record a pod. n, Q and used are the three numbers of the policy: requests in flight, uncached prompt tokens of
// requests without a first token, and uncached prompt tokens of all requests in flight.
const N: usize = 0;
const Q: usize = 8;
const USED: usize = 16;
const FOREIGN_N: usize = 24;
const FOREIGN_Q: usize = 32;
const FOREIGN_USED: usize = 40;
const EXTRA_N: usize = 48;
const EXTRA_Q: usize = 56;
const SLOWNESS: usize = 64;
const CAPACITY: usize = 72;
const WEIGHT: usize = 80;
const KV_USAGE: usize = 88;
const METRICS_AT: usize = 96;
const PEAK: usize = 104;
const PEAK_BEFORE: usize = 112;
const COOL_UNTIL: usize = 120;
const FAILED_AT: usize = 128;
const TURN: usize = 136;
const FAILURES: usize = 144;
const FLAGS: usize = 148;
const POD_ID: usize = 152;
const TRIAL: usize = 156;
const ALIVE_AT: usize = 160;
const SILENT: usize = 168;
const STRIKES: usize = 172;
const RECORD_BYTES: usize = 176;

const FOREIGN_BYTES: usize = 12;
const SLOWNESS_DEFAULT: f64 = 1e-4;
const SLOWNESS_MIN: f64 = 1e-9;
const WEIGHT_MIN: f64 = 0.001;
const SLOWNESS_POWER: f64 = 0.05;
const OBSERVE_TOKENS_MIN: f64 = 500;
const AGE_FULL_MS: f64 = 50;
const AGE_HALF_MS: f64 = 200;
const NOTHING: f64 = 1e-6;
const SLACK_REQUESTS: f64 = 1;
const SLACK_SHARE: f64 = 0.1;
const UNTOLD_SHARE: f64 = 0.9;

let base: usize = 0;
let foreign: usize = 0;
let reserved: usize = 0;
let podsKept: u32 = 0;
const sourceWeights = new StaticArray<f64>(LOAD_SOURCES_MAX);
let violationCount: u64 = 0;

/** Reserves the counters of as many pods as residencyInit() made room for, and zeroes them. */
export function loadInit(): void {
  podsKept = podsMax;
  const foreignBytes = <usize>podsKept * FOREIGN_BYTES * LOAD_SOURCES_MAX;
  const total = <usize>podsKept * RECORD_BYTES + foreignBytes;
  if (total != reserved) {
    if (base != 0) heap.free(base);
    base = heap.alloc(total);
    reserved = total;
  }
  memory.fill(base, 0, total);
  foreign = base + <usize>podsKept * RECORD_BYTES;
  for (let source: u32 = 0; source < LOAD_SOURCES_MAX; source++) sourceWeights[source] = 1;
  violationCount = 0;
}

function at(pod: u32): usize {
  return base + <usize>pod * RECORD_BYTES;
}
function get(pod: u32, field: usize): f64 {
  return pod < podsKept ? load<f64>(at(pod) + field) : 0;
}
/** Adds to a counter that never falls below zero. */
function add(pod: u32, field: usize, change: f64): void {
  const where = at(pod) + field;
  let value = load<f64>(where) + change;
  if (value < 0) {
    value = 0;
    violationCount++;
  }
  store<f64>(where, value);
}
function positive(value: f64): f64 {
  return value > 0 ? min(value, NUMBER_MAX) : 0;
}

// Pods.

/** Makes a slot a new pod without load. Its turn in round robin is a number from 0 to 1. */
export function loadPodOpen(pod: u32, podId: u32, turn: f64): void {
  if (pod >= podsKept) return;
  memory.fill(at(pod), 0, RECORD_BYTES);
  for (let source: u32 = 0; source < LOAD_SOURCES_MAX; source++) memory.fill(foreignAt(source, pod), 0, FOREIGN_BYTES);
  store<f64>(at(pod) + WEIGHT, 1);
  store<f64>(at(pod) + METRICS_AT, -Infinity);
  store<f64>(at(pod) + TURN, turn);
  store<u32>(at(pod) + POD_ID, podId);
}
/** The identity of the pod in a slot, the same everywhere; 0 = none. */
export function podIdOf(pod: u32): u32 {
  return pod < podsKept ? load<u32>(at(pod) + POD_ID) : 0;
}
/** POD_READY and POD_DRAIN. */
export function podFlagsSet(pod: u32, flags: u32): void {
  if (pod < podsKept) store<u32>(at(pod) + FLAGS, flags);
}
export function podFlags(pod: u32): u32 {
  return pod < podsKept ? load<u32>(at(pod) + FLAGS) : 0;
}
/** How much work a pod is given beside others: 2 is twice as much. Above 0; anything else is 1. */
export function podWeightSet(pod: u32, weight: f64): void {
  if (pod >= podsKept) return;
  store<f64>(at(pod) + WEIGHT, weight > 0 ? min(max(weight, WEIGHT_MIN), WEIGHT_MAX) : 1);
}
export function podWeight(pod: u32): f64 {
  return pod < podsKept ? load<f64>(at(pod) + WEIGHT) : 1;
}
/** KV capacity as the engine tells it; 0 = unknown. */
export function loadCapacitySet(pod: u32, tokens: f64): void {
  if (pod < podsKept) store<f64>(at(pod) + CAPACITY, positive(tokens));
}
export function podCapacityTokens(pod: u32): f64 {
  return get(pod, CAPACITY);
}
export function podTurn(pod: u32): f64 {
  return get(pod, TURN);
}
export function podTurnSet(pod: u32, turn: f64): void {
  if (pod < podsKept) store<f64>(at(pod) + TURN, turn);
}

// Own requests.

/**
 * A request with `u` uncached tokens goes to a pod. Returns w, what stands before its first token: the pod's Q at this
 * moment, others' included, and u. Keep it for loadObserveTtft().
 */
export function loadDispatch(pod: u32, u: u32, nowMs: f64): f64 {
  if (pod >= podsKept) return 0;
  add(pod, N, 1);
  add(pod, Q, u);
  add(pod, USED, u);
  notePeak(pod);
  poolObserveUncached(podPool(pod), u);
  const failures = load<u32>(at(pod) + FAILURES);
  // The first request after a cool-down is the trial; until it succeeds no other follows.
  if (failures > 0 && !inCoolDown(pod, nowMs)) {
    store<u32>(at(pod) + TRIAL, 1);
    store<u32>(at(pod) + SILENT, 0);
    store<f64>(at(pod) + COOL_UNTIL, nowMs + coolMs(failures));
  }
  return podQueued(pod, nowMs);
}
/** The first token has come, or its predicted time for an answer that is not streamed. Once a request. */
export function loadFirstToken(pod: u32, u: u32): void {
  if (pod < podsKept) add(pod, Q, -(<f64>u));
}
/** A request is over, whatever ended it; `queued` = loadFirstToken() was not called for it. Once a request. */
export function loadEnd(pod: u32, u: u32, queued: bool): void {
  if (pod >= podsKept) return;
  add(pod, N, -1);
  add(pod, USED, -(<f64>u));
  if (queued) add(pod, Q, -(<f64>u));
}
/** Own counters, as they are told to others. */
export function loadOwnN(pod: u32): f64 {
  return get(pod, N);
}
export function loadOwnQ(pod: u32): f64 {
  return get(pod, Q);
}
export function loadOwnUsed(pod: u32): f64 {
  return get(pod, USED);
}
/** How often a counter would have fallen below zero. */
export function loadViolations(): u64 {
  return violationCount;
}

// Slowness.

/** A streamed answer's first token came after `ttftMs`; `w` is what loadDispatch() gave for it. */
export function loadObserveTtft(pod: u32, ttftMs: f64, w: f64): void {
  if (pod >= podsKept || !(w > OBSERVE_TOKENS_MIN) || !(ttftMs > 0)) return;
  const seen = min(max(ttftMs / 1000 / w, SLOWNESS_MIN), SLOWNESS_MAX);
  let slowness = load<f64>(at(pod) + SLOWNESS);
  if (slowness == 0) slowness = meanSlowness(podPool(pod), seen);
  const clamped = min(max(seen, slowness / 5), slowness * 5);
  slownessSet(pod, slowness * Math.pow(clamped / slowness, SLOWNESS_POWER));
}
/** Takes a pod's slowness from elsewhere, in seconds per token, if none is known here. */
export function loadSlownessLearn(pod: u32, secondsPerToken: f64): void {
  if (pod >= podsKept || !(secondsPerToken > 0) || load<f64>(at(pod) + SLOWNESS) != 0) return;
  slownessSet(pod, secondsPerToken);
}
function slownessSet(pod: u32, secondsPerToken: f64): void {
  store<f64>(at(pod) + SLOWNESS, min(max(secondsPerToken, SLOWNESS_MIN), SLOWNESS_MAX));
}
/** Seconds per token, 0 = nothing seen yet. */
export function podSlowness(pod: u32): f64 {
  return get(pod, SLOWNESS);
}
/** Mean over the pods of a pool that were seen, or `otherwise`. */
function meanSlowness(pool: u32, otherwise: f64): f64 {
  if (pool >= POOLS_MAX) return otherwise;
  let sum: f64 = 0;
  let count: f64 = 0;
  for (let word: u32 = 0; word < words; word++) {
    let rest = load<u64>(poolWordAt(pool, word));
    while (rest != 0) {
      const slowness = get(word * 64 + <u32>ctz(rest), SLOWNESS);
      rest &= rest - 1;
      if (slowness == 0) continue;
      sum += slowness;
      count++;
    }
  }
  return count == 0 ? otherwise : sum / count;
}
/** When the first token of a request with `u` uncached tokens is to be expected if it is sent now, or was just sent with u = 0. */
export function loadPredictedTtftMs(pod: u32, u: u32, nowMs: f64): f64 {
  if (pod >= podsKept) return 0;
  let slowness = load<f64>(at(pod) + SLOWNESS);
  if (slowness == 0) slowness = meanSlowness(podPool(pod), SLOWNESS_DEFAULT);
  return slowness * (podQueued(pod, nowMs) + <f64>u) * 1000;
}

// Others' requests.

function foreignAt(source: u32, pod: u32): usize {
  return foreign + (<usize>source * podsKept + pod) * FOREIGN_BYTES;
}
function shift(pod: u32, field: usize, change: f64): void {
  const value = load<f64>(at(pod) + field) + change;
  store<f64>(at(pod) + field, value < NOTHING ? 0 : value);
}
/** What another worker or gateway has in hand on a pod. Values that make no sense count as zero. */
export function loadForeignSet(source: u32, pod: u32, n: f64, q: f64, used: f64): void {
  if (source >= LOAD_SOURCES_MAX || pod >= podsKept) return;
  const weight = sourceWeights[source];
  const where = foreignAt(source, pod);
  const newN = <f32>positive(n);
  const newQ = <f32>positive(q);
  const newUsed = <f32>positive(used);
  shift(pod, FOREIGN_N, (<f64>newN - <f64>load<f32>(where)) * weight);
  shift(pod, FOREIGN_Q, (<f64>newQ - <f64>load<f32>(where, 4)) * weight);
  shift(pod, FOREIGN_USED, (<f64>newUsed - <f64>load<f32>(where, 8)) * weight);
  store<f32>(where, newN);
  store<f32>(where, newQ, 4);
  store<f32>(where, newUsed, 8);
  notePeak(pod);
}
/** Requests in flight that a source told for a pod, as it told them. */
export function loadForeignN(source: u32, pod: u32): f64 {
  return source < LOAD_SOURCES_MAX && pod < podsKept ? load<f32>(foreignAt(source, pod)) : 0;
}
/** Uncached prompt tokens without a first token that a source told for a pod. */
export function loadForeignQ(source: u32, pod: u32): f64 {
  return source < LOAD_SOURCES_MAX && pod < podsKept ? load<f32>(foreignAt(source, pod), 4) : 0;
}
/** Uncached prompt tokens of all requests in flight that a source told for a pod. */
export function loadForeignUsed(source: u32, pod: u32): f64 {
  return source < LOAD_SOURCES_MAX && pod < podsKept ? load<f32>(foreignAt(source, pod), 8) : 0;
}
/** Forgets a source, at full weight again for its next owner, and takes the sums anew. */
export function loadForeignClear(source: u32): void {
  if (source >= LOAD_SOURCES_MAX) return;
  sourceWeights[source] = 1;
  for (let pod: u32 = 0; pod < podsKept; pod++) {
    memory.fill(foreignAt(source, pod), 0, FOREIGN_BYTES);
    let n: f64 = 0;
    let q: f64 = 0;
    let used: f64 = 0;
    for (let other: u32 = 0; other < LOAD_SOURCES_MAX; other++) {
      const where = foreignAt(other, pod);
      n += <f64>load<f32>(where) * sourceWeights[other];
      q += <f64>load<f32>(where, 4) * sourceWeights[other];
      used += <f64>load<f32>(where, 8) * sourceWeights[other];
    }
    store<f64>(at(pod) + FOREIGN_N, n);
    store<f64>(at(pod) + FOREIGN_Q, q);
    store<f64>(at(pod) + FOREIGN_USED, used);
  }
}
/** How old a source's numbers are now: up to 50 ms they count in full, half at 250 ms, a sixth at 1 s. */
export function loadForeignAge(source: u32, ageMs: f64): void {
  if (source >= LOAD_SOURCES_MAX) return;
  const weight = ageMs > AGE_FULL_MS ? 1 / (1 + (ageMs - AGE_FULL_MS) / AGE_HALF_MS) : 1;
  const change = weight - sourceWeights[source];
  if (change == 0) return;
  sourceWeights[source] = weight;
  for (let pod: u32 = 0; pod < podsKept; pod++) {
    const where = foreignAt(source, pod);
    if (load<f32>(where) == 0 && load<f32>(where, 4) == 0 && load<f32>(where, 8) == 0) continue;
    shift(pod, FOREIGN_N, <f64>load<f32>(where) * change);
    shift(pod, FOREIGN_Q, <f64>load<f32>(where, 4) * change);
    shift(pod, FOREIGN_USED, <f64>load<f32>(where, 8) * change);
  }
}

// The engine's own metrics.

/** Requests that some Warmpath is known to have on a pod. */
function known(pod: u32): f64 {
  return load<f64>(at(pod) + N) + load<f64>(at(pod) + FOREIGN_N);
}
/** The metrics to come may have been read at any moment since the last ones, so the most that was known then counts. */
function notePeak(pod: u32): void {
  const now = known(pod);
  if (now > load<f64>(at(pod) + PEAK)) store<f64>(at(pod) + PEAK, now);
}
/**
 * What a pod's metrics said at a time; a negative number = not told. Requests beyond all known ones, with a slack of one
 * and a tenth, are traffic that went around Warmpath: they count as in flight, and those of them that wait as prefill.
 */
export function loadMetrics(pod: u32, running: f64, waiting: f64, kvUsage: f64, atMs: f64): void {
  if (pod >= podsKept) return;
  // What is older by more than counts was read before the clock was set back.
  const newerMs = atMs - load<f64>(at(pod) + METRICS_AT);
  if (!(newerMs > METRICS_JITTER_MS || newerMs < -METRICS_FRESH_MS)) return;
  store<f64>(at(pod) + METRICS_AT, atMs);
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
}
function fresh(pod: u32, nowMs: f64): bool {
  return Math.abs(nowMs - load<f64>(at(pod) + METRICS_AT)) < METRICS_FRESH_MS;
}

/**
 * Traffic that went around Warmpath does not end because its pod's metrics stop, and the pod must not look idle then: it counts
 * on, less the longer they are out.
 */
function extraOf(pod: u32, field: usize, nowMs: f64): f64 {
  const value = get(pod, field);
  const ageMs = nowMs - load<f64>(at(pod) + METRICS_AT);
  if (value == 0 || ageMs <= -METRICS_FRESH_MS) return 0;
  return ageMs < METRICS_FRESH_MS ? value : (value * METRICS_FRESH_MS) / ageMs;
}

// All together, as the policies see it.

/** n: requests in flight on a pod. */
export function podInFlight(pod: u32, nowMs: f64): f64 {
  if (pod >= podsKept) return 0;
  return known(pod) + extraOf(pod, EXTRA_N, nowMs);
}
/** Q: uncached prompt tokens without a first token. */
export function podQueued(pod: u32, nowMs: f64): f64 {
  if (pod >= podsKept) return 0;
  const counted = load<f64>(at(pod) + Q) + load<f64>(at(pod) + FOREIGN_Q);
  return counted + extraOf(pod, EXTRA_Q, nowMs);
}
/** Uncached prompt tokens of all requests in flight. */
export function podUsed(pod: u32): f64 {
  return get(pod, USED) + get(pod, FOREIGN_USED);
}
/** Share of the KV cache in use as the engine tells it, -1 = not known or not fresh. */
export function podKvUsage(pod: u32, nowMs: f64): f64 {
  return pod < podsKept && fresh(pod, nowMs) ? load<f64>(at(pod) + KV_USAGE) : -1;
}

// Failures.

function coolMs(failures: u32): f64 {
  return failures > 16 ? COOL_MS_MAX : min(COOL_MS_MAX, COOL_MS_MIN * <f64>((<u32>1) << (failures - 1)));
}
/** Whether a cool-down lasts. One that ends later than any could was begun before the clock was set back. */
function inCoolDown(pod: u32, nowMs: f64): bool {
  const leftMs = load<f64>(at(pod) + COOL_UNTIL) - nowMs;
  return leftMs > 0 && leftMs <= 2 * COOL_MS_MAX;
}
/**
 * A request to a pod failed, maybe by the pod's fault. A few in a row tell: then it gets no more for 1 s, then one on trial, and
 * twice as long after each failed trial. What fails during the cool-down was sent before it and does not make it longer.
 */
export function loadFailure(pod: u32, nowMs: f64): void {
  if (pod >= podsKept) return;
  const isForgotten = nowMs - load<f64>(at(pod) + FAILED_AT) > COOL_FORGET_MS;
  if (isForgotten) store<u32>(at(pod) + FAILURES, 0);
  store<f64>(at(pod) + FAILED_AT, nowMs);
  if (load<u32>(at(pod) + FAILURES) == 0) {
    const strikes: u32 = isForgotten ? 1 : load<u32>(at(pod) + STRIKES) + 1;
    store<u32>(at(pod) + STRIKES, strikes);
    if (strikes < STRIKES_MAX) return;
  }
  cool(pod, nowMs);
}
function cool(pod: u32, nowMs: f64): void {
  const failures = load<u32>(at(pod) + FAILURES);
  if (failures > 0 && load<u32>(at(pod) + TRIAL) == 0 && inCoolDown(pod, nowMs)) return;
  store<f64>(at(pod) + FAILED_AT, nowMs);
  store<u32>(at(pod) + STRIKES, 0);
  store<u32>(at(pod) + FAILURES, min(failures + 1, <u32>32));
  store<u32>(at(pod) + TRIAL, 0);
  store<f64>(at(pod) + COOL_UNTIL, nowMs + coolMs(failures + 1));
}
/** A pod answered as it should. During a cool-down only a trial tells that: others were sent before the failure. */
export function loadSuccess(pod: u32): void {
  if (pod >= podsKept) return;
  store<u32>(at(pod) + STRIKES, 0);
  if (load<u32>(at(pod) + FAILURES) > 0 && load<u32>(at(pod) + TRIAL) == 0) return;
  store<u32>(at(pod) + FAILURES, 0);
  store<u32>(at(pod) + TRIAL, 0);
}

/** A pod's engine shows that it works: a piece of an answer came. One that was silent is used again. */
export function loadAlive(pod: u32, nowMs: f64): void {
  if (pod >= podsKept) return;
  store<f64>(at(pod) + ALIVE_AT, nowMs);
  if (load<u32>(at(pod) + SILENT) == 0) return;
  store<u32>(at(pod) + SILENT, 0);
  store<u32>(at(pod) + FAILURES, 0);
  store<u32>(at(pod) + TRIAL, 0);
}
/**
 * A first token is out since `sentMs` and was expected `predictedMs` later. When it is long overdue, the pod has shown no sign of
 * life for as long, and another pod of the pool has, then this one hangs: it gets nothing more while any request of ours
 * waits there without a sign, and a trial once they are gone. Returns whether that has just been found.
 */
export function loadSilence(pod: u32, sentMs: f64, predictedMs: f64, nowMs: f64): bool {
  if (pod >= podsKept || load<u32>(at(pod) + SILENT) != 0) return false;
  const limitMs = max(SILENCE_MS_MIN, predictedMs * SILENCE_PREDICTIONS);
  const sinceMs = nowMs - limitMs;
  if (sentMs > sinceMs || load<f64>(at(pod) + ALIVE_AT) > sinceMs || !othersLive(pod, sinceMs)) return false;
  cool(pod, nowMs);
  store<u32>(at(pod) + SILENT, 1);
  return true;
}
function othersLive(pod: u32, sinceMs: f64): bool {
  const pool = podPool(pod);
  if (pool >= POOLS_MAX) return false;
  for (let word: u32 = 0; word < words; word++) {
    let rest = load<u64>(poolWordAt(pool, word));
    while (rest != 0) {
      if (get(word * 64 + <u32>ctz(rest), ALIVE_AT) > sinceMs) return true;
      rest &= rest - 1;
    }
  }
  return false;
}
/** Whether a pod is to be left alone now. */
export function podCooling(pod: u32, nowMs: f64): bool {
  if (pod >= podsKept || load<u32>(at(pod) + FAILURES) == 0) return false;
  if (inCoolDown(pod, nowMs)) return true;
  return load<u32>(at(pod) + SILENT) != 0 && get(pod, N) > 0;
}
/** Whether a slot can be given to another pod without its old requests being counted there. */
export function loadPodIdle(pod: u32): bool {
  return pod < podsKept && podPool(pod) == POOL_NONE && get(pod, N) == 0;
}
