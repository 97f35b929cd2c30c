// What the filter tells the operator: counters and gauges in Envoy's own statistics, one set a pool.
//
// Names carry their labels as `.label.value` parts, which the gateway's stats tags turn into labels; every set of values is
// bounded: pools, reasons, policies and results are known, pods are the endpoints of the pool. All ids are defined when the
// plugin is configured. A request counts in this VM's memory only; each tick adds up what was counted, so that no counter costs
// a host call a request. A VM that traps takes along what it counted since its last tick.
import { REASONS, reasonName } from './engine/reasons';
import { garbageLeft } from './garbage';
import { Journal } from './journal';
import { metric, metricAdd, metricSet, resultNumber } from './proxy-wasm/host';
import { METRIC_COUNTER, METRIC_GAUGE, STATUS_OK } from './proxy-wasm/status';
import { text, textFree } from './proxy-wasm/text';

/** Names of the policies by their number on the wire. */
const POLICIES: StaticArray<string> = [
  'prefill-cost',
  'least-request',
  'round-robin',
  'first-block-hash',
  'prefill-cost-first',
  'weighted',
  'session',
  'prefix-header',
];

const NONE: u32 = 0xffff_ffff;

// The places of the counters.
const PICKS: u32 = 0;
const FALLBACKS: u32 = PICKS + <u32>POLICIES.length;
const UNPICKED: u32 = FALLBACKS + REASONS;
const MOVED: u32 = UNPICKED + 1;
const FAILURES: u32 = UNPICKED + 2;
const SILENCES: u32 = UNPICKED + 3;
const PROMPT_BYTES: u32 = UNPICKED + 4;
const MATCHED_BYTES: u32 = UNPICKED + 5;
const PROMPT_TOKENS: u32 = UNPICKED + 6;
const CACHED_TOKENS: u32 = UNPICKED + 7;
const PREDICTED_TOKENS: u32 = UNPICKED + 8;
const LOST: u32 = UNPICKED + 9;
const UNTOLD: u32 = UNPICKED + 10;
const SYNCS_OK: u32 = UNPICKED + 11;
const SYNCS_FAILED: u32 = UNPICKED + 12;
const SYNCS_REJECTED: u32 = UNPICKED + 13;
const ELECTIONS: u32 = UNPICKED + 14;
const OBJECTIVES: u32 = UNPICKED + 15;
const FAIRNESS: u32 = UNPICKED + 16;
const SUBSET_REFUSED: u32 = UNPICKED + 17;
const COUNTERS: u32 = UNPICKED + 18;

function define(kind: u32, name: string): u32 {
  const label = text(name);
  const status = metric(kind, label);
  textFree(label);
  return status == STATUS_OK ? <u32>resultNumber : NONE;
}

export class Counters {
  journal: Journal = new Journal();
  private prefix: string = '';
  /** Envoy's id of each counter, and what was counted since the last tick. */
  private ids: StaticArray<u32> = new StaticArray<u32>(COUNTERS).fill(NONE);
  private waiting: StaticArray<u64> = new StaticArray<u64>(COUNTERS);
  private isWaiting: bool = false;
  private alive: u32 = NONE;

  /** Defines every metric of the pool. Allocates: on configuration only. */
  define(pool: string): void {
    this.flush();
    this.prefix = '.pool.' + pool.replaceAll('.', '_');
    this.journal.name(pool);
    for (let i = 0; i < POLICIES.length; i++) this.counter(PICKS + i, 'picks', '.policy.' + POLICIES[i]);
    for (let i: u32 = 1; i < REASONS; i++) this.counter(FALLBACKS + i, 'fallbacks', '.reason.' + reasonName(i));
    this.counter(UNPICKED, 'unpicked', '');
    this.counter(MOVED, 'moved', '');
    this.counter(FAILURES, 'upstream_failures', '');
    this.counter(SILENCES, 'silent_pods', '');
    this.counter(PROMPT_BYTES, 'prompt_bytes', '');
    this.counter(MATCHED_BYTES, 'matched_bytes', '');
    this.counter(PROMPT_TOKENS, 'prompt_tokens', '');
    this.counter(CACHED_TOKENS, 'cached_tokens', '');
    this.counter(PREDICTED_TOKENS, 'predicted_cached_tokens', '');
    this.counter(LOST, 'sibling_touches_lost', '');
    this.counter(UNTOLD, 'untold_touches', '');
    this.counter(SYNCS_OK, 'syncs', '.result.ok');
    this.counter(SYNCS_FAILED, 'syncs', '.result.failed');
    this.counter(SYNCS_REJECTED, 'syncs', '.result.rejected');
    this.counter(ELECTIONS, 'leader_elections', '');
    this.counter(OBJECTIVES, 'unordered', '.reason.objective');
    this.counter(FAIRNESS, 'unordered', '.reason.fairness');
    this.counter(SUBSET_REFUSED, 'subset_refused', '');
    this.alive = define(METRIC_GAUGE, 'warmpath_alive_seconds' + this.prefix);
  }

  private counter(index: u32, name: string, labels: string): void {
    this.ids[index] = define(METRIC_COUNTER, 'warmpath_' + name + '_total' + this.prefix + labels);
  }

  private add(index: u32, amount: u64): void {
    this.waiting[index] += amount;
    this.isWaiting = true;
  }

  /** Adds what was counted since the last call to Envoy's counters. */
  flush(): void {
    if (!this.isWaiting) return;
    this.isWaiting = false;
    for (let i: u32 = 0; i < COUNTERS; i++) {
      const amount = this.waiting[i];
      if (amount == 0) continue;
      this.waiting[i] = 0;
      if (this.ids[i] != NONE) metricAdd(this.ids[i], amount);
    }
  }

  /** A gauge of requests in flight for one pod, found again when the pod is seen again. Allocates: when pods change. */
  podGauge(addressPtr: usize, addressBytes: u32): u32 {
    garbageLeft();
    let pod = '';
    for (let i: u32 = 0; i < addressBytes; i++) {
      const c = load<u8>(addressPtr + i);
      const plain = (c >= 0x30 && c <= 0x39) || (c >= 0x61 && c <= 0x66);
      pod += plain ? String.fromCharCode(c) : '_';
    }
    return define(METRIC_GAUGE, 'warmpath_in_flight' + this.prefix + '.pod.' + pod);
  }

  setGauge(id: u32, value: u64): void {
    if (id != NONE) metricSet(id, value);
  }

  countPick(policy: u32): void {
    if (policy < <u32>POLICIES.length) this.add(PICKS + policy, 1);
  }

  countFallback(reason: u32): void {
    if (reason >= REASONS) return;
    this.add(FALLBACKS + reason, 1);
    this.journal.unread(reason);
  }

  countUnpicked(): void {
    this.add(UNPICKED, 1);
    this.journal.unpicked();
  }

  countMoved(): void {
    this.add(MOVED, 1);
  }

  countFailure(): void {
    this.add(FAILURES, 1);
  }

  /** A pod was found to take requests and to answer none. */
  countSilence(pod: u32): void {
    this.add(SILENCES, 1);
    this.journal.silent(pod);
  }

  countMatch(promptBytes: u32, matchedBytes: u32): void {
    this.add(PROMPT_BYTES, promptBytes);
    this.add(MATCHED_BYTES, matchedBytes);
  }

  /** For whoever looks at the gateway alone. The control plane has the same by pod and kind under other names; the two are not to be added up. */
  countUsage(promptTokens: u32, cachedTokens: u32, predictedTokens: u32): void {
    this.add(PROMPT_TOKENS, promptTokens);
    this.add(CACHED_TOKENS, cachedTokens);
    this.add(PREDICTED_TOKENS, predictedTokens);
  }

  countLost(records: u32): void {
    this.add(LOST, records);
    this.journal.lost();
  }

  /** Touches found no room among those that wait for the control plane. */
  countUntold(records: u32): void {
    this.add(UNTOLD, records);
  }

  countSyncOk(): void {
    this.add(SYNCS_OK, 1);
    this.journal.syncWorks();
  }

  /** A call failed, the last one of so many in a row; 0 is the status of one that brought no answer at all. */
  countSyncFailed(failures: u32, status: u32): void {
    this.add(SYNCS_FAILED, 1);
    this.journal.syncFailed(failures, status);
  }

  countSyncRejected(error: u32): void {
    this.add(SYNCS_REJECTED, 1);
    this.journal.syncRefused(error);
  }

  /** A request asks for a priority, which only something that queues could give. */
  countObjective(): void {
    this.add(OBJECTIVES, 1);
  }

  countFairness(): void {
    this.add(FAIRNESS, 1);
  }

  /** None of the pods that a request is bound to was ready, so it was answered 503. */
  countSubsetRefused(): void {
    this.add(SUBSET_REFUSED, 1);
    this.journal.subsetRefused();
  }

  countElection(): void {
    this.add(ELECTIONS, 1);
    this.journal.elected();
  }

  /** The leader says once a second that it lives: an alert on this gauge standing still finds a filter that is gone. */
  recordAlive(nowMs: f64): void {
    if (this.alive != NONE) metricSet(this.alive, <u64>(nowMs / 1000));
  }
}
