// The memory of load.ts: one record a pod, of all pods that residencyInit() made room for.
//
// A pod of any number may be asked for; one that has no record reads as zero.
import { ADAPTERS_PER_POD, LOAD_SOURCES_MAX, NUMBER_MAX, WEIGHT_MAX } from './limits';
import { poolBytesPerToken, poolOutputTokens } from './pool';
import { podPool, podReserveSet, podsMax } from './residency-store';

export const POD_READY: u32 = 1;
export const POD_DRAIN: u32 = 2;

// One record a pod. n, Q and used are the three numbers of the policy: requests in flight, uncached prompt tokens of
// requests without a first token, and uncached prompt tokens of all requests in flight.
export const N: usize = 0;
export const Q: usize = 8;
export const USED: usize = 16;
export const FOREIGN_N: usize = 24;
export const FOREIGN_Q: usize = 32;
export const FOREIGN_USED: usize = 40;
export const EXTRA_N: usize = 48;
export const EXTRA_Q: usize = 56;
export const SLOWNESS: usize = 64;
export const CAPACITY: usize = 72;
export const WEIGHT: usize = 80;
export const KV_USAGE: usize = 88;
export const METRICS_AT: usize = 96;
export const PEAK: usize = 104;
export const PEAK_BEFORE: usize = 112;
export const COOL_UNTIL: usize = 120;
export const FAILED_AT: usize = 128;
export const TURN: usize = 136;
export const FAILURES: usize = 144;
export const FLAGS: usize = 148;
export const POD_ID: usize = 152;
export const TRIAL: usize = 156;
export const ALIVE_AT: usize = 160;
export const SILENT: usize = 168;
export const STRIKES: usize = 172;
export const WAITING: usize = 176;
export const COLD: usize = 184;
export const SENT_N: usize = 192;
export const SENT_TOKENS: usize = 200;
export const TOLD_MS: usize = 208;
export const TOLD_N: usize = 216;
export const TOLD_SLOWNESS: usize = 224;
export const TOLD_OF_POOL: usize = 232;
export const ADAPTERS: usize = 240;
export const ADAPTER_HASHES: usize = 248;
export const RECORD_BYTES: usize = 248 + <usize>ADAPTERS_PER_POD * 4;

export const FOREIGN_BYTES: usize = 12;
const WEIGHT_MIN: f64 = 0.001;

let base: usize = 0;
let foreign: usize = 0;
let reserved: usize = 0;
export let podsKept: u32 = 0;
let violationCount: u64 = 0;

/** Reserves the counters and zeroes them. */
export function recordsInit(): void {
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
  violationCount = 0;
}

export function at(pod: u32): usize {
  return base + <usize>pod * RECORD_BYTES;
}
export function get(pod: u32, field: usize): f64 {
  return pod < podsKept ? load<f64>(at(pod) + field) : 0;
}
/** Adds to a counter that never falls below zero. */
export function add(pod: u32, field: usize, change: f64): void {
  const where = at(pod) + field;
  let value = load<f64>(where) + change;
  if (value < 0) {
    value = 0;
    violationCount++;
  }
  store<f64>(where, value);
}
/** How often a counter would have fallen below zero. */
export function loadViolations(): u64 {
  return violationCount;
}
export function positive(value: f64): f64 {
  return value > 0 ? min(value, NUMBER_MAX) : 0;
}
/** What a source of others' load told of a pod: n, Q and used as f32. */
export function foreignAt(source: u32, pod: u32): usize {
  return foreign + (<usize>source * podsKept + pod) * FOREIGN_BYTES;
}

/** Requests that some Warmpath is known to have on a pod. */
export function known(pod: u32): f64 {
  return load<f64>(at(pod) + N) + load<f64>(at(pod) + FOREIGN_N);
}
/** The metrics to come may have been read at any moment since the last ones, so the most that was known then counts. */
export function notePeak(pod: u32): void {
  const now = known(pod);
  if (now > load<f64>(at(pod) + PEAK)) store<f64>(at(pod) + PEAK, now);
}

/** The answers of requests in flight take room from what a pod can hold of prompts: half of their length, on average. */
export function noteReserve(pod: u32): void {
  const pool = podPool(pod);
  podReserveSet(pod, (known(pod) * poolOutputTokens(pool) * poolBytesPerToken(pool)) / 2);
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
