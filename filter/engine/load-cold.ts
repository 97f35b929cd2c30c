// Recent cold work: how many uncached tokens each pod was given lately, by anybody, the older the less.
//
// Own requests are counted when they are sent, others' by the blocks that their touches make a pod hold anew, so nothing
// more has to be told. A sum decays by exp(-age / TAU). It is kept as what it would weigh at a common moment, the epoch:
// adding is one multiplication, the present value another, and a touch that comes late counts as old as it is.
import { COLD_EPOCH_TAUS_MAX, NUMBER_MAX } from './limits';
import { at, COLD, get, podsKept } from './load-record';

const TAU_MS: f64 = 180000;

let epochMs: f64 = 0;

export function coldInit(): void {
  epochMs = 0;
}

/** Moves the epoch to now when it has become distant, so that no number grows without bound. After a clock was set far back all is forgotten. */
export function coldMove(nowMs: f64): void {
  const taus = (nowMs - epochMs) / TAU_MS;
  if (Math.abs(taus) < COLD_EPOCH_TAUS_MAX) return;
  const share = taus > 0 ? Math.exp(-taus) : 0;
  for (let pod: u32 = 0; pod < podsKept; pod++) {
    const where = at(pod) + COLD;
    store<f64>(where, load<f64>(where) * share);
  }
  epochMs = nowMs;
}

/** A pod was given tokens to compute, at a time. */
export function loadCold(pod: u32, tokens: f64, timeMs: f64): void {
  if (pod >= podsKept || !(tokens > 0)) return;
  if (timeMs > epochMs) coldMove(timeMs);
  const taus = min((timeMs - epochMs) / TAU_MS, COLD_EPOCH_TAUS_MAX);
  const where = at(pod) + COLD;
  store<f64>(where, load<f64>(where) + min(tokens, NUMBER_MAX) * Math.exp(taus));
}

/** What podCold() is to be multiplied with now. */
export function coldShare(nowMs: f64): f64 {
  return Math.exp(min((epochMs - nowMs) / TAU_MS, COLD_EPOCH_TAUS_MAX));
}
/** A pod's cold work as it would weigh at the epoch. */
export function podCold(pod: u32): f64 {
  return get(pod, COLD);
}
