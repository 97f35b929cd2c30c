// Whether an engine has begun a request whose first token nobody sees: its pod's metrics tell how many requests waited when they were read, and
// engines begin in the order of arrival.
import { BEGUN_ASKS_PER_TICK, SILENCE_MS_MIN } from './engine/limits';
import { loadHadBegun, loadPredictedTtftMs, podMetricsAt } from './engine/load';
import { askedMs, COUNTED, dispatchedMs, flags, pods, releaseMs, slotsEnd, STREAMED, uncached } from './slots';

let asksLeft: u32 = 0;
let tickMs: f64 = 0;

/** Whether a tick must look at a request whose first token is out: at a stream because it is late, at another answer because it must have come. */
export function isDue(slot: u32, now: f64): bool {
  if (flags[slot] & STREAMED) return dispatchedMs[slot] + SILENCE_MS_MIN <= now;
  // From when it has begun, its own prefill is all that is before its first token.
  if (releaseMs[slot] > now && hadBegun(slot, now)) {
    const pod = pods[slot];
    const prefillMs = loadPredictedTtftMs(pod, uncached[slot], now) - loadPredictedTtftMs(pod, 0, now);
    releaseMs[slot] = min(releaseMs[slot], podMetricsAt(pod) + prefillMs);
  }
  return releaseMs[slot] <= now;
}

/** Whether the pod's metrics tell that the engine has begun a request; asked once of each metrics, for so many requests a tick. */
function hadBegun(slot: u32, now: f64): bool {
  if (now != tickMs) asksLeft = BEGUN_ASKS_PER_TICK;
  tickMs = now;
  const pod = pods[slot];
  const atMs = podMetricsAt(pod);
  if (askedMs[slot] == atMs || !(dispatchedMs[slot] <= atMs) || asksLeft == 0) return false;
  asksLeft--;
  askedMs[slot] = atMs;
  let younger: f64 = 0;
  for (let other: u32 = 0; other < slotsEnd; other++) {
    if (!(flags[other] & COUNTED) || pods[other] != pod) continue;
    if (dispatchedMs[other] > dispatchedMs[slot] && dispatchedMs[other] <= atMs) younger++;
  }
  return loadHadBegun(pod, dispatchedMs[slot], younger);
}
