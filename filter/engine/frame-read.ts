// Reading the frame that frameCheck() accepted last. No accessor can fail: an absent section or an index beyond the count
// reads as zero.
import { counts, frameBase, payloads, touchBytesOf, walk } from './frame-check';
import {
  ADAPTER_BYTES,
  ALIAS_BYTES,
  POOL_BYTES,
  POOL_KEY_BYTES,
  SECTION_ADAPTERS,
  SECTION_ALIASES,
  SECTION_POOL,
  SECTION_SECRET,
  SECTION_ENDPOINTS,
  SECTION_LOAD,
  SECTION_METRICS,
  SECTION_TOUCHES,
  SECTION_OUTCOMES,
  SECTION_GATEWAY,
  SECTIONS,
  ENDPOINT_BYTES,
  LOAD_BYTES,
  METRICS_BYTES,
  TOUCHES_HEADER_BYTES,
  TOUCH_BYTES,
  OUTCOMES_HEADER_BYTES,
  OUTCOME_BYTES,
  OUTCOME_KIND_BYTES,
  OUTCOME_KIND_COUNTERS,
  GATEWAY_BYTES,
  OUTCOME_COUNTERS,
} from './frame-layout';

export function frameKind(): u16 {
  return frameBase == 0 ? 0 : load<u16>(frameBase, 6);
}
export function frameBytes(): u32 {
  return frameBase == 0 ? 0 : load<u32>(frameBase, 8);
}
export function frameEpoch(): u64 {
  return frameBase == 0 ? 0 : load<u64>(frameBase, 16);
}
export function frameSequence(): u64 {
  return frameBase == 0 ? 0 : load<u64>(frameBase, 24);
}
export function framePool(): u64 {
  return frameBase == 0 ? 0 : load<u64>(frameBase, 32);
}
export function frameSettingsVersion(): u32 {
  return frameBase == 0 ? 0 : load<u32>(frameBase, 40);
}
export function frameFlags(): u32 {
  return frameBase == 0 ? 0 : load<u32>(frameBase, 44);
}
export function frameHas(section: u16): bool {
  return section <= SECTIONS && payloads[section] != 0;
}
export function frameCount(section: u16): u32 {
  return section <= SECTIONS ? counts[section] : 0;
}

// Payload of a single-record section plus an offset; where the section is absent, a zero word.
const zeros = memory.data(160);

function single(section: u16): usize {
  const at = payloads[section];
  return at == 0 ? zeros : at;
}

function record(section: u16, index: u32, size: u32): usize {
  return index < counts[section] ? payloads[section] + index * size : zeros;
}

export function frameMode(): u8 {
  return load<u8>(single(SECTION_POOL));
}
export function framePolicy(): u8 {
  return load<u8>(single(SECTION_POOL), 1);
}
export function frameToolsPosition(): u8 {
  return load<u8>(single(SECTION_POOL), 2);
}
export function frameBlockBytes(): u32 {
  return load<u32>(single(SECTION_POOL), 4);
}
export function frameWindowBytes(): u32 {
  return load<u32>(single(SECTION_POOL), 8);
}
export function frameSyncIntervalMs(): u32 {
  return load<u32>(single(SECTION_POOL), 12);
}
export function frameBytesPerToken(): f32 {
  return load<f32>(single(SECTION_POOL), 16);
}
export function frameWeightPrefix(): f32 {
  return load<f32>(single(SECTION_POOL), 20);
}
export function frameWeightQueue(): f32 {
  return load<f32>(single(SECTION_POOL), 24);
}
export function frameWeightKv(): f32 {
  return load<f32>(single(SECTION_POOL), 28);
}
/** Where the policies session and prefix-header find their key: KEY_SOURCE_HEADER, KEY_SOURCE_COOKIE or 0. */
export function framePolicyKeySource(): u8 {
  return hasPolicyKey() ? load<u8>(payloads[SECTION_POOL], POOL_BYTES) : 0;
}
/** The header's or cookie's name. */
export function framePolicyKeyNameBytes(): u32 {
  return hasPolicyKey() ? load<u32>(payloads[SECTION_POOL], POOL_BYTES + 4) : 0;
}
export function framePolicyKeyName(): usize {
  return hasPolicyKey() ? payloads[SECTION_POOL] + POOL_BYTES + POOL_KEY_BYTES : 0;
}
function hasPolicyKey(): bool {
  const at = payloads[SECTION_POOL];
  return at != 0 && load<u32>(at - 4) > POOL_BYTES;
}
/** Address of the 32 bytes of the pool's secret, 0 when the frame carries none. */
export function frameSecret(): usize {
  return payloads[SECTION_SECRET];
}

export function endpointCount(): u32 {
  return counts[SECTION_ENDPOINTS];
}
export function endpointPodId(index: u32): u32 {
  return load<u32>(record(SECTION_ENDPOINTS, index, ENDPOINT_BYTES));
}
export function endpointPort(index: u32): u16 {
  return load<u16>(record(SECTION_ENDPOINTS, index, ENDPOINT_BYTES), 4);
}
export function endpointFlags(index: u32): u16 {
  return load<u16>(record(SECTION_ENDPOINTS, index, ENDPOINT_BYTES), 6);
}
/** Address of the 16 address bytes in network order; IPv4 is mapped (::ffff:a.b.c.d). */
export function endpointAddress(index: u32): usize {
  return record(SECTION_ENDPOINTS, index, ENDPOINT_BYTES) + 8;
}
export function endpointWeight(index: u32): f32 {
  return load<f32>(record(SECTION_ENDPOINTS, index, ENDPOINT_BYTES), 24);
}
export function endpointCapacityTokens(index: u32): u32 {
  return load<u32>(record(SECTION_ENDPOINTS, index, ENDPOINT_BYTES), 28);
}
export function endpointStartedSeconds(index: u32): f64 {
  return load<f64>(record(SECTION_ENDPOINTS, index, ENDPOINT_BYTES), 32);
}

export function loadCount(): u32 {
  return counts[SECTION_LOAD];
}
export function loadPodId(index: u32): u32 {
  return load<u32>(record(SECTION_LOAD, index, LOAD_BYTES));
}
export function loadInFlight(index: u32): u32 {
  return load<u32>(record(SECTION_LOAD, index, LOAD_BYTES), 4);
}
export function loadPrefillTokens(index: u32): u32 {
  return load<u32>(record(SECTION_LOAD, index, LOAD_BYTES), 8);
}
export function loadUsedTokens(index: u32): u32 {
  return load<u32>(record(SECTION_LOAD, index, LOAD_BYTES), 12);
}
export function loadAgeMs(index: u32): u32 {
  return load<u32>(record(SECTION_LOAD, index, LOAD_BYTES), 16);
}
/** Seconds per prefill token as the sender measures it, 0 when it does not know. */
export function loadSlowness(index: u32): f32 {
  return load<f32>(record(SECTION_LOAD, index, LOAD_BYTES), 20);
}

export function metricsCount(): u32 {
  return counts[SECTION_METRICS];
}
export function metricsPodId(index: u32): u32 {
  return load<u32>(record(SECTION_METRICS, index, METRICS_BYTES));
}
export function metricsRunning(index: u32): u32 {
  return load<u32>(record(SECTION_METRICS, index, METRICS_BYTES), 4);
}
export function metricsWaiting(index: u32): u32 {
  return load<u32>(record(SECTION_METRICS, index, METRICS_BYTES), 8);
}
export function metricsKvUsage(index: u32): f32 {
  return load<f32>(record(SECTION_METRICS, index, METRICS_BYTES), 12);
}
export function metricsAgeMs(index: u32): u32 {
  return load<u32>(record(SECTION_METRICS, index, METRICS_BYTES), 16);
}
/** Which of the numbers are known (METRICS_RUNNING, _WAITING, _KV_USAGE) and whether they are stale. */
export function metricsFlags(index: u32): u32 {
  return load<u32>(record(SECTION_METRICS, index, METRICS_BYTES), 20);
}
/** Mean time to first token over the last scrape interval in which a request began, 0 when unknown. */
export function metricsTtftMs(index: u32): f32 {
  return load<f32>(record(SECTION_METRICS, index, METRICS_BYTES), 24);
}
export function metricsTtftRequests(index: u32): u32 {
  return load<u32>(record(SECTION_METRICS, index, METRICS_BYTES), 28);
}

export function adaptersCount(): u32 {
  return counts[SECTION_ADAPTERS];
}
export function adapterPodId(index: u32): u32 {
  return load<u32>(record(SECTION_ADAPTERS, index, ADAPTER_BYTES));
}
/** What adapterHashOf() makes of the name of an adapter that the pod has in use. */
export function adapterHash(index: u32): u32 {
  return load<u32>(record(SECTION_ADAPTERS, index, ADAPTER_BYTES), 4);
}

export function aliasesCount(): u32 {
  return counts[SECTION_ALIASES];
}
/** What adapterHashOf() makes of a name of a model that has others as well. */
export function aliasName(index: u32): u32 {
  return load<u32>(record(SECTION_ALIASES, index, ALIAS_BYTES));
}
/** The same of the name that stands for all of them. */
export function aliasGroupName(index: u32): u32 {
  return load<u32>(record(SECTION_ALIASES, index, ALIAS_BYTES), 4);
}

export function touchesCount(): u32 {
  return counts[SECTION_TOUCHES];
}
/** Keys of all touches together. */
export function touchesKeyCount(): u32 {
  return load<u32>(single(SECTION_TOUCHES), 4);
}
/** Address of the touch records as they stand one after the other, for writeTouchRecords(); 0 without the section. */
export function touchesRecords(): usize {
  const at = payloads[SECTION_TOUCHES];
  return at == 0 ? 0 : at + TOUCHES_HEADER_BYTES;
}
export function touchesRecordsBytes(): u32 {
  const at = payloads[SECTION_TOUCHES];
  return at == 0 ? 0 : load<u32>(at - 4) - TOUCHES_HEADER_BYTES;
}
/**
 * Sets back touches of the current frame that claim to be later than maxMs, and answers how many there were. A clock that
 * runs ahead, or a lie, would otherwise keep its touches newest for ever. The frame's check is not kept right.
 */
export function touchesClampTime(maxMs: f64): u32 {
  let clamped: u32 = 0;
  touchesRewind();
  while (touchesNext()) {
    if (load<f64>(walk[1], 8) <= maxMs) continue;
    store<f64>(walk[1], maxMs, 8);
    clamped++;
  }
  touchesRewind();
  return clamped;
}
export function touchesRewind(): void {
  walk[0] = 0;
  walk[1] = 0;
}
/** Steps to the first or next touch; false at the end. The touch accessors speak of the one stepped to. */
export function touchesNext(): bool {
  const section = payloads[SECTION_TOUCHES];
  if (section == 0) return false;
  const at = walk[0] == 0 ? section + TOUCHES_HEADER_BYTES : walk[0];
  if (at >= section + load<u32>(section - 4)) {
    walk[1] = 0;
    return false;
  }
  walk[1] = at;
  walk[0] = at + touchBytesOf(load<u16>(at, 6));
  return true;
}

function current(): usize {
  return walk[1] == 0 ? zeros : walk[1];
}

export function touchPodId(): u32 {
  return load<u32>(current());
}
export function touchFlags(): u16 {
  return load<u16>(current(), 4);
}
export function touchCount(): u32 {
  return load<u16>(current(), 6);
}
export function touchTimeMs(): f64 {
  return load<f64>(current(), 8);
}
/** The deepest key that the receiver already holds; 0 = the new keys begin a prompt. */
export function touchParentKey(): u64 {
  return load<u64>(current(), 16);
}
/** Address of touchCount() keys, 8 bytes each. */
export function touchKeys(): usize {
  return current() + TOUCH_BYTES;
}
/** Address of touchCount() weights in prompt bytes, 4 bytes each. */
export function touchWeights(): usize {
  return current() + TOUCH_BYTES + touchCount() * 8;
}
export function touchKey(index: u32): u64 {
  return index < touchCount() ? load<u64>(touchKeys() + index * 8) : 0;
}
export function touchWeight(index: u32): u32 {
  return index < touchCount() ? load<u32>(touchWeights() + index * 4) : 0;
}
/** Address of the whole current touch record, touchRecordBytes() long, for writeTouchRecord(); 0 when there is none. */
export function touchRecord(): usize {
  return walk[1];
}
export function touchRecordBytes(): u32 {
  return walk[1] == 0 ? 0 : touchBytesOf(touchCount());
}

/** The sender's own bytes per token, 0 when it does not know, and how many tokens of usage that rests on. */
export function outcomesBytesPerToken(): f32 {
  return load<f32>(single(SECTION_OUTCOMES), 8);
}
export function outcomesRatioTokens(): u32 {
  return load<u32>(single(SECTION_OUTCOMES), 12);
}
/** Records of pods. */
export function outcomeCount(): u32 {
  return counts[SECTION_OUTCOMES];
}
function outcome(index: u32): usize {
  const at = index < counts[SECTION_OUTCOMES] ? payloads[SECTION_OUTCOMES] : 0;
  return at == 0 ? zeros : at + OUTCOMES_HEADER_BYTES + index * OUTCOME_BYTES;
}
export function outcomePodId(index: u32): u32 {
  return load<u32>(outcome(index));
}
export function outcomeResets(index: u32): u32 {
  return load<u32>(outcome(index), 4);
}
/** One of the counters OUTCOME_OK .. OUTCOME_EXCEEDED. */
export function outcomeTotal(index: u32, counter: u32): u64 {
  return counter < OUTCOME_COUNTERS ? load<u64>(outcome(index) + 8 + counter * 8) : 0;
}
export function outcomeTtftMsSum(index: u32): f64 {
  return load<f64>(outcome(index), 112);
}
/** Records of kinds of requests. */
export function outcomeKindCount(): u32 {
  return load<u32>(single(SECTION_OUTCOMES), 4);
}
function outcomeKind(index: u32): usize {
  if (index >= outcomeKindCount()) return zeros;
  const pods = OUTCOMES_HEADER_BYTES + counts[SECTION_OUTCOMES] * OUTCOME_BYTES;
  return payloads[SECTION_OUTCOMES] + pods + index * OUTCOME_KIND_BYTES;
}
export function outcomeKindApi(index: u32): u8 {
  return load<u8>(outcomeKind(index));
}
export function outcomeKindLanguage(index: u32): u8 {
  return load<u8>(outcomeKind(index), 1);
}
/** One of the counters OUTCOME_KIND_REQUESTS .. OUTCOME_KIND_ERRORS + OUTCOME_ERRORS - 1. */
export function outcomeKindTotal(index: u32, counter: u32): u64 {
  return counter < OUTCOME_KIND_COUNTERS ? load<u64>(outcomeKind(index) + 8 + counter * 8) : 0;
}

/** Identifies one life of the sender: its counters and touch numbers begin anew with each incarnation. */
export function gatewayIncarnation(): u64 {
  return load<u64>(single(SECTION_GATEWAY));
}
/** In a report the number of its first touch; in an answer the number that the next report should begin with. */
export function gatewayTouchesNext(): u64 {
  return load<u64>(single(SECTION_GATEWAY), 8);
}
export function gatewayWorkers(): u32 {
  return load<u32>(single(SECTION_GATEWAY), 16);
}
export function gatewayNameBytes(): u32 {
  return load<u32>(single(SECTION_GATEWAY), 20);
}
export function gatewayName(): usize {
  return single(SECTION_GATEWAY) + GATEWAY_BYTES;
}
