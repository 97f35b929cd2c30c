// The one VM of a gateway that speaks with the control plane for all of them.
//
// It holds the leader's lease, sends a report every sync interval and never has two under way. What comes back it writes into
// shared data, as it came; every VM, this one included, takes it from there (settings.ts), so that there is one way in.
// When the control plane does not answer, the leader tries again ever more rarely, up to a second; nobody waits for it.
import { Bytes } from './bytes';
import { Claim } from './claim';
import { Config } from './config';
import { Counters } from './counters';
import {
  endpointAddress,
  endpointCapacityTokens,
  endpointCount,
  endpointFlags,
  endpointPodId,
  endpointPort,
  endpointStartedSeconds,
  endpointWeight,
  frameBegin,
  frameBytes,
  frameCheck,
  frameEnd,
  frameEpoch,
  frameFlags,
  frameHas,
  framePool,
  frameRoom,
  frameSequence,
  gatewayTouchesNext,
  writeEndpoint,
  writeGateway,
  writeLoad,
  writeTouchRecord,
  writeTouchRecords,
  touchBytesOf,
  FLAG_MORE,
  FLAG_TABLE,
  FLAG_WANT_SNAPSHOT,
  FLAG_WANT_TABLE,
  FRAME_ERROR_LENGTH,
  FRAME_ERROR_SHORT,
  FRAME_OK,
  KIND_REPORT,
  SECTION_GATEWAY,
  SECTION_METRICS,
  SECTION_POOL,
  SECTION_TOUCHES,
} from './engine/frame';
import { FRAME_BYTES_MAX, REPORT_BYTES, SEGMENTS_MAX, TABLE_RING } from './engine/limits';
import {
  loadForeignN,
  loadForeignQ,
  loadForeignUsed,
  loadOwnN,
  loadOwnQ,
  loadOwnUsed,
  podSlowness,
} from './engine/load';
import { EXPORT_DONE, exportKeys, exportNext, exportRecords, residencyExport } from './engine/residency-export';
import { Exchange } from './exchange';
import { Gauges } from './gauges';
import { Outcomes, outcomesBytes } from './outcomes';
import {
  Keyspace,
  KEY_LEADER,
  KEY_METRICS,
  KEY_POOL,
  KEY_TABLE,
  KEY_TABLE_NEXT,
  KEY_WANT,
  TABLE_NEXT_BYTES,
} from './keyspace';
import { nextTurn } from './rhythm';
import { podId, podInPool, podSlots } from './pods';
import {
  bufferBytes,
  bufferSize,
  call,
  header,
  resultBytes,
  resultCas,
  resultNumber,
  resultPtr,
  sharedData,
  sharedDataSet,
} from './proxy-wasm/host';
import { BUFFER_CALL_BODY, HEADERS_CALL, STATUS_OK } from './proxy-wasm/status';
import { Settings } from './settings';
import { pairs, Text, text, textFree, textOf } from './proxy-wasm/text';

const LEASE_MS: f64 = 1000;
const CALL_TIMEOUT_MS: u32 = 1000;
const BACKOFF_MS_MAX: f64 = 1000;
/** How long a call may be silent before it is taken for lost: its root context went away with the answer. */
const CALL_LOST_MS: f64 = 3000;
/** How often a VM that does not lead looks whether nobody does. */
const TRY_MS: f64 = 100;
const GAUGES_MS: f64 = 250;
const OUTCOMES_MS: f64 = 500;
const ALIVE_MS: f64 = 1000;

/** How far the gateway is: what KEY_TABLE_NEXT holds. */
const progress: usize = memory.data(32, 8);

const STATUS_HEADER: Text = text(':status');
const SYNC_PATH = '/v1/sync';

/** One report is built at a time, by whichever plugin's turn it is; the host copies it at once. */
const region: usize = heap.alloc(REPORT_BYTES);
/** A piece of the table on its way up. */
const PIECE_BYTES: u32 = 128 * 1024;
const piece: usize = heap.alloc(PIECE_BYTES);

export class Leader {
  private claim: Claim = new Claim();
  private cluster: Text = 0;
  private headers: Text = 0;
  private hasCall: bool = false;
  private callId: u32 = 0;
  private calledMs: f64 = 0;
  private nextMs: f64 = 0;
  private failures: u32 = 0;
  private triedMs: f64 = 0;
  private gaugesMs: f64 = 0;
  private aliveMs: f64 = 0;
  private outcomesMs: f64 = 0;
  private sentRecords: u32 = 0;
  private sentBytes: u32 = 0;
  private tableWritten: u64 = 0;
  private gauges: Gauges;
  /** The control plane's epoch and sequence that this gateway has seen last. */
  private epoch: u64 = 0;
  private poolHash: u64 = 0;
  private sequence: u64 = 0;
  private wantsSnapshot: bool = false;
  /** The control plane may be new: it is told which pods this gateway knows. */
  private sendsEndpoints: bool = false;
  private wantCas: u32 = 0;
  /** Where the sending of the whole table stands; at the end there is nothing to send. */
  private tablePod: u32 = u32.MAX_VALUE;
  private tableCursor: u64 = 0;

  constructor(
    private keys: Keyspace,
    private pool: u32,
    private nonce: u64,
    private counters: Counters,
    private exchange: Exchange,
    private outcomes: Outcomes,
  ) {
    this.gauges = new Gauges(pool, counters);
  }

  /** In how many ms a report is due; a VM that does not lead, or has to wait for an answer first, has none. */
  dueMs(nowMs: f64): u32 {
    if (!this.claim.held || (this.hasCall && this.nextMs <= nowMs)) return u32.MAX_VALUE;
    return <u32>max(0, min(CALL_LOST_MS, Math.ceil(this.nextMs - nowMs)));
  }

  /** Takes over where to sync from the configuration. Allocates: on configuration only. */
  configure(config: Config, token: string): void {
    this.nextMs = 0;
    if (this.cluster != 0) {
      textFree(this.cluster);
      textFree(this.headers);
      this.cluster = 0;
    }
    if (config.syncCluster.length == 0) {
      this.leave();
      return;
    }
    this.cluster = textOf(config.syncCluster.ptr, config.syncCluster.length);
    const flat = [':method', 'POST', ':path', SYNC_PATH, ':authority', config.syncAuthority.toString()];
    flat.push('content-type');
    flat.push('application/octet-stream');
    if (token.length > 0) {
      flat.push('authorization');
      flat.push('Bearer ' + token);
    }
    this.headers = pairs(flat);
  }

  /** Takes or renews the lease, and does what a leader does. `gateway` is the gateway's name. */
  tick(nowMs: f64, config: Config, settings: Settings, gateway: Bytes): void {
    if (this.cluster == 0) return;
    this.keepLease(nowMs);
    if (nowMs - this.gaugesMs >= GAUGES_MS) {
      this.gaugesMs = nowMs;
      this.gauges.record(this.claim.held);
    }
    if (!this.claim.held) return;
    this.report(nowMs, config, settings, gateway);
    if (nowMs - this.aliveMs >= ALIVE_MS) {
      this.aliveMs = nowMs;
      this.counters.recordAlive(nowMs);
    }
  }

  /** A VM that came with an empty table asks for a snapshot; all get it, and it does no harm to those that knew. */
  private readWant(): void {
    const key = this.keys.of(KEY_WANT, 0);
    if (sharedData(key.ptr, key.length) != STATUS_OK || resultCas == this.wantCas) return;
    this.wantCas = resultCas;
    this.wantsSnapshot = true;
  }

  /** The clock was set back: what was due at a time is due now. */
  restartClock(nowMs: f64): void {
    this.claim.restartClock();
    this.nextMs = nowMs;
    this.calledMs = nowMs;
    this.gaugesMs = 0;
    this.aliveMs = 0;
    this.outcomesMs = 0;
  }

  /** Gives the lease up: the plugin is removed, or no longer told where the control plane is. */
  leave(): void {
    this.claim.release(this.keys.of(KEY_LEADER, 0), this.nonce);
    this.exchange.collects = false;
    this.beginPool(0);
  }

  /** Another pool, or a new leader: what waits to be told is not about it, and what is known of it is what the leader before has left. */
  private beginPool(poolHash: u64): void {
    this.poolHash = poolHash;
    this.epoch = 0;
    this.sequence = 0;
    this.wantsSnapshot = true;
    this.tablePod = u32.MAX_VALUE;
    this.hasCall = false;
    this.wantCas = 0;
    this.sendsEndpoints = true;
    this.exchange.outbox.clear();
    if (poolHash != 0) this.resume();
  }

  /**
   * Goes on where the leader before stood, so that a control plane that knows the gateway need not tell everything again, and one that does not
   * asks for the table. Frames of touches are numbered on from leader to leader, since VMs read on from where they are.
   */
  private resume(): void {
    this.tableWritten = 0;
    const key = this.keys.of(KEY_TABLE_NEXT, 0);
    if (sharedData(key.ptr, key.length) != STATUS_OK || resultBytes != TABLE_NEXT_BYTES) return;
    this.tableWritten = load<u64>(resultPtr);
    if (load<u64>(resultPtr, 24) != this.poolHash) return;
    this.epoch = load<u64>(resultPtr, 8);
    this.sequence = load<u64>(resultPtr, 16);
  }

  private tellProgress(): void {
    store<u64>(progress, this.tableWritten);
    store<u64>(progress, this.epoch, 8);
    store<u64>(progress, this.sequence, 16);
    store<u64>(progress, this.poolHash, 24);
    this.put(KEY_TABLE_NEXT, 0, progress, TABLE_NEXT_BYTES);
  }

  private keepLease(nowMs: f64): void {
    if (this.claim.held && this.claim.expiryMs - nowMs > LEASE_MS / 2) return;
    const had = this.claim.held;
    if (!had && Math.abs(nowMs - this.triedMs) < TRY_MS) return;
    this.triedMs = nowMs;
    const has = this.claim.hold(this.keys.of(KEY_LEADER, 0), this.nonce, nowMs, LEASE_MS);
    if (has && !had) {
      this.counters.countElection();
      this.hasCall = false;
      this.failures = 0;
      this.nextMs = nowMs;
      // Begun with the next report, from where the leader before stood.
      this.beginPool(0);
      this.outcomes.begin();
    }
    if (had && !has) this.exchange.outbox.clear();
    this.exchange.collects = has;
  }

  private report(nowMs: f64, config: Config, settings: Settings, gateway: Bytes): void {
    if (this.poolHash != settings.poolHash) this.beginPool(settings.poolHash);
    if (this.hasCall && nowMs - this.calledMs > CALL_LOST_MS) this.failed(nowMs, 0);
    if (this.hasCall || nowMs < this.nextMs) return;
    this.readWant();
    const isTable = this.tablePod < podSlots();
    const flags = (this.wantsSnapshot ? FLAG_WANT_SNAPSHOT : 0) | (isTable ? FLAG_TABLE : 0);
    if (nowMs - this.outcomesMs >= OUTCOMES_MS) this.outcomes.collect();
    frameBegin(region, REPORT_BYTES, KIND_REPORT, this.epoch, this.sequence, this.poolHash, settings.version, flags);
    if (this.sendsEndpoints) this.writeEndpoints();
    this.sendsEndpoints = false;
    this.writeLoads();
    const first = this.exchange.outbox.first;
    if (isTable) this.writeTable();
    else this.writeTouches(gateway.length + outcomesBytes(podSlots()));
    if (nowMs - this.outcomesMs >= OUTCOMES_MS) {
      this.outcomesMs = nowMs;
      this.outcomes.write();
    }
    writeGateway(this.nonce, first, this.exchange.members(), gateway.ptr, gateway.length);
    const bytes = frameEnd();
    const everyMs = config.syncIntervalMs > 0 ? config.syncIntervalMs : settings.syncIntervalMs;
    this.nextMs = nextTurn(this.nextMs, nowMs, everyMs);
    if (call(this.cluster, this.headers, region, bytes, CALL_TIMEOUT_MS) != STATUS_OK) {
      this.failed(nowMs, 0);
      return;
    }
    this.hasCall = true;
    this.callId = <u32>resultNumber;
    this.calledMs = nowMs;
  }

  /** The pods as they came, which are in shared data: a control plane that is new takes over their ids and what was learned of them. */
  private writeEndpoints(): void {
    const key = this.keys.of(KEY_POOL, 0);
    if (sharedData(key.ptr, key.length) != STATUS_OK || frameCheck(resultPtr, <u32>resultBytes) != FRAME_OK) return;
    if (framePool() != this.poolHash) return;
    for (let i: u32 = 0; i < endpointCount(); i++) {
      const started = endpointStartedSeconds(i);
      const capacity = endpointCapacityTokens(i);
      const weight = endpointWeight(i);
      if (
        !writeEndpoint(
          endpointPodId(i),
          endpointPort(i),
          endpointFlags(i),
          endpointAddress(i),
          weight,
          capacity,
          started,
        )
      )
        return;
    }
  }

  private writeLoads(): void {
    for (let pod: u32 = 0; pod < podSlots(); pod++) {
      if (!podInPool(pod, this.pool)) continue;
      let inFlight = loadOwnN(pod);
      let prefill = loadOwnQ(pod);
      let used = loadOwnUsed(pod);
      for (let source = 0; source < SEGMENTS_MAX; source++) {
        inFlight += loadForeignN(source, pod);
        prefill += loadForeignQ(source, pod);
        used += loadForeignUsed(source, pod);
      }
      if (!writeLoad(podId(pod), <u32>inFlight, <u32>prefill, <u32>used, 0, <f32>podSlowness(pod))) return;
    }
  }

  /** As many waiting touches as fit before `restBytes` of other sections; the rest goes with the next report. */
  private writeTouches(restBytes: u32): void {
    const box = this.exchange.outbox;
    const reserve = restBytes + 64;
    this.sentRecords = 0;
    this.sentBytes = 0;
    while (this.sentRecords < box.records) {
      const record = box.ptr + this.sentBytes;
      const bytes = touchBytesOf(load<u16>(record, 6));
      if (frameRoom() < bytes + reserve || !writeTouchRecord(record, bytes)) return;
      this.sentRecords++;
      this.sentBytes += bytes;
    }
  }

  /**
   * The next piece of what this gateway holds, for a control plane that is new. Touches that come meanwhile wait; what a lost answer
   * takes with it is not sent again, since a pod's newest blocks are soon touched anyway.
   */
  private writeTable(): void {
    this.sentRecords = 0;
    this.sentBytes = 0;
    while (this.tablePod < podSlots()) {
      const pod = this.tablePod;
      if (podInPool(pod, this.pool)) {
        const bytes = residencyExport(pod, podId(pod), this.tableCursor, piece, PIECE_BYTES);
        if (bytes > 0) writeTouchRecords(piece, bytes, exportRecords(), exportKeys());
        this.tableCursor = exportNext();
        if (this.tableCursor != EXPORT_DONE) return;
        this.tableCursor = 0;
        this.tablePod++;
        if (bytes > 0) return;
      } else {
        this.tablePod++;
      }
    }
  }

  private failed(nowMs: f64, status: u32): void {
    this.sendsEndpoints = true;
    this.backOff(nowMs);
    this.counters.countSyncFailed(this.failures, status);
  }

  /** The HTTP status of the answer at hand, 0 when it has none. */
  private answerStatus(): u32 {
    if (header(HEADERS_CALL, STATUS_HEADER) != STATUS_OK || resultBytes != 3) return 0;
    let status: u32 = 0;
    for (let i: usize = 0; i < 3; i++) status = status * 10 + (<u32>load<u8>(resultPtr + i) - 0x30);
    return status;
  }

  private backOff(nowMs: f64): void {
    this.hasCall = false;
    this.failures++;
    let wait: f64 = 50;
    for (let i: u32 = 0; i < this.failures && wait < BACKOFF_MS_MAX; i++) wait *= 2;
    this.nextMs = nowMs + wait;
  }

  /** The answer to a call. Returns false when it was not this leader's. */
  answered(id: u32, nowMs: f64): bool {
    if (!this.hasCall || id != this.callId) return false;
    this.hasCall = false;
    const status = this.answerStatus();
    if (status < 200 || status > 299 || bufferSize(BUFFER_CALL_BODY) != STATUS_OK) {
      this.failed(nowMs, status);
      return true;
    }
    const error = this.take(<u32>resultNumber);
    this.tellProgress();
    if (error != FRAME_OK) {
      this.counters.countSyncRejected(error);
      this.backOff(nowMs);
      return true;
    }
    this.failures = 0;
    this.counters.countSyncOk();
    return true;
  }

  /**
   * Takes in an answer of one or more frames, up to the first that is not sound; returns what is wrong with it. Each frame is fetched
   * by itself: a snapshot has many, and the host hands over no more at once than one of them may be long.
   */
  private take(length: u32): u32 {
    let at: u32 = 0;
    let frames: u32 = 0;
    while (at < length) {
      const status = bufferBytes(BUFFER_CALL_BODY, at, min(length - at, FRAME_BYTES_MAX));
      const error = status == STATUS_OK ? frameCheck(resultPtr, <u32>resultBytes) : FRAME_ERROR_LENGTH;
      if (error != FRAME_OK) return error;
      const bytes = frameBytes();
      if (framePool() == this.poolHash) {
        this.publish(resultPtr, bytes);
        frames++;
      }
      at += bytes;
    }
    return frames > 0 ? FRAME_OK : FRAME_ERROR_SHORT;
  }

  private publish(frame: usize, bytes: u32): void {
    if (frameFlags() & FLAG_WANT_TABLE) {
      this.tablePod = 0;
      this.tableCursor = 0;
    }
    this.epoch = frameEpoch();
    this.sequence = frameSequence();
    if (frameHas(SECTION_GATEWAY)) {
      const box = this.exchange.outbox;
      const taken = gatewayTouchesNext() - box.first;
      if (taken == this.sentRecords) box.drop(this.sentRecords, this.sentBytes);
      this.sentRecords = 0;
      this.sentBytes = 0;
    }
    if (frameHas(SECTION_TOUCHES)) {
      const isLast = (frameFlags() & FLAG_MORE) == 0;
      if (isLast) this.wantsSnapshot = false;
      this.put(KEY_TABLE, <u32>(this.tableWritten % TABLE_RING), frame, bytes);
      this.tableWritten++;
    }
    if (frameHas(SECTION_METRICS)) this.put(KEY_METRICS, 0, frame, bytes);
    if (frameHas(SECTION_POOL)) this.put(KEY_POOL, 0, frame, bytes);
  }

  private put(kind: u8, index: u32, ptr: usize, bytes: u32): void {
    const key = this.keys.of(kind, index);
    sharedDataSet(key.ptr, key.length, ptr, bytes);
  }
}
