// When what is done again and again is due next.

/** After so many missed turns a rhythm begins anew. */
const TURNS_MISSED_MAX: f64 = 10;

/**
 * The rhythm is kept and turns that were missed are left out, so that many gateways that have waited for one answer do not all
 * report at one time from then on.
 */
export function nextTurn(dueMs: f64, nowMs: f64, intervalMs: u32): f64 {
  const every = <f64>intervalMs;
  return dueMs > nowMs - TURNS_MISSED_MAX * every
    ? dueMs + every * (1 + Math.floor((nowMs - dueMs) / every))
    : nowMs + every;
}
