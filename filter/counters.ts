// What the filter tells the operator: counters and gauges in Envoy's own statistics, one set a pool.
//
// Names carry their labels as `.label.value` parts, which the gateway's stats tags turn into labels; every set of values is
// bounded: pools, reasons, policies and results are known, pods are the endpoints of the pool. All ids are defined when the
// plugin is configured, so that counting on a request is one host call.
import { REASONS, reasonName } from './engine/reasons';
import { Journal } from './journal';
import { metric, metricAdd, metricSet, resultNumber } from './proxy-wasm/host';
import { METRIC_COUNTER, METRIC_GAUGE, STATUS_OK } from './proxy-wasm/status';
import { text, textFree } from './proxy-wasm/text';

/** Names of the policies by their number on the wire. */
const POLICIES: StaticArray<string> = ['prefill-cost', 'least-request', 'round-robin', 'first-block-hash'];

const NONE: u32 = 0xffff_ffff;

function define(kind: u32, name: string): u32 {
  const label = text(name);
  const status = metric(kind, label);
  textFree(label);
  return status == STATUS_OK ? <u32>resultNumber : NONE;
}

function add(id: u32, amount: i64): void {
  if (id != NONE && amount != 0) metricAdd(id, amount);
}

export class Counters {
  journal: Journal = new Journal();
  private prefix: string = '';
  private picks: StaticArray<u32> = new StaticArray<u32>(POLICIES.length);
  private fallbacks: StaticArray<u32> = new StaticArray<u32>(REASONS);
  private moved: u32 = NONE;
  private unpicked: u32 = NONE;
  private failures: u32 = NONE;
  private silences: u32 = NONE;
  private promptBytes: u32 = NONE;
  private matchedBytes: u32 = NONE;
  private promptTokens: u32 = NONE;
  private cachedTokens: u32 = NONE;
  private predictedTokens: u32 = NONE;
  private lost: u32 = NONE;
  private untold: u32 = NONE;
  private syncOk: u32 = NONE;
  private syncFailed: u32 = NONE;
  private syncRejected: u32 = NONE;
  private elections: u32 = NONE;
  private alive: u32 = NONE;

  /** Defines every metric of the pool. Allocates: on configuration only. */
  define(pool: string): void {
    this.prefix = '.pool.' + pool.replaceAll('.', '_');
    this.journal.name(pool);
    for (let i = 0; i < POLICIES.length; i++) {
      this.picks[i] = define(METRIC_COUNTER, 'warmpath_picks_total' + this.prefix + '.policy.' + POLICIES[i]);
    }
    for (let i: u32 = 0; i < REASONS; i++) {
      this.fallbacks[i] = i == 0 ? NONE : this.counter('fallbacks', '.reason.' + reasonName(i));
    }
    this.unpicked = this.counter('unpicked', '');
    this.moved = this.counter('moved', '');
    this.failures = this.counter('upstream_failures', '');
    this.silences = this.counter('silent_pods', '');
    this.promptBytes = this.counter('prompt_bytes', '');
    this.matchedBytes = this.counter('matched_bytes', '');
    this.promptTokens = this.counter('prompt_tokens', '');
    this.cachedTokens = this.counter('cached_tokens', '');
    this.predictedTokens = this.counter('predicted_cached_tokens', '');
    this.lost = this.counter('sibling_touches_lost', '');
    this.untold = this.counter('untold_touches', '');
    this.syncOk = this.counter('syncs', '.result.ok');
    this.syncFailed = this.counter('syncs', '.result.failed');
    this.syncRejected = this.counter('syncs', '.result.rejected');
    this.elections = this.counter('leader_elections', '');
    this.alive = define(METRIC_GAUGE, 'warmpath_alive_seconds' + this.prefix);
  }

  private counter(name: string, labels: string): u32 {
    return define(METRIC_COUNTER, 'warmpath_' + name + '_total' + this.prefix + labels);
  }

  /** A gauge of requests in flight for one pod, found again when the pod is seen again. Allocates: when pods change. */
  podGauge(addressPtr: usize, addressBytes: u32): u32 {
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
    if (policy < <u32>POLICIES.length) add(this.picks[policy], 1);
  }

  countFallback(reason: u32): void {
    if (reason >= REASONS) return;
    add(this.fallbacks[reason], 1);
    this.journal.unread(reason);
  }

  countUnpicked(): void {
    add(this.unpicked, 1);
    this.journal.unpicked();
  }

  countMoved(): void {
    add(this.moved, 1);
  }

  countFailure(): void {
    add(this.failures, 1);
  }

  /** A pod was found to take requests and to answer none. */
  countSilence(pod: u32): void {
    add(this.silences, 1);
    this.journal.silent(pod);
  }

  countMatch(promptBytes: u32, matchedBytes: u32): void {
    add(this.promptBytes, promptBytes);
    add(this.matchedBytes, matchedBytes);
  }

  /** For whoever looks at the gateway alone. The control plane has the same by pod and kind under other names; the two are not to be added up. */
  countUsage(promptTokens: u32, cachedTokens: u32, predictedTokens: u32): void {
    add(this.promptTokens, promptTokens);
    add(this.cachedTokens, cachedTokens);
    add(this.predictedTokens, predictedTokens);
  }

  countLost(records: u32): void {
    add(this.lost, records);
    this.journal.lost();
  }

  /** Touches found no room among those that wait for the control plane. */
  countUntold(records: u32): void {
    add(this.untold, records);
  }

  countSyncOk(): void {
    add(this.syncOk, 1);
    this.journal.syncWorks();
  }

  /** A call failed, the last one of so many in a row; 0 is the status of one that brought no answer at all. */
  countSyncFailed(failures: u32, status: u32): void {
    add(this.syncFailed, 1);
    this.journal.syncFailed(failures, status);
  }

  countSyncRejected(error: u32): void {
    add(this.syncRejected, 1);
    this.journal.syncRefused(error);
  }

  countElection(): void {
    add(this.elections, 1);
    this.journal.elected();
  }

  /** The leader says once a second that it lives: an alert on this gauge standing still finds a filter that is gone. */
  recordAlive(nowMs: f64): void {
    if (this.alive != NONE) metricSet(this.alive, <u64>(nowMs / 1000));
  }
}
