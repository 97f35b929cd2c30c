// When an engine begins a request whose first token nobody sees: its pod's metrics tell how many requests waited when they were read, and
// engines begin in the order of arrival.
import { BEGUN_ASKS_PER_TICK, SILENCE_MS_MIN } from './engine/limits';
import { loadExpectedMs, podMetricsAt } from './engine/load';
import { askedMs, COUNTED, dispatchedMs, flags, pods, PREFILL, releaseMs, slotsEnd, STREAMED, uncached } from './slots';

let asksLeft: u32 = 0;
let tickMs: f64 = 0;

/** Whether a tick must look at a request whose first token is out: at a stream because it is late, at another answer because it must have come. */
export function isDue(slot: u32, now: f64): bool {
  if (flags[slot] & STREAMED) return dispatchedMs[slot] + SILENCE_MS_MIN <= now;
  askMetrics(slot, now);
  return releaseMs[slot] <= now;
}

/** Corrects when a first token is expected, by what the pod's metrics tell; once for each metrics, for so many requests a tick. */
function askMetrics(slot: u32, now: f64): void {
  if (now != tickMs) asksLeft = BEGUN_ASKS_PER_TICK;
  tickMs = now;
  const pod = pods[slot];
  const atMs = podMetricsAt(pod);
  if (askedMs[slot] == atMs || !(dispatchedMs[slot] <= atMs) || asksLeft == 0) return;
  asksLeft--;
  askedMs[slot] = atMs;
  let younger: f64 = 0;
  let aheadTokens: f64 = 0;
  for (let other: u32 = 0; other < slotsEnd; other++) {
    if (!(flags[other] & COUNTED) || pods[other] != pod) continue;
    if (dispatchedMs[other] > dispatchedMs[slot]) younger += dispatchedMs[other] <= atMs ? 1 : 0;
    else if (<u32>other != slot && flags[other] & PREFILL) aheadTokens += uncached[other];
  }
  const expectedMs = releaseMs[slot] - atMs;
  releaseMs[slot] =
    atMs + loadExpectedMs(pod, dispatchedMs[slot], younger, aheadTokens, <f64>uncached[slot], expectedMs);
}
