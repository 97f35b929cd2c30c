// The sync with the gateways: a body of report frames goes in, a body of answer frames comes out. Nothing here knows HTTP.
//
// A body is taken in as a whole or not at all: every frame is checked before the first changes anything. For each report
// the answer has, in this order:
//   - a delta with the pool's settings, secret and endpoints, when the gateway holds another version or another epoch;
//   - a delta with the load of the other gateways, the scraped metrics and the acknowledgement of its touches;
//   - the other gateways' touches since its last sequence, or a snapshot when it asked for one or lagged too far.
// The sequence stands in every frame and says how far the gateway is once it has applied that frame and those before it.
import { AnswerBody } from './answer-body.ts';
import type { Clock } from './clock.ts';
import { FRAME_BYTES_MAX, FrameError, noLoadRows } from './engine/frames.ts';
import type { Frame, Frames, FrameToWrite, LoadRows, TouchChunk } from './engine/frames.ts';
import { ControlPlaneError, frameErrorCode } from './errors.ts';
import type { Gateway } from './gateways.ts';
import { LIMITS } from './limits.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import type { Pool } from './pool.ts';

interface Report {
  frame: Frame;
  chunk: TouchChunk | null;
  load: LoadRows | null;
  pool: Pool;
}

type Read = Pick<Report, 'frame' | 'chunk' | 'load'> & { bytes: number };

/** What a frame of touches needs beside the touches. */
const TOUCH_FRAME_BYTES = FRAME_BYTES_MAX - 256;

export class Sync {
  #epoch: bigint;
  readonly #frames: Frames;
  readonly #pools: Map<bigint, Pool>;
  readonly #clock: Clock;
  readonly #metrics: Metrics;
  readonly #log: Log;
  readonly #answer = new AnswerBody();
  /** Load of a body's first report, which is mostly the only one, and that of the others in an answer. */
  readonly #firstLoad = noLoadRows();
  readonly #othersLoad = noLoadRows();

  constructor(epoch: bigint, frames: Frames, pools: Pool[], clock: Clock, metrics: Metrics, log: Log) {
    this.#epoch = epoch;
    this.#frames = frames;
    this.#pools = new Map(pools.map((pool) => [pool.hash, pool]));
    this.#clock = clock;
    this.#metrics = metrics;
    this.#log = log;
  }

  get epoch(): bigint {
    return this.#epoch;
  }

  /** Begins anew: gateways are asked for what they hold. */
  begin(epoch: bigint): void {
    this.#epoch = epoch;
  }

  /** Answers a body of reports; throws ControlPlaneError and changes nothing when any frame is not sound. */
  answer(body: Uint8Array): Buffer {
    const startedMs = performance.now();
    const nowMs = this.#clock.nowMs();
    const reports = this.#read(body, nowMs);
    this.#answer.begin();
    for (const report of reports) this.#answerOne(report, nowMs);
    const answer = this.#answer.take();
    this.#metrics.syncBytesIn.add(body.length);
    this.#metrics.syncBytesOut.add(answer.length);
    this.#metrics.syncSeconds.observe((performance.now() - startedMs) / 1000);
    return answer;
  }

  /** An answer has been sent and its memory may be used again. One that is not given back stays as it is. */
  sent(answer: Buffer): void {
    this.#answer.give(answer);
  }

  #read(body: Uint8Array, nowMs: number): Report[] {
    if (body.length === 0) throw new ControlPlaneError('WARMPATH_FRAME_SHORT', 'the body is empty');
    const reports: Report[] = [];
    for (let at = 0; at < body.length;) {
      const load = reports.length === 0 ? this.#firstLoad : noLoadRows();
      const { bytes, ...read } = this.#readFrame(body.subarray(at), at, nowMs, load);
      const { frame } = read;
      if (frame.kind !== 'report') {
        throw new ControlPlaneError('WARMPATH_REPORT_EXPECTED', `the frame at byte ${at} is a ${frame.kind}`);
      }
      const pool = this.#pools.get(frame.poolHash);
      if (pool === undefined) {
        const hash = frame.poolHash.toString(16).padStart(16, '0');
        const names = [...this.#pools.values()].map(({ name }) => name).join(', ');
        throw new ControlPlaneError('WARMPATH_POOL_UNKNOWN', `no pool has the name hash ${hash}; there are ${names}`);
      }
      // One a pool, which bounds the work and the answer for a body, and the gateways that it can bring.
      if (reports.some((report) => report.pool === pool)) {
        throw new ControlPlaneError(
          'WARMPATH_REPORT_REPEATED',
          `the frame at byte ${at} is of pool ${pool.name} again`,
        );
      }
      if (!pool.gateways.hasRoomFor(frame.gateway?.name ?? '')) {
        const message = `pool ${pool.name} has ${LIMITS.gateways} gateways already`;
        throw new ControlPlaneError('WARMPATH_GATEWAYS_TOO_MANY', message);
      }
      reports.push({ ...read, pool });
      at += bytes;
    }
    return reports;
  }

  #readFrame(body: Uint8Array, at: number, nowMs: number, into: LoadRows): Read {
    try {
      const code = this.#frames.check(body);
      if (code !== 'ok') throw new FrameError(code);
      this.#frames.clampTouchTimes(nowMs + LIMITS.clockSkewMs);
      const load = this.#frames.readLoad(into) ? into : null;
      const [frame, chunk, bytes] = [this.#frames.read(false), this.#frames.touchChunk(), this.#frames.bytes()];
      return { frame, chunk, load, bytes };
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      throw new ControlPlaneError(frameErrorCode(error.code), `the frame at byte ${at} is refused: ${error.code}`);
    }
  }

  #answerOne(report: Report, nowMs: number): void {
    const { frame, pool } = report;
    const name = frame.gateway?.name ?? '';
    const met = pool.gateways.meet(name, frame.gateway?.incarnation ?? 0n, nowMs);
    const { gateway } = met;
    if (met.isNew) this.#log.info('gateway reports', { pool: pool.name, gateway: name });
    if (pool.gateways.isDoubled(gateway, nowMs)) {
      this.#metrics.gatewaysDoubled.inc({ pool: pool.name });
      this.#log.warn('two gateways have one name; set "gateway" in their pluginConfig', { pool: pool.name, name });
    }
    const isSameEpoch = frame.epoch === this.epoch;
    if (!isSameEpoch && frame.endpoints) pool.adopt(frame.endpoints);
    // Whose counters are met for the first time although the gateway is not new: its past was counted before.
    if (met.isNew && frame.epoch !== 0n && !isSameEpoch) gateway.setsLevel = true;
    this.#takeIn(report, gateway, nowMs);
    this.#compose(report, gateway, nowMs);
  }

  #takeIn({ frame, chunk, load, pool }: Report, gateway: Gateway, nowMs: number): void {
    gateway.reports++;
    gateway.workers = frame.gateway?.workers ?? 0;
    gateway.settingsVersion = frame.epoch === this.epoch ? frame.settingsVersion : 0;
    if (load !== null) pool.gateways.setLoad(gateway, load, nowMs);
    this.#takeTouches(pool, gateway, frame, chunk);
    // The report after those of its table: all of it has come.
    if (frame.epoch === this.epoch && !frame.flags.includes('table')) gateway.tableAskedMs = 0;
    const { outcomes } = frame;
    if (outcomes === undefined) return;
    if (gateway.setsLevel) pool.learned.ratio.adopt(outcomes.bytesPerToken, outcomes.ratioTokens);
    const { pods, kinds } = pool.gateways.outcomesSince(gateway, outcomes);
    for (const rise of pods) pool.counts.takeOutcome(rise);
    pool.takeOutcomes(pods);
    for (const rise of kinds) pool.learned.takeKind(rise);
  }

  #takeTouches(pool: Pool, gateway: Gateway, frame: Frame, chunk: TouchChunk | null): void {
    const first = frame.gateway?.touchesNext ?? 0n;
    if (chunk === null || chunk.records === 0) {
      gateway.touchesNext = first;
      return;
    }
    // What a gateway holds is taken into the table only; the others have tables of their own.
    if (frame.flags.includes('table')) {
      this.#apply(pool, chunk);
      gateway.touchesNext = first;
      return;
    }
    const next = first + BigInt(chunk.records);
    // A report that was sent again because its answer got lost has been taken in already.
    const isKnown = gateway.reports > 1 && next <= gateway.touchesNext;
    gateway.touchesNext = next;
    if (isKnown) return;
    this.#apply(pool, chunk);
    pool.log.append(gateway.name, chunk);
  }

  #apply(pool: Pool, chunk: TouchChunk): void {
    const skipped = pool.table.apply(chunk);
    pool.counts.touches.add(chunk.records);
    if (skipped > 0) this.#metrics.touchesSkipped.inc({ pool: pool.name }, skipped);
  }

  #compose({ frame, pool }: Report, gateway: Gateway, nowMs: number): void {
    const isSameEpoch = frame.epoch === this.epoch;
    const reached = isSameEpoch ? frame.sequence : 0n;
    gateway.sequence = reached;
    const asksTable = frame.epoch !== 0n && !isSameEpoch;
    if (asksTable) gateway.tableAskedMs = nowMs;
    const isAgain = gateway.wantsSnapshotAgain && !pool.gateways.isTelling(nowMs);
    const asks = frame.flags.includes('wantSnapshot') || frame.epoch === 0n;
    const wantsSnapshot = asks || isAgain || !pool.log.reachesBack(reached);
    if (isAgain) gateway.wantsSnapshotAgain = false;
    if (asks && pool.gateways.isTelling(nowMs)) gateway.wantsSnapshotAgain = true;
    const { settingsVersion } = pool;
    const head: FrameToWrite = {
      kind: 'delta',
      epoch: this.epoch,
      // A sequence that was never given out counts for nothing.
      sequence: reached > pool.log.last ? 0n : reached,
      poolHash: pool.hash,
      settingsVersion,
      // A gateway that comes from an earlier control plane may hold a table worth having.
      flags: asksTable ? ['wantTable'] : [],
    };
    const isNews = !isSameEpoch || frame.settingsVersion !== settingsVersion;
    if (isNews) this.#settings(pool, head);
    // Metrics of a scrape are told once: a gateway that misses an answer hears the next scrape. Gateways age them by themselves.
    const isWhole = isNews || wantsSnapshot;
    const scrapesTold = isWhole ? 0 : gateway.scrapesTold;
    const adapters = pool.adapterRecords(scrapesTold);
    gateway.scrapesTold = pool.scraper.scrapes;
    pool.gateways.loadOfOthers(gateway, pool.pods.ids(), nowMs, this.#othersLoad);
    this.#add({
      ...head,
      loadRows: this.#othersLoad,
      ...(isWhole
        ? { metrics: pool.metricsRecords(nowMs) }
        : { putMetrics: (put) => pool.putMetrics(scrapesTold, nowMs, put) }),
      gateway: {
        name: gateway.name,
        incarnation: gateway.incarnation,
        workers: gateway.workers,
        touchesNext: gateway.touchesNext,
      },
      ...(adapters.length === 0 ? {} : { adapters }),
    });
    if (wantsSnapshot) {
      this.#snapshot(pool, head);
    } else {
      const { chunks, reaches } = pool.log.since(reached, gateway.name, LIMITS.syncTouchBytes);
      if (reaches > reached) this.#touches({ ...head, sequence: reaches }, chunks, reached);
    }
    (wantsSnapshot ? pool.counts.snapshots : pool.counts.deltas).add(1);
  }

  #add(frame: FrameToWrite): void {
    this.#answer.add(this.#frames.write(frame));
  }

  #settings(pool: Pool, head: FrameToWrite): void {
    const aliases = pool.models.records;
    this.#add({
      ...head,
      pool: pool.settings(),
      secret: pool.secret,
      endpoints: pool.pods.records(),
      ...(aliases === null ? {} : { aliases }),
    });
  }

  #snapshot(pool: Pool, head: FrameToWrite): void {
    const groups = grouped(pool.table.snapshot(LIMITS.snapshotBytes));
    if (groups.length === 0) groups.push([]);
    groups.forEach((chunks, index) => {
      const isLast = index === groups.length - 1;
      const sequence = isLast ? pool.log.last : head.sequence;
      const flags: FrameToWrite['flags'] = isLast ? [] : ['more'];
      this.#add({ ...head, kind: 'snapshot', sequence, flags, touches: [], touchChunks: chunks });
    });
  }

  // Touches may take several frames; only the last one says that the gateway has come so far.
  #touches(head: FrameToWrite, chunks: TouchChunk[], reached: bigint): void {
    const groups = grouped(chunks);
    if (groups.length === 0) groups.push([]);
    groups.forEach((group, index) => {
      const sequence = index === groups.length - 1 ? head.sequence : reached;
      this.#add({ ...head, sequence, touches: [], touchChunks: group });
    });
  }
}

/** Chunks put together so that each group fits into one frame. */
function grouped(chunks: TouchChunk[]): TouchChunk[][] {
  const groups: TouchChunk[][] = [];
  let bytes = 0;
  for (const chunk of chunks) {
    const last = groups.at(-1);
    if (last === undefined || bytes + chunk.bytes.length > TOUCH_FRAME_BYTES) {
      groups.push([chunk]);
      bytes = chunk.bytes.length;
    } else {
      last.push(chunk);
      bytes += chunk.bytes.length;
    }
  }
  return groups;
}
