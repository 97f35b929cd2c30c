// How slow each pod is as its engine tells: its mean time to first token over what it had to compute before. Where no answer is streamed nobody
// else sees a first token, and a gateway that goes by a default takes queues to be twice as long as they are.
//
// What an engine tells is the mean over all that began since it was read last, and what stood before them is known of those that this VM sent there
// in that time, which are not quite the same. A few requests of very different lengths make a pod's own number rough, so what pods are compared by is near to
// that of their pool, and when first tokens are to be expected goes by the pool's alone.
import { POOLS_MAX, SLOWNESS_MAX } from './limits';
import {
  at,
  get,
  podsKept,
  positive,
  SENT_N,
  SENT_TOKENS,
  TOLD_MS,
  TOLD_N,
  TOLD_OF_POOL,
  TOLD_SLOWNESS,
} from './load-record';
import { podPool, poolWordAt, words } from './residency-store';

/** What passes before a first token beside prefill, the rest of a step and one of its own, in tokens. */
export const STEP_TOKENS: f64 = 400;
/** How far a pod's own number counts beside its pool's. */
const OWN_POWER: f64 = 0.25;
/** What is left of earlier sums with each mean that is told. */
const KEPT: f64 = 0.9;
/** Of what is left of a request long ago no mean is taken. */
const NOTHING: f64 = 1e-6;

/** A request was sent to a pod with so many tokens before its first one. */
export function toldDispatch(pod: u32, w: f64): void {
  store<f64>(at(pod) + SENT_N, load<f64>(at(pod) + SENT_N) + 1);
  store<f64>(at(pod) + SENT_TOKENS, load<f64>(at(pod) + SENT_TOKENS) + w);
}

/** The mean time to first token of so many requests, as a pod's metrics tell it; once for each metrics. */
export function loadTold(pod: u32, ttftMs: f64, requests: f64): void {
  if (pod >= podsKept || !(ttftMs > 0) || !(requests > 0)) return;
  store<f64>(at(pod) + TOLD_MS, load<f64>(at(pod) + TOLD_MS) + positive(ttftMs) * positive(requests));
  store<f64>(at(pod) + TOLD_N, load<f64>(at(pod) + TOLD_N) + positive(requests));
  const own = secondsPerToken(get(pod, TOLD_MS), get(pod, TOLD_N), get(pod, SENT_TOKENS), get(pod, SENT_N));
  if (own > 0) {
    const all = ofPool(podPool(pod), own);
    store<f64>(at(pod) + TOLD_SLOWNESS, all * Math.pow(own / all, OWN_POWER));
    store<f64>(at(pod) + TOLD_OF_POOL, all);
  }
  fade(pod, TOLD_MS);
  fade(pod, TOLD_N);
  fade(pod, SENT_TOKENS);
  fade(pod, SENT_N);
}
function fade(pod: u32, field: usize): void {
  store<f64>(at(pod) + field, load<f64>(at(pod) + field) * KEPT);
}
/** 0 when nothing is known. */
function secondsPerToken(ms: f64, told: f64, tokens: f64, sent: f64): f64 {
  if (!(told > NOTHING) || !(sent > NOTHING)) return 0;
  return min(ms / told / 1000 / (tokens / sent + STEP_TOKENS), SLOWNESS_MAX);
}
/** Over all pods of a pool together, or `otherwise`. */
function ofPool(pool: u32, otherwise: f64): f64 {
  if (pool >= POOLS_MAX) return otherwise;
  let ms: f64 = 0;
  let told: f64 = 0;
  let tokens: f64 = 0;
  let sent: f64 = 0;
  for (let word: u32 = 0; word < words; word++) {
    let rest = load<u64>(poolWordAt(pool, word));
    while (rest != 0) {
      const pod = word * 64 + <u32>ctz(rest);
      rest &= rest - 1;
      ms += get(pod, TOLD_MS);
      told += get(pod, TOLD_N);
      tokens += get(pod, SENT_TOKENS);
      sent += get(pod, SENT_N);
    }
  }
  const all = secondsPerToken(ms, told, tokens, sent);
  return all > 0 ? all : otherwise;
}

/** Seconds per token as the engine tells, 0 = not told. */
export function podToldSlowness(pod: u32): f64 {
  return get(pod, TOLD_SLOWNESS);
}
