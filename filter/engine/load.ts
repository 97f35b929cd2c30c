// What each pod has in hand: what this VM sent there, what siblings and other gateways say they sent, and what nobody
// counted but the engine's own metrics show.
//
// This VM counts its requests one by one: loadDispatch() once, loadFirstToken() at most once, loadEnd() once. A counter
// that would fall below zero stays at zero, and that is counted. Tokens are uncached prompt tokens throughout.
import { coldInit, coldMove, loadCold } from './load-cold';
import { healthDispatch } from './load-health';
import { extraOf } from './load-metrics';
import { othersInit } from './load-others';
import { toldDispatch } from './load-told';
import {
  add,
  at,
  EXTRA_N,
  EXTRA_Q,
  FOREIGN_Q,
  FOREIGN_USED,
  get,
  known,
  N,
  notePeak,
  noteReserve,
  podsKept,
  Q,
  recordsInit,
  USED,
} from './load-record';
import { poolObserveUncached } from './pool';
import { POOL_NONE, podPool } from './residency-store';

export { coldShare, loadCold, podCold } from './load-cold';
export * from './load-health';
export * from './load-metrics';
export * from './load-others';
export * from './load-slowness';
export { loadTold, podToldSlowness } from './load-told';
export {
  loadCapacitySet,
  loadPodOpen,
  loadViolations,
  POD_DRAIN,
  POD_READY,
  podCapacityTokens,
  podFlags,
  podFlagsSet,
  podIdOf,
  podTurn,
  podTurnSet,
  podWeight,
  podWeightSet,
} from './load-record';

/** Reserves the counters of as many pods as residencyInit() made room for, and zeroes them. */
export function loadInit(): void {
  recordsInit();
  othersInit();
  coldInit();
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
  noteReserve(pod);
  coldMove(nowMs);
  loadCold(pod, u, nowMs);
  poolObserveUncached(podPool(pod), u);
  healthDispatch(pod, nowMs);
  const w = podQueued(pod, nowMs);
  toldDispatch(pod, w);
  return w;
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
  noteReserve(pod);
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
/** Whether a slot can be given to another pod without its old requests being counted there. */
export function loadPodIdle(pod: u32): bool {
  return pod < podsKept && podPool(pod) == POOL_NONE && get(pod, N) == 0;
}
