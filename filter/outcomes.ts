// How requests ended and what the engines said of them, by pod, on its way to the control plane.
//
// Every VM keeps totals of its own and writes them now and then beside its segment's head. The leader adds up how much each writer's totals
// have grown since it looked last, so that a worker that starts anew or goes away takes nothing back. What grew between one
// leader's last look and the next one's first is not told; these numbers are statistics, and no pick depends on them.
import {
  frameBegin,
  frameCheck,
  frameEnd,
  frameEpoch,
  outcomeCount,
  outcomePodId,
  outcomeResets,
  outcomeTotal,
  outcomeTtftMsSum,
  writeOutcome,
  writeOutcomeTotal,
  FRAME_HEADER_BYTES,
  FRAME_OK,
  KIND_SEGMENT,
  OUTCOME_BYTES,
  OUTCOME_COUNTERS,
  SECTION_HEADER_BYTES,
} from './engine/frame';
import { PODS_MAX, SEGMENTS_MAX } from './engine/limits';
import { Keyspace, KEY_OUTCOMES } from './keyspace';
import { podId, podInPool, podOfId, podSlots } from './pods';
import { resultBytes, resultPtr, sharedData, sharedDataSet } from './proxy-wasm/host';
import { STATUS_OK } from './proxy-wasm/status';

const PUBLISH_MS: f64 = 500;
/** A pod's row: the counters of the wire, then streams reset and the sum of times to first token in ms. */
const ROW: u32 = OUTCOME_COUNTERS + 2;
const RESETS: u32 = OUTCOME_COUNTERS;
const TTFT_MS: u32 = OUTCOME_COUNTERS + 1;

const REGION_BYTES: u32 = FRAME_HEADER_BYTES + SECTION_HEADER_BYTES + PODS_MAX * OUTCOME_BYTES;
const region: usize = heap.alloc(REGION_BYTES);

/** Totals of one pool, as one VM counts them and as its leader adds them up. */
export class Outcomes {
  /** Own totals, a row a pod slot, and the pod that the row is about. */
  private own: StaticArray<f64>;
  private ownIds: StaticArray<u32>;
  /** The gateway's totals since this VM leads, and what each segment had told when it was looked at last. */
  private totals: StaticArray<f64>;
  private totalIds: StaticArray<u32>;
  private seen: StaticArray<f64>;
  private seenIds: StaticArray<u32>;
  private writers: StaticArray<u64> = new StaticArray<u64>(SEGMENTS_MAX);
  private isDirty: bool = false;
  private publishedMs: f64 = 0;

  constructor(
    private keys: Keyspace,
    private pool: u32,
    private nonce: u64,
  ) {
    const pods = podSlots();
    this.own = new StaticArray<f64>(pods * ROW);
    this.ownIds = new StaticArray<u32>(pods);
    this.totals = new StaticArray<f64>(pods * ROW);
    this.totalIds = new StaticArray<u32>(pods);
    this.seen = new StaticArray<f64>(pods * ROW * SEGMENTS_MAX);
    this.seenIds = new StaticArray<u32>(pods * SEGMENTS_MAX);
  }

  /** Adds to one of the wire's counters of a pod. */
  add(pod: u32, counter: u32, amount: f64): void {
    if (pod >= <u32>this.ownIds.length || counter >= ROW) return;
    claimRow(this.own, this.ownIds, pod, podId(pod));
    this.own[pod * ROW + counter] += amount;
    this.isDirty = true;
  }

  addReset(pod: u32): void {
    this.add(pod, RESETS, 1);
  }

  /** A clock that was set back meanwhile makes it negative, which the wire does not carry. */
  addTtft(pod: u32, ttftMs: f64): void {
    this.add(pod, TTFT_MS, max(ttftMs, <f64>0));
  }

  /** Writes own totals for the leader to read, every so often. `segment` is this VM's; -1: it has none. */
  publish(segment: i32, nowMs: f64): void {
    if (segment < 0 || !this.isDirty || nowMs - this.publishedMs < PUBLISH_MS) return;
    this.isDirty = false;
    this.publishedMs = nowMs;
    frameBegin(region, REGION_BYTES, KIND_SEGMENT, this.nonce, 0, 0, 0, 0);
    this.writeRows(this.own, this.ownIds);
    const bytes = frameEnd();
    const key = this.keys.of(KEY_OUTCOMES, segment);
    sharedDataSet(key.ptr, key.length, region, bytes);
  }

  /** Takes in what all segments have told, own included. */
  collect(): void {
    for (let segment = 0; segment < SEGMENTS_MAX; segment++) {
      const key = this.keys.of(KEY_OUTCOMES, segment);
      if (sharedData(key.ptr, key.length) != STATUS_OK) continue;
      if (frameCheck(resultPtr, <u32>resultBytes) == FRAME_OK) this.take(segment);
    }
  }

  /** A new leader begins with what has been told so far, and counts what comes on top. */
  begin(): void {
    for (let segment = 0; segment < SEGMENTS_MAX; segment++) this.writers[segment] = 0;
    this.collect();
    for (let i = 0; i < this.totals.length; i++) this.totals[i] = 0;
  }

  /** Writes the gateway's totals into the report that is being written. */
  write(): void {
    this.writeRows(this.totals, this.totalIds);
  }

  private take(segment: u32): void {
    const pods = <u32>this.ownIds.length;
    if (this.writers[segment] != frameEpoch()) {
      this.writers[segment] = frameEpoch();
      for (let pod: u32 = 0; pod < pods; pod++) this.seenIds[segment * pods + pod] = 0;
    }
    const count = outcomeCount();
    for (let i: u32 = 0; i < count; i++) {
      const pod = podOfId(this.pool, outcomePodId(i));
      if (pod < 0) continue;
      claimRow(this.totals, this.totalIds, pod, outcomePodId(i));
      claimRow(this.seen, this.seenIds, segment * pods + pod, outcomePodId(i));
      for (let counter: u32 = 0; counter < OUTCOME_COUNTERS; counter++) {
        this.grow(segment * pods + pod, pod, counter, <f64>outcomeTotal(i, counter));
      }
      this.grow(segment * pods + pod, pod, RESETS, outcomeResets(i));
      this.grow(segment * pods + pod, pod, TTFT_MS, outcomeTtftMsSum(i));
    }
  }

  private grow(seenRow: u32, pod: u32, counter: u32, told: f64): void {
    const before = this.seen[seenRow * ROW + counter];
    this.seen[seenRow * ROW + counter] = told;
    if (told > before) this.totals[pod * ROW + counter] += told - before;
  }

  private writeRows(rows: StaticArray<f64>, rowIds: StaticArray<u32>): void {
    for (let pod: u32 = 0; pod < <u32>rowIds.length; pod++) {
      const id = rowIds[pod];
      if (id == 0 || !podInPool(pod, this.pool) || id != podId(pod)) continue;
      const at = pod * ROW;
      if (!writeOutcome(id, <u32>rows[at + RESETS], rows[at + TTFT_MS])) return;
      for (let counter: u32 = 0; counter < OUTCOME_COUNTERS; counter++) {
        writeOutcomeTotal(counter, <u64>rows[at + counter]);
      }
    }
  }
}

/** Makes a row one of this pod, empty if it was another's. */
function claimRow(rows: StaticArray<f64>, rowIds: StaticArray<u32>, row: u32, id: u32): void {
  if (rowIds[row] == id) return;
  rowIds[row] = id;
  for (let counter: u32 = 0; counter < ROW; counter++) rows[row * ROW + counter] = 0;
}
