// How requests ended and what the engines said of them, by pod and by kind of request, on its way to the control plane.
//
// Every VM keeps totals of its own and writes them now and then beside its segment's head. The leader adds up how much each writer's totals
// have grown since it looked last, so that a worker that starts anew, goes away or finds itself in another segment neither takes anything
// back nor counts twice. What grew between one leader's last look and the next one's first is not told; these numbers are
// statistics, and no pick depends on a single one of them.
import {
  frameBegin,
  frameCheck,
  frameEnd,
  frameEpoch,
  outcomeCount,
  outcomeKindApi,
  outcomeKindCount,
  outcomeKindLanguage,
  outcomeKindTotal,
  outcomePodId,
  outcomeResets,
  outcomeTotal,
  outcomeTtftMsSum,
  writeOutcome,
  writeOutcomeKind,
  writeOutcomes,
  writeOutcomeTotal,
  FRAME_HEADER_BYTES,
  FRAME_OK,
  KIND_SEGMENT,
  LANGUAGES,
  OUTCOME_ACTUAL_CACHED_TOKENS,
  OUTCOME_BYTES,
  OUTCOME_CONFIRMED,
  OUTCOME_CONTRADICTED,
  OUTCOME_COUNTERS,
  OUTCOME_ERRORS,
  OUTCOME_EXCEEDED,
  OUTCOME_KINDS,
  OUTCOME_KIND_ACTUAL_TOKENS,
  OUTCOME_KIND_BYTES,
  OUTCOME_KIND_CLOSE,
  OUTCOME_KIND_COUNTERS,
  OUTCOME_KIND_ERRORS,
  OUTCOME_KIND_ESTIMATED_TOKENS,
  OUTCOME_KIND_PREDICTED_TOKENS,
  OUTCOME_KIND_PROMPT_BYTES,
  OUTCOME_KIND_PROMPT_TOKENS,
  OUTCOME_KIND_REQUESTS,
  OUTCOME_PREDICTED_CACHED_TOKENS,
  OUTCOME_PROMPT_BYTES,
  OUTCOME_PROMPT_TOKENS,
  OUTCOMES_HEADER_BYTES,
  SECTION_HEADER_BYTES,
} from './engine/frame';
import { MATCH_QUEUE_TOKENS_MAX, PODS_MAX, SEGMENTS_MAX } from './engine/limits';
import { MATCH_CONFIRMED, MATCH_CONTRADICTED, MATCH_EXCEEDED, matchIsClose, matchJudge } from './engine/match';
import { poolBytesPerToken, poolTokens } from './engine/pool';
import { Keyspace, KEY_OUTCOMES } from './keyspace';
import { podId, podInPool, podOfId, podSlots } from './pods';
import { resultBytes, resultPtr, sharedData, sharedDataSet } from './proxy-wasm/host';
import { STATUS_OK } from './proxy-wasm/status';

const PUBLISH_MS: f64 = 500;
/** A pod's row: the counters of the wire, then streams reset and the sum of times to first token in us. */
const ROW: u32 = OUTCOME_COUNTERS + 2;
const RESETS: u32 = OUTCOME_COUNTERS;
const TTFT_US: u32 = OUTCOME_COUNTERS + 1;

/** Upper bounds of the buckets of predicted minus actual tokens; a last bucket takes the rest. */
const ERROR_BOUNDS: StaticArray<f64> = [-4096, -1024, -256, -64, -16, 16, 64, 256, 1024, 4096];

const KIND_TOTALS: u32 = OUTCOME_KINDS * OUTCOME_KIND_COUNTERS;
const KINDS_BYTES: u32 = OUTCOME_KINDS * OUTCOME_KIND_BYTES;
const REGION_BYTES: u32 =
  FRAME_HEADER_BYTES + SECTION_HEADER_BYTES + OUTCOMES_HEADER_BYTES + PODS_MAX * OUTCOME_BYTES + KINDS_BYTES;
const region: usize = heap.alloc(REGION_BYTES);

/** What the section takes at most in a frame, with so many pods. */
export function outcomesBytes(pods: u32): u32 {
  return SECTION_HEADER_BYTES + OUTCOMES_HEADER_BYTES + pods * OUTCOME_BYTES + KINDS_BYTES;
}

/** Totals of one pool, as one VM counts them and as its leader adds them up. */
export class Outcomes {
  /** Own totals, a row a pod slot, and the pod that the row is about; and a row a kind. */
  private own: StaticArray<u64>;
  private ownIds: StaticArray<u32>;
  private ownKinds: StaticArray<u64> = new StaticArray<u64>(KIND_TOTALS);
  /** The gateway's totals since this VM leads. */
  private totals: StaticArray<u64>;
  private totalIds: StaticArray<u32>;
  private totalKinds: StaticArray<u64> = new StaticArray<u64>(KIND_TOTALS);
  /**
   * What each writer had told when it was looked at last, the low halves of its totals: between two looks none grows by 2^31. A writer
   * keeps its place as long as any segment has its totals.
   */
  private seen: StaticArray<u32>;
  private seenIds: StaticArray<u32>;
  private seenKinds: StaticArray<u32> = new StaticArray<u32>(SEGMENTS_MAX * KIND_TOTALS);
  private writers: StaticArray<u64> = new StaticArray<u64>(SEGMENTS_MAX);
  private writersSeen: StaticArray<u32> = new StaticArray<u32>(SEGMENTS_MAX);
  private looks: u32 = 0;
  private isNewWriter: bool = false;
  private isDirty: bool = false;
  private publishedMs: f64 = 0;
  /** Prompt tokens that usage told of, own requests only. */
  private ratioTokens: u64 = 0;

  constructor(
    private keys: Keyspace,
    private pool: u32,
    private nonce: u64,
  ) {
    const pods = podSlots();
    this.own = new StaticArray<u64>(pods * ROW);
    this.ownIds = new StaticArray<u32>(pods);
    this.totals = new StaticArray<u64>(pods * ROW);
    this.totalIds = new StaticArray<u32>(pods);
    this.seen = new StaticArray<u32>(SEGMENTS_MAX * pods * ROW);
    this.seenIds = new StaticArray<u32>(SEGMENTS_MAX * pods);
  }

  /** Adds to one of the wire's counters of a pod. */
  add(pod: u32, counter: u32, amount: u64): void {
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
    if (ttftMs > 0) this.add(pod, TTFT_US, <u64>(ttftMs * 1000));
  }

  private addKind(kind: u32, counter: u32, amount: u64): void {
    if (kind < OUTCOME_KINDS) this.ownKinds[kind * OUTCOME_KIND_COUNTERS + counter] += amount;
    this.isDirty = true;
  }

  /** The length of a prompt of some kind, as usage tells it. Before the pool's ratio learns from it. */
  addPrompt(pod: u32, kind: u32, promptBytes: u32, promptTokens: u32): void {
    this.add(pod, OUTCOME_PROMPT_BYTES, promptBytes);
    this.add(pod, OUTCOME_PROMPT_TOKENS, promptTokens);
    this.ratioTokens += promptTokens;
    this.addKind(kind, OUTCOME_KIND_REQUESTS, 1);
    this.addKind(kind, OUTCOME_KIND_PROMPT_BYTES, promptBytes);
    this.addKind(kind, OUTCOME_KIND_PROMPT_TOKENS, promptTokens);
    this.addKind(kind, OUTCOME_KIND_ESTIMATED_TOKENS, poolTokens(this.pool, promptBytes));
  }

  /**
   * How many tokens of a prompt the engine found in its cache, beside what was believed when it was sent; `blockTokens` is the size of
   * the block at the match's end, which may be held in part, `queued` what was to be computed before this request.
   */
  addCached(pod: u32, kind: u32, predicted: f64, actual: f64, blockTokens: f64, queued: f64): void {
    const error = predicted - actual;
    const tokens = <u64>Math.round(predicted);
    this.add(pod, OUTCOME_PREDICTED_CACHED_TOKENS, tokens);
    this.add(pod, OUTCOME_ACTUAL_CACHED_TOKENS, <u64>actual);
    this.addKind(kind, OUTCOME_KIND_PREDICTED_TOKENS, tokens);
    this.addKind(kind, OUTCOME_KIND_ACTUAL_TOKENS, <u64>actual);
    if (matchIsClose(predicted, actual, blockTokens)) this.addKind(kind, OUTCOME_KIND_CLOSE, 1);
    let bucket: u32 = 0;
    while (bucket < OUTCOME_ERRORS - 1 && error > ERROR_BOUNDS[bucket]) bucket++;
    this.addKind(kind, OUTCOME_KIND_ERRORS + bucket, 1);
    if (queued > MATCH_QUEUE_TOKENS_MAX) return;
    const judged = matchJudge(predicted, actual, blockTokens);
    if (judged == MATCH_CONFIRMED) this.add(pod, OUTCOME_CONFIRMED, 1);
    else if (judged == MATCH_CONTRADICTED) this.add(pod, OUTCOME_CONTRADICTED, 1);
    else if (judged == MATCH_EXCEEDED) this.add(pod, OUTCOME_EXCEEDED, 1);
  }

  /** Writes own totals for the leader to read, every so often. `segment` is this VM's; -1: it has none. */
  publish(segment: i32, nowMs: f64): void {
    if (segment < 0 || !this.isDirty || nowMs - this.publishedMs < PUBLISH_MS) return;
    this.isDirty = false;
    this.publishedMs = nowMs;
    frameBegin(region, REGION_BYTES, KIND_SEGMENT, this.nonce, 0, 0, 0, 0);
    this.writeRows(this.own, this.ownIds, this.ownKinds);
    const bytes = frameEnd();
    const key = this.keys.of(KEY_OUTCOMES, segment);
    sharedDataSet(key.ptr, key.length, region, bytes);
  }

  /** Takes in what all segments have told, own included. */
  collect(): void {
    this.looks++;
    for (let segment = 0; segment < SEGMENTS_MAX; segment++) {
      const key = this.keys.of(KEY_OUTCOMES, segment);
      if (sharedData(key.ptr, key.length) != STATUS_OK) continue;
      if (frameCheck(resultPtr, <u32>resultBytes) == FRAME_OK) this.take(this.placeOf(frameEpoch()));
    }
  }

  /** A new leader begins with what has been told so far, and counts what comes on top. */
  begin(): void {
    for (let place = 0; place < SEGMENTS_MAX; place++) this.writers[place] = 0;
    this.collect();
    memory.fill(changetype<usize>(this.totals), 0, this.totals.length << 3);
    memory.fill(changetype<usize>(this.totalKinds), 0, this.totalKinds.length << 3);
  }

  /** Writes the gateway's totals into the report that is being written. */
  write(): void {
    this.writeRows(this.totals, this.totalIds, this.totalKinds);
  }

  /** The place of a writer; a new one gets a free one, or that of the writer that no segment has told of for longest. */
  private placeOf(writer: u64): u32 {
    let oldest: u32 = 0;
    for (let place: u32 = 0; place < <u32>SEGMENTS_MAX; place++) {
      if (this.writers[place] == writer) {
        this.writersSeen[place] = this.looks;
        this.isNewWriter = false;
        return place;
      }
      if (this.writers[oldest] == 0) continue;
      if (this.writers[place] == 0 || this.writersSeen[place] < this.writersSeen[oldest]) oldest = place;
    }
    this.writers[oldest] = writer;
    this.writersSeen[oldest] = this.looks;
    this.isNewWriter = true;
    const pods = <u32>this.ownIds.length;
    for (let pod: u32 = 0; pod < pods; pod++) this.seenIds[oldest * pods + pod] = 0;
    for (let i: u32 = 0; i < KIND_TOTALS; i++) this.seenKinds[oldest * KIND_TOTALS + i] = 0;
    return oldest;
  }

  private take(place: u32): void {
    const pods = <u32>this.ownIds.length;
    const count = outcomeCount();
    for (let i: u32 = 0; i < count; i++) {
      const pod = podOfId(this.pool, outcomePodId(i));
      if (pod < 0) continue;
      const row = place * pods + pod;
      claimRow(this.totals, this.totalIds, pod, outcomePodId(i));
      const isNew = this.seenIds[row] != outcomePodId(i);
      this.seenIds[row] = outcomePodId(i);
      for (let counter: u32 = 0; counter < ROW; counter++) {
        const told = toldOfPod(i, counter);
        this.totals[pod * ROW + counter] += rise(this.seen, row * ROW + counter, told, isNew);
      }
    }
    const kinds = outcomeKindCount();
    for (let i: u32 = 0; i < kinds; i++) {
      const kind = <u32>outcomeKindApi(i) * LANGUAGES + <u32>outcomeKindLanguage(i);
      for (let counter: u32 = 0; counter < OUTCOME_KIND_COUNTERS; counter++) {
        const at = kind * OUTCOME_KIND_COUNTERS + counter;
        const told = outcomeKindTotal(i, counter);
        this.totalKinds[at] += rise(this.seenKinds, place * KIND_TOTALS + at, told, this.isNewWriter);
      }
    }
  }

  private writeRows(rows: StaticArray<u64>, rowIds: StaticArray<u32>, kinds: StaticArray<u64>): void {
    const ratioTokens = <u32>min(this.ratioTokens, <u64>u32.MAX_VALUE);
    if (!writeOutcomes(ratioTokens > 0 ? <f32>poolBytesPerToken(this.pool) : 0, ratioTokens)) return;
    for (let pod: u32 = 0; pod < <u32>rowIds.length; pod++) {
      const id = rowIds[pod];
      if (id == 0 || !podInPool(pod, this.pool) || id != podId(pod)) continue;
      const at = pod * ROW;
      if (!writeOutcome(id, <u32>rows[at + RESETS], <f64>rows[at + TTFT_US] / 1000)) return;
      for (let counter: u32 = 0; counter < OUTCOME_COUNTERS; counter++) {
        writeOutcomeTotal(counter, rows[at + counter]);
      }
    }
    for (let kind: u32 = 0; kind < OUTCOME_KINDS; kind++) {
      const at = kind * OUTCOME_KIND_COUNTERS;
      if (kinds[at + OUTCOME_KIND_REQUESTS] == 0) continue;
      if (!writeOutcomeKind(<u8>(kind / LANGUAGES), <u8>(kind % LANGUAGES))) return;
      for (let counter: u32 = 0; counter < OUTCOME_KIND_COUNTERS; counter++) {
        writeOutcomeTotal(counter, kinds[at + counter]);
      }
    }
  }
}

/** A total of the frame's pod number `index`, by its place in a row. */
function toldOfPod(index: u32, counter: u32): u64 {
  if (counter < OUTCOME_COUNTERS) return outcomeTotal(index, counter);
  return counter == RESETS ? outcomeResets(index) : <u64>(outcomeTtftMsSum(index) * 1000 + 0.5);
}

/** How much a total has grown since it was seen last. One that is lower was told before, in another segment. */
function rise(seen: StaticArray<u32>, at: u32, told: u64, isNew: bool): u64 {
  const risen = isNew ? told : <u64>max(<i32>(<u32>told - seen[at]), 0);
  if (risen > 0) seen[at] = <u32>told;
  return risen;
}

/** Makes a row one of this pod, empty if it was another's. */
function claimRow(rows: StaticArray<u64>, rowIds: StaticArray<u32>, row: u32, id: u32): void {
  if (rowIds[row] == id) return;
  rowIds[row] = id;
  for (let counter: u32 = 0; counter < ROW; counter++) rows[row * ROW + counter] = 0;
}
