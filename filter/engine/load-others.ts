// What siblings and other gateways say that they have in hand, per source with running sums, weighed by their age.
import { LOAD_SOURCES_MAX } from './limits';
import {
  at,
  FOREIGN_BYTES,
  FOREIGN_N,
  FOREIGN_Q,
  FOREIGN_USED,
  foreignAt,
  notePeak,
  noteReserve,
  podsKept,
  positive,
} from './load-record';

const AGE_FULL_MS: f64 = 50;
const AGE_HALF_MS: f64 = 200;
const NOTHING: f64 = 1e-6;

const sourceWeights = new StaticArray<f64>(LOAD_SOURCES_MAX);

/** Every source counts in full. */
export function othersInit(): void {
  for (let source: u32 = 0; source < LOAD_SOURCES_MAX; source++) sourceWeights[source] = 1;
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
  noteReserve(pod);
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
