// What the VMs of one gateway tell each other, through shared data, about one pool: who picked what, and what is in hand.
//
// Each VM that takes part holds one segment: a head with its load counters, and a ring of its last touches. A segment has one
// writer, so nothing here needs a lock or a compare-and-set but the claim. A record is written before the head that
// announces it. Siblings are read at a pick, but not twice within a millisecond, and at every tick. What a request changes after its
// pick waits for the next pick or for a tick, which then comes soon, when something was told a moment ago: under load a request costs two writes.
import { Claim } from './claim';
import { Counters } from './counters';
import {
  frameBegin,
  frameCheck,
  frameCount,
  frameEnd,
  frameEpoch,
  frameSequence,
  loadInFlight,
  loadPodId,
  loadPrefillTokens,
  loadSlowness,
  loadUsedTokens,
  touchBytesOf,
  touchesNext,
  touchRecord,
  touchRecordBytes,
  writeLoad,
  writeTouch,
  writeTouchKey,
  writtenRecord,
  writtenRecordBytes,
  FRAME_OK,
  KIND_SEGMENT,
  SECTION_LOAD,
  TOUCH_BYTES,
} from './engine/frame';
import { FRAME_BYTES_MAX, CHAIN_BLOCKS_MAX, RENEWALS_MAX, RING_RECORDS, SEGMENTS_MAX } from './engine/limits';
import { loadForeignSet, loadOwnN, loadOwnQ, loadOwnUsed, loadSlownessLearn, podSlowness } from './engine/load';
import { poolBytesPerToken, poolOutputTokens } from './engine/pool';
import { residencyTouchAnswer } from './engine/residency';
import { Keyspace, KEY_CLAIM, KEY_HEAD, KEY_RING, KEY_WANT } from './keyspace';
import { podId, podOfId, podsOfPool, podWords } from './pods';
import { resultBytes, resultCas, resultPtr, sharedData, sharedDataSet } from './proxy-wasm/host';
import { STATUS_NOT_FOUND, STATUS_OK } from './proxy-wasm/status';
import { Ticker } from './ticker';
import { applyTouch } from './touches';

/** How long a claim lives without renewal. A VM that misses this long is taken for dead. */
const LEASE_MS: f64 = 1500;
const HEARTBEAT_MS: f64 = 250;

/** All segments, one bit each: there are 64 at most. */
const ALL: u64 = u64.MAX_VALUE >> (64 - SEGMENTS_MAX);
/** Segments are taken from the first one on: behind so many that were never used there is none. */
const ABSENT_MAX: i32 = 4;
/** Heads that tell of no pick are not written more often. */
const TELL_MS: f64 = 1;
/** What was read from siblings is new enough for picks within so long. */
const SIBLINGS_MS: f64 = 1;

/** The longest frame that is written here: a ring record with a pick and all renewals that wait, or a head with all pods. */
const REGION_BYTES: u32 = 256 + CHAIN_BLOCKS_MAX * 12 + RENEWALS_MAX * (TOUCH_BYTES + 16);
const region: usize = heap.alloc(REGION_BYTES);
let isAbsent: bool = false;

/** Collects touches on their way to the control plane; the leader's. */
export class Outbox {
  ptr: usize;
  bytes: u32 = 0;
  records: u32 = 0;
  /** Number of the first record in the box; numbers go on for the life of the VM. */
  first: u64 = 0;
  private capacity: u32;

  constructor(capacity: u32) {
    this.capacity = capacity < FRAME_BYTES_MAX ? capacity : FRAME_BYTES_MAX;
    this.ptr = heap.alloc(this.capacity);
  }

  /** Adds one touch record. Where there is no room, the older half makes it: what is newest is worth most. Returns how many went. */
  add(record: usize, bytes: u32): u32 {
    const before = this.records;
    if (bytes > this.capacity - this.bytes) this.dropHalf();
    const dropped = before - this.records;
    if (bytes > this.capacity - this.bytes) return dropped + 1;
    memory.copy(this.ptr + this.bytes, record, bytes);
    this.bytes += bytes;
    this.records++;
    return dropped;
  }

  private dropHalf(): void {
    let records: u32 = 0;
    let bytes: u32 = 0;
    while (records < this.records && bytes < this.capacity / 2) {
      bytes += touchBytesOf(load<u16>(this.ptr + bytes, 6));
      records++;
    }
    this.drop(records, bytes);
  }

  /** Takes out the oldest records that were delivered. */
  drop(records: u32, bytes: u32): void {
    if (bytes > this.bytes || records > this.records) return;
    memory.copy(this.ptr, this.ptr + bytes, this.bytes - bytes);
    this.bytes -= bytes;
    this.records -= records;
    this.first += records;
  }

  clear(): void {
    this.first += this.records;
    this.bytes = 0;
    this.records = 0;
  }
}

export class Exchange {
  /** This VM's segment, -1 while it has none. */
  own: i32 = -1;
  /** Whether touches, own and siblings', are also collected for the control plane. */
  collects: bool = false;
  outbox: Outbox;
  private claim: Claim = new Claim();
  private hasAsked: bool = false;
  private ringNext: u64 = 0;
  private isDirty: bool = true;
  private publishedMs: f64 = 0;
  private siblingsMs: f64 = 0;
  private toldMs: f64 = 0;
  /** Chains that were touched again since the last ring record, and wait for the next one. */
  private renewals: u32 = 0;
  private renewedPods: StaticArray<u32> = new StaticArray<u32>(RENEWALS_MAX);
  private renewedMs: StaticArray<f64> = new StaticArray<f64>(RENEWALS_MAX);
  private renewedKeys: StaticArray<u64> = new StaticArray<u64>(RENEWALS_MAX);
  private answerKeys: StaticArray<u64> = new StaticArray<u64>(RENEWALS_MAX);
  private answerBytes: StaticArray<u32> = new StaticArray<u32>(RENEWALS_MAX);
  private headCas: StaticArray<u32> = new StaticArray<u32>(SEGMENTS_MAX);
  private headSeenMs: StaticArray<f64> = new StaticArray<f64>(SEGMENTS_MAX);
  private writers: StaticArray<u64> = new StaticArray<u64>(SEGMENTS_MAX);
  private ringRead: StaticArray<u64> = new StaticArray<u64>(SEGMENTS_MAX);
  /** Segments that some sibling holds, one bit each. */
  private active: u64 = 0;

  constructor(
    private keys: Keyspace,
    private pool: u32,
    private nonce: u64,
    private counters: Counters,
    outboxBytes: u32,
    private ticker: Ticker,
  ) {
    this.outbox = new Outbox(outboxBytes);
  }

  /** How many VMs of this gateway take part, this one included. */
  members(): u32 {
    return <u32>popcnt(this.active) + (this.own >= 0 ? 1 : 0);
  }

  /** Claims a segment or renews the claim. Called on ticks only: a VM that never ticks must not take part. */
  keepSegment(nowMs: f64): void {
    if (this.own >= 0) {
      if (this.claim.expiryMs - nowMs > LEASE_MS / 2) return;
      if (this.claim.hold(this.keys.of(KEY_CLAIM, this.own), this.nonce, nowMs, LEASE_MS)) return;
      this.own = -1;
    }
    for (let i = 0; i < SEGMENTS_MAX; i++) {
      if (this.claim.hold(this.keys.of(KEY_CLAIM, i), this.nonce, nowMs, LEASE_MS)) {
        this.own = i;
        this.askForTable(nowMs);
        this.forget(i);
        this.isDirty = true;
        return;
      }
    }
    this.counters.journal.unheard();
  }

  /** Once after the VM or the plugin came: its table is empty, and what the others hold must come from the control plane. */
  private askForTable(nowMs: f64): void {
    if (this.hasAsked) return;
    this.hasAsked = true;
    const key = this.keys.of(KEY_WANT, 0);
    store<f64>(region, nowMs);
    sharedDataSet(key.ptr, key.length, region, 8);
  }

  /** Gives the segment back when the plugin is removed. */
  leave(): void {
    if (this.own >= 0) this.claim.release(this.keys.of(KEY_CLAIM, this.own), this.nonce);
    for (let i = 0; i < SEGMENTS_MAX; i++) this.forget(i);
    this.own = -1;
    this.hasAsked = false;
  }

  /** The clock was set back: what was due at a time is due now, and a sibling is dead a whole lease from now. */
  restartClock(nowMs: f64): void {
    this.claim.restartClock();
    this.publishedMs = 0;
    this.siblingsMs = 0;
    for (let i = 0; i < SEGMENTS_MAX; i++) this.headSeenMs[i] = nowMs;
  }

  markDirty(): void {
    this.isDirty = true;
  }

  /** What this VM has in hand has become less: told at once, or under load with the next pick or in a few ms. */
  tell(nowMs: f64): void {
    this.isDirty = true;
    if (nowMs - this.toldMs < TELL_MS && nowMs >= this.toldMs) {
      this.ticker.soon();
      return;
    }
    this.toldMs = nowMs;
    this.publishHead(nowMs);
  }

  /** Tells the siblings of a pick: `n` keys with the prompt bytes that each chain of keys reaches. */
  publishTouch(pod: u32, timeMs: f64, keys: StaticArray<u64>, ends: StaticArray<u32>, n: u32): void {
    this.isDirty = true;
    if (n == 0 || n > CHAIN_BLOCKS_MAX || !this.isHeard()) return;
    this.beginRecord();
    if (writeTouch(podId(pod), 0, timeMs, 0, n)) {
      let before: u32 = 0;
      for (let i: u32 = 0; i < n; i++) {
        writeTouchKey(i, keys[i], ends[i] - before);
        before = ends[i];
      }
      this.collect(writtenRecord(), writtenRecordBytes());
    }
    this.endRecord();
  }

  /**
   * Touches again what a request that is over has used, and its answer behind it, and tells the siblings in time. `tokens` is the
   * answer's length; below 0 = the engine has not told it, and it counts as long as others.
   */
  publishAnswer(pod: u32, timeMs: f64, deepestKey: u64, tokens: i32): void {
    const length = tokens >= 0 ? <f64>tokens : poolOutputTokens(this.pool);
    const bytes = <u32>(length * poolBytesPerToken(this.pool));
    this.renew(pod, timeMs, deepestKey, residencyTouchAnswer(pod, timeMs, deepestKey, bytes), bytes);
  }

  /** Tells the siblings, in time, of a chain that they know already, by its deepest key: it is on another pod now. */
  publishChain(pod: u32, timeMs: f64, deepestKey: u64): void {
    this.renew(pod, timeMs, deepestKey, 0, 0);
  }

  private renew(pod: u32, timeMs: f64, deepestKey: u64, answerKey: u64, answerBytes: u32): void {
    this.isDirty = true;
    if (deepestKey == 0 || !this.isHeard()) return;
    const at = this.renewals;
    this.renewedPods[at] = podId(pod);
    this.renewedMs[at] = timeMs;
    this.renewedKeys[at] = deepestKey;
    this.answerKeys[at] = answerKey;
    this.answerBytes[at] = answerBytes;
    this.renewals = at + 1;
    if (this.renewals == RENEWALS_MAX) this.publishRenewals();
  }

  /** What waits to be told is about another pool or secret. */
  forgetTouches(): void {
    this.renewals = 0;
    this.outbox.clear();
  }

  private publishRenewals(): void {
    if (this.renewals == 0) return;
    this.beginRecord();
    this.endRecord();
  }

  /** Whether anybody takes in what this VM tells. */
  private isHeard(): bool {
    return this.own >= 0 || this.collects;
  }

  /** Begins a ring record with what waits for one. */
  private beginRecord(): void {
    frameBegin(region, REGION_BYTES, KIND_SEGMENT, this.nonce, this.ringNext, 0, 0, 0);
    for (let i: u32 = 0; i < this.renewals; i++) {
      const answers: u32 = this.answerKeys[i] == 0 ? 0 : 1;
      if (!writeTouch(this.renewedPods[i], 0, this.renewedMs[i], this.renewedKeys[i], answers)) break;
      writeTouchKey(0, this.answerKeys[i], this.answerBytes[i]);
      this.collect(writtenRecord(), writtenRecordBytes());
    }
    this.renewals = 0;
  }

  private endRecord(): void {
    const bytes = frameEnd();
    if (this.own < 0) return;
    const key = this.keys.of(KEY_RING, <u32>this.own * RING_RECORDS + <u32>(this.ringNext % RING_RECORDS));
    if (sharedDataSet(key.ptr, key.length, region, bytes) == STATUS_OK) this.ringNext++;
  }

  /** Puts a touch record into the box, at the leader; those that make room for it are not told to the control plane, and counted. */
  private collect(record: usize, bytes: u32): void {
    if (!this.collects) return;
    const dropped = this.outbox.add(record, bytes);
    if (dropped > 0) this.counters.countUntold(dropped);
  }

  /** What a tick owes the siblings: all that waits, and a sign of life now and then. */
  publish(nowMs: f64): void {
    if (this.isHeard()) this.publishRenewals();
    this.renewals = 0;
    if (this.isDirty || nowMs - this.publishedMs >= HEARTBEAT_MS) this.publishHead(nowMs);
  }

  /** Writes the head: what this VM has in hand, and how far its ring has come. */
  publishHead(nowMs: f64): void {
    if (this.own < 0) return;
    this.isDirty = false;
    this.publishedMs = nowMs;
    frameBegin(region, REGION_BYTES, KIND_SEGMENT, this.nonce, this.ringNext, 0, 0, 0);
    this.writeLoads();
    const bytes = frameEnd();
    const key = this.keys.of(KEY_HEAD, this.own);
    sharedDataSet(key.ptr, key.length, region, bytes);
  }

  private writeLoads(): void {
    for (let word: u32 = 0; word < podWords(); word++) {
      for (let rest = podsOfPool(this.pool, word); rest != 0; rest &= rest - 1) {
        const pod = word * 64 + <u32>ctz(rest);
        const inFlight = <u32>loadOwnN(pod);
        if (inFlight == 0) continue;
        const used = <u32>loadOwnUsed(pod);
        if (!writeLoad(podId(pod), inFlight, <u32>loadOwnQ(pod), used, 0, <f32>podSlowness(pod))) return;
      }
    }
  }

  /** Takes in what siblings wrote, unless that was done a moment ago. */
  readSiblingsForPick(nowMs: f64): void {
    if (nowMs - this.siblingsMs < SIBLINGS_MS && nowMs >= this.siblingsMs) return;
    this.readSiblings(nowMs, false);
  }

  /** Takes in what siblings wrote. `all`: also look at segments that nobody held so far. */
  readSiblings(nowMs: f64, all: bool): void {
    this.siblingsMs = nowMs;
    let rest = all ? ALL : this.active;
    if (this.own >= 0) rest &= ~bitOf(this.own);
    let absent = 0;
    for (; rest != 0 && absent < ABSENT_MAX; rest &= rest - 1) {
      const segment = <i32>ctz(rest);
      isAbsent = false;
      if (this.changedHead(segment)) this.readHead(segment, nowMs);
      else if (!(this.active & bitOf(segment))) absent += isAbsent ? 1 : 0;
      else if (nowMs - this.headSeenMs[segment] > LEASE_MS) this.forget(segment);
    }
  }

  /** Whether a segment has a head that was not seen yet; it is then the frame that was checked last. */
  private changedHead(segment: i32): bool {
    const key = this.keys.of(KEY_HEAD, segment);
    const status = sharedData(key.ptr, key.length);
    isAbsent = status == STATUS_NOT_FOUND;
    if (status != STATUS_OK || resultCas == this.headCas[segment]) return false;
    this.headCas[segment] = resultCas;
    return frameCheck(resultPtr, <u32>resultBytes) == FRAME_OK;
  }

  private readHead(segment: i32, nowMs: f64): void {
    const next = frameSequence();
    this.headSeenMs[segment] = nowMs;
    this.zeroSource(segment);
    const count = frameCount(SECTION_LOAD);
    for (let i: u32 = 0; i < count; i++) {
      const pod = podOfId(this.pool, loadPodId(i));
      if (pod < 0) continue;
      loadForeignSet(segment, pod, loadInFlight(i), loadPrefillTokens(i), loadUsedTokens(i));
      loadSlownessLearn(pod, loadSlowness(i));
    }
    const isNew = !(this.active & bitOf(segment)) || this.writers[segment] != frameEpoch();
    this.active |= bitOf(segment);
    if (isNew) {
      // What a new writer did before we knew of it is still in its ring, as far as the ring reaches.
      this.writers[segment] = frameEpoch();
      this.ringRead[segment] = 0;
    }
    this.readRing(segment, next, isNew, nowMs);
  }

  private readRing(segment: i32, next: u64, isNew: bool, nowMs: f64): void {
    let from = this.ringRead[segment];
    if (from > next) from = next;
    if (next - from > RING_RECORDS) {
      if (!isNew) this.counters.countLost(<u32>(next - from - RING_RECORDS));
      from = next - RING_RECORDS;
    }
    const writer = this.writers[segment];
    for (let sequence = from; sequence < next; sequence++) {
      const key = this.keys.of(KEY_RING, <u32>segment * RING_RECORDS + <u32>(sequence % RING_RECORDS));
      if (sharedData(key.ptr, key.length) != STATUS_OK) continue;
      if (frameCheck(resultPtr, <u32>resultBytes) != FRAME_OK) continue;
      if (frameSequence() != sequence || frameEpoch() != writer) {
        this.counters.countLost(1);
        continue;
      }
      while (touchesNext()) {
        applyTouch(this.pool, nowMs);
        this.collect(touchRecord(), touchRecordBytes());
      }
    }
    this.ringRead[segment] = next;
  }

  /** A segment that nobody holds any more: its counters no longer count. */
  private forget(segment: i32): void {
    if (this.active & bitOf(segment)) this.zeroSource(segment);
    this.active &= ~bitOf(segment);
    this.writers[segment] = 0;
  }

  private zeroSource(segment: i32): void {
    for (let word: u32 = 0; word < podWords(); word++) {
      for (let rest = podsOfPool(this.pool, word); rest != 0; rest &= rest - 1) {
        loadForeignSet(segment, word * 64 + <u32>ctz(rest), 0, 0, 0);
      }
    }
  }
}

function bitOf(segment: i32): u64 {
  return (<u64>1) << segment;
}
