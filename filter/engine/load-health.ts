// Pods that fail or hang, and for how long they are left alone.
import {
  COOL_FORGET_MS,
  COOL_MS_MAX,
  COOL_MS_MIN,
  POOLS_MAX,
  SILENCE_MS_MIN,
  SILENCE_PREDICTIONS,
  STRIKES_MAX,
} from './limits';
import { ALIVE_AT, at, COOL_UNTIL, FAILED_AT, FAILURES, get, N, podsKept, SILENT, STRIKES, TRIAL } from './load-record';
import { loadForeignMs } from './load-slowness';
import { podPool, poolWordAt, words } from './residency-store';

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
  // What others sent there at the same time was not known when the prediction was made, and stands before this one's first token, too.
  const expectedMs = predictedMs + loadForeignMs(pod);
  const limitMs = max(SILENCE_MS_MIN, expectedMs * SILENCE_PREDICTIONS);
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
/** A request goes to a pod. The first after a cool-down is the trial; until it succeeds no other follows. */
export function healthDispatch(pod: u32, nowMs: f64): void {
  const failures = load<u32>(at(pod) + FAILURES);
  if (failures == 0 || inCoolDown(pod, nowMs)) return;
  store<u32>(at(pod) + TRIAL, 1);
  store<u32>(at(pod) + SILENT, 0);
  store<f64>(at(pod) + COOL_UNTIL, nowMs + coolMs(failures));
}
/** Whether a pod is to be left alone now. */
export function podCooling(pod: u32, nowMs: f64): bool {
  if (pod >= podsKept || load<u32>(at(pod) + FAILURES) == 0) return false;
  if (inCoolDown(pod, nowMs)) return true;
  return load<u32>(at(pod) + SILENT) != 0 && get(pod, N) > 0;
}
