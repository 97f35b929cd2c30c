// What the control plane decided for a pool, as this VM took it over from shared data: settings, secret, endpoints, load.
//
// The leader writes the frames as they came; every VM looks whether the version of a value changed and, if so, applies it.
// Without any frame yet there is no secret and there are no endpoints: requests pass and Envoy balances them.
import { Counters } from './counters';
import { adaptersAdd, adaptersClear } from './engine/adapters';
import { aliasesAdd, aliasesClear } from './engine/aliases';
import { secretClear, secretSet } from './engine/digest';
import {
  adapterHash,
  adapterPodId,
  adaptersCount,
  aliasesCount,
  aliasGroupName,
  aliasName,
  endpointCount,
  frameBlockBytes,
  frameBytesPerToken,
  frameCheck,
  frameCount,
  frameFlags,
  frameHas,
  frameKind,
  frameMode,
  framePolicy,
  framePolicyKeyName,
  framePolicyKeyNameBytes,
  framePolicyKeySource,
  framePool,
  frameSecret,
  frameSettingsVersion,
  frameSyncIntervalMs,
  frameToolsPosition,
  frameWeightKv,
  frameWeightPrefix,
  frameWeightQueue,
  frameWindowBytes,
  loadAgeMs,
  loadInFlight,
  loadPodId,
  loadPrefillTokens,
  loadSlowness,
  loadUsedTokens,
  metricsAgeMs,
  metricsFlags,
  metricsKvUsage,
  metricsPodId,
  metricsRunning,
  metricsTtftMs,
  metricsTtftRequests,
  metricsWaiting,
  touchCount,
  touchesNext,
  FLAG_MORE,
  FRAME_OK,
  KIND_SNAPSHOT,
  METRICS_KV_USAGE,
  METRICS_RUNNING,
  METRICS_STALE,
  METRICS_WAITING,
  SECRET_BYTES,
  SECTION_ALIASES,
  SECTION_ENDPOINTS,
  SECTION_LOAD,
  SECTION_METRICS,
  SECTION_POOL,
} from './engine/frame';
import { FRAME_KEY_NAME_BYTES_MAX, SOURCE_GATEWAYS, TABLE_RING } from './engine/limits';
import { loadForeignAge, loadForeignSet, loadMetrics, loadSlownessLearn, loadTold } from './engine/load';
import { poolBytesPerTokenSet, poolPolicy, poolPolicySet, poolWeightsSet } from './engine/pool';
import { residencyPodClear } from './engine/residency';
import { scanPoolSet } from './engine/scan';
import { Keyspace, KEY_METRICS, KEY_POOL, KEY_TABLE, KEY_TABLE_NEXT, KEY_WANT, TABLE_NEXT_BYTES } from './keyspace';
import { podInPool, podOfId, podsApply, podSlots } from './pods';
import { resultBytes, resultCas, resultPtr, sharedData, sharedDataSet } from './proxy-wasm/host';
import { STATUS_OK } from './proxy-wasm/status';
import { Text, textPtr } from './proxy-wasm/text';
import { applyTouch } from './touches';

/** Until the settings have come that say otherwise. */
const SYNC_INTERVAL_MS: u32 = 50;
const MODE_OFF: u32 = 0;
const MODE_ACTIVE: u32 = 2;
/** A VM that has just come steers without a table when none has come for so long after the settings. */
const TABLE_WAIT_MS: f64 = 2000;

const wanted: usize = memory.data(8, 8);

export class Settings {
  version: u32 = 0;
  policy: u32 = 0;
  toolsPosition: u32 = 0;
  /** Where the policy's key comes from, 0 = nowhere, and the name of the header or cookie, in memory that stays where it is. */
  keySource: u8 = 0;
  keyName: Text = heap.alloc(4 + FRAME_KEY_NAME_BYTES_MAX);
  syncIntervalMs: u32 = SYNC_INTERVAL_MS;
  hasSecret: bool = false;
  private mode: u32 = MODE_OFF;
  private secret: usize = heap.alloc(SECRET_BYTES);
  /** Whether any answer of a control plane has been written at all, and the version of how far the gateway is that was seen last. */
  private isTold: bool = false;
  private newsCas: u32 = 0;
  private poolCas: u32 = 0;
  private metricsCas: u32 = 0;
  /** The load source that stands for all other gateways of this pool together, and the time of what it told. */
  private source: u32 = SOURCE_GATEWAYS;
  private loadMs: f64 = 0;
  private tableRead: u64 = 0;
  private tableTold: u64 = 0;
  /** Records of the frame at hand that were applied at earlier ticks. */
  private tableRecords: u32 = 0;
  private isTableKnown: bool = false;
  /** Whether a table that was asked for has been read, or does not come; frames before `joinedAt` were there before this VM was. */
  private hasTable: bool = false;
  private hasJoined: bool = false;
  private joinedAt: u64 = 0;
  private settledMs: f64 = 0;
  /** How often a new secret has come instead of another. */
  secrets: u32 = 0;

  constructor(
    private keys: Keyspace,
    private pool: u32,
    public poolHash: u64,
    private counters: Counters,
  ) {
    this.source = SOURCE_GATEWAYS + pool;
  }

  /** Nothing is decided and nothing is counted, before the first settings as well as in mode off. */
  get isOff(): bool {
    return this.mode == MODE_OFF;
  }

  /** Nothing is picked yet: this VM has just come and does not know who holds what. */
  get awaitsTable(): bool {
    return !this.hasTable;
  }

  /** There are touches that were told and not read yet. */
  get isBehind(): bool {
    return this.isTableKnown && this.tableRead < this.tableTold;
  }

  /** Picks steer. In shadow mode they are made and counted only. */
  get isActive(): bool {
    return this.mode == MODE_ACTIVE;
  }

  /**
   * Takes over whatever changed in shared data since the last call, of touches so many keys. The leader writes how far the gateway is behind all
   * that an answer brought: while that value is the same, nothing else has changed.
   */
  read(nowMs: f64, keysMax: u32): void {
    const next = this.tableNext();
    if (!this.hasJoined) {
      this.hasJoined = true;
      this.joinedAt = next;
    }
    const isNews = this.isTold && resultCas != this.newsCas;
    if (isNews) this.newsCas = resultCas;
    if (isNews && this.changed(KEY_POOL, this.poolCas)) {
      this.poolCas = resultCas;
      if (this.isOurs()) this.applyPool(nowMs);
    }
    if (this.version == 0) return;
    if (!this.hasTable && Math.abs(nowMs - this.settledMs) > TABLE_WAIT_MS) this.hasTable = true;
    if (isNews && this.changed(KEY_METRICS, this.metricsCas)) {
      this.metricsCas = resultCas;
      if (this.isOurs()) {
        this.applyMetrics(nowMs);
        this.applyAdapters();
        if (frameHas(SECTION_LOAD)) this.applyLoad(nowMs);
      }
    }
    loadForeignAge(this.source, nowMs - this.loadMs);
    this.readTable(nowMs, next, keysMax);
  }

  private changed(kind: u8, cas: u32): bool {
    const key = this.keys.of(kind, 0);
    return sharedData(key.ptr, key.length) == STATUS_OK && resultCas != cas;
  }

  private isOurs(): bool {
    return frameCheck(resultPtr, <u32>resultBytes) == FRAME_OK && framePool() == this.poolHash;
  }

  private applyPool(nowMs: f64): void {
    if (!frameHas(SECTION_POOL)) return;
    if (this.version == 0) this.settledMs = nowMs;
    this.version = frameSettingsVersion();
    this.mode = frameMode();
    poolPolicySet(this.pool, framePolicy());
    this.policy = poolPolicy(this.pool);
    poolWeightsSet(this.pool, frameWeightPrefix(), frameWeightQueue(), frameWeightKv());
    this.takeKey();
    if (frameHas(SECTION_ALIASES)) this.applyAliases();
    this.toolsPosition = frameToolsPosition();
    this.syncIntervalMs = frameSyncIntervalMs();
    scanPoolSet(this.pool, frameBlockBytes(), frameWindowBytes());
    poolBytesPerTokenSet(this.pool, frameBytesPerToken());
    if (frameSecret() != 0) this.applySecret(frameSecret(), nowMs);
    if (!frameHas(SECTION_ENDPOINTS)) return;
    const overflowed = podsApply(this.pool);
    this.counters.journal.settings(this.version, endpointCount(), overflowed);
  }

  private takeKey(): void {
    this.keySource = framePolicyKeySource();
    const bytes = framePolicyKeyNameBytes();
    store<u32>(this.keyName, bytes);
    memory.copy(textPtr(this.keyName), framePolicyKeyName(), bytes);
  }

  /** Keys made with another secret mean nothing, so a new one empties the table. */
  private applySecret(secret: usize, nowMs: f64): void {
    if (this.hasSecret && memory.compare(this.secret, secret, SECRET_BYTES) == 0) return;
    if (this.hasSecret) {
      this.secrets++;
      for (let pod: u32 = 0; pod < podSlots(); pod++) {
        if (podInPool(pod, this.pool)) residencyPodClear(pod, nowMs);
      }
    }
    memory.copy(this.secret, secret, SECRET_BYTES);
    secretSet(this.pool, this.secret);
    this.hasSecret = true;
  }

  private applyMetrics(nowMs: f64): void {
    const count = frameCount(SECTION_METRICS);
    for (let i: u32 = 0; i < count; i++) {
      const pod = podOfId(this.pool, metricsPodId(i));
      const flags = metricsFlags(i);
      if (pod < 0 || flags & METRICS_STALE) continue;
      const running = flags & METRICS_RUNNING ? <f64>metricsRunning(i) : -1;
      const waiting = flags & METRICS_WAITING ? <f64>metricsWaiting(i) : -1;
      const kvUsage = flags & METRICS_KV_USAGE ? <f64>metricsKvUsage(i) : -1;
      const isNew = loadMetrics(pod, running, waiting, kvUsage, nowMs - <f64>metricsAgeMs(i));
      if (isNew) loadTold(pod, <f64>metricsTtftMs(i), <f64>metricsTtftRequests(i));
      adaptersClear(pod);
    }
  }

  /** Which names are one model: prompts under any of them have the same keys from now on. */
  private applyAliases(): void {
    aliasesClear(this.pool);
    const count = aliasesCount();
    for (let i: u32 = 0; i < count; i++) aliasesAdd(this.pool, aliasName(i), aliasGroupName(i));
  }

  /** What adapters are in use on the pods whose metrics have come with them. */
  private applyAdapters(): void {
    const count = adaptersCount();
    for (let i: u32 = 0; i < count; i++) {
      const pod = podOfId(this.pool, adapterPodId(i));
      if (pod >= 0) adaptersAdd(pod, adapterHash(i));
    }
  }

  /** What other gateways have in hand. It counts less the older it gets, which `read` sees to. */
  private applyLoad(nowMs: f64): void {
    for (let pod: u32 = 0; pod < podSlots(); pod++) {
      if (podInPool(pod, this.pool)) loadForeignSet(this.source, pod, 0, 0, 0);
    }
    let ageMs: f64 = 0;
    const count = frameCount(SECTION_LOAD);
    for (let i: u32 = 0; i < count; i++) {
      const pod = podOfId(this.pool, loadPodId(i));
      if (pod < 0) continue;
      loadForeignSet(this.source, pod, loadInFlight(i), loadPrefillTokens(i), loadUsedTokens(i));
      loadSlownessLearn(pod, loadSlowness(i));
      if (loadInFlight(i) > 0) ageMs = max(ageMs, <f64>loadAgeMs(i));
    }
    this.loadMs = nowMs - ageMs;
  }

  /** A snapshot is applied over several ticks: all of it at once would keep every request of this worker waiting. */
  private readTable(nowMs: f64, next: u64, keysMax: u32): void {
    if (next == 0) return;
    this.tableTold = next;
    if (!this.isTableKnown || next < this.tableRead) {
      this.isTableKnown = true;
      this.tableRead = next > TABLE_RING ? next - TABLE_RING : 0;
      this.tableRecords = 0;
    }
    if (next - this.tableRead > TABLE_RING) {
      this.counters.countLost(<u32>(next - this.tableRead - TABLE_RING));
      this.tableRead = next - TABLE_RING;
      this.askForTable(nowMs);
      this.tableRecords = 0;
    }
    let keys: u32 = 0;
    while (this.tableRead < next && keys < keysMax) {
      const key = this.keys.of(KEY_TABLE, <u32>(this.tableRead % TABLE_RING));
      const isThere = sharedData(key.ptr, key.length) == STATUS_OK && this.isOurs();
      for (let i: u32 = 0; isThere && touchesNext(); i++) {
        if (i < this.tableRecords) continue;
        if (keys >= keysMax) {
          this.tableRecords = i;
          return;
        }
        keys += touchCount();
        applyTouch(this.pool, nowMs);
      }
      if (isThere && this.tableRead >= this.joinedAt && frameKind() == KIND_SNAPSHOT && !(frameFlags() & FLAG_MORE))
        this.hasTable = true;
      this.tableRecords = 0;
      this.tableRead++;
    }
  }

  /** The number of the next frame of touches, 0 when there was none. */
  private tableNext(): u64 {
    const head = this.keys.of(KEY_TABLE_NEXT, 0);
    this.isTold = sharedData(head.ptr, head.length) == STATUS_OK;
    return this.isTold && resultBytes == TABLE_NEXT_BYTES ? load<u64>(resultPtr) : 0;
  }

  /** Touches were overwritten before this VM read them: the leader asks for all of the table. */
  private askForTable(nowMs: f64): void {
    const key = this.keys.of(KEY_WANT, 0);
    store<f64>(wanted, nowMs);
    sharedDataSet(key.ptr, key.length, wanted, 8);
  }

  /** Another pool, after a configuration change: everything begins anew. */
  reset(poolHash: u64): void {
    this.poolHash = poolHash;
    this.version = 0;
    this.mode = MODE_OFF;
    this.syncIntervalMs = SYNC_INTERVAL_MS;
    this.newsCas = 0;
    this.poolCas = 0;
    this.metricsCas = 0;
    this.isTableKnown = false;
    this.hasTable = false;
    this.hasJoined = false;
    this.hasSecret = false;
    aliasesClear(this.pool);
    secretClear(this.pool);
  }
}
