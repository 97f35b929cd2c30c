// From the records of an outage to its row in the table: how many requests ended how, and when picks were right again.

import type { Record } from './load.ts';
import type { Outage } from './cases.ts';

/** Picks are judged over so many milliseconds at a time, every so many. */
const windowMs = 1000;
const stepMs = 100;
const traceMs = 500;
const requestsMin = 20;
/** What share of the hits from before the outage is right again. */
const hitsAgain = 0.9;
/** A request on trial now and then, at each worker, is not a wrong pick. */
const strayShare = 0.06;
const straysMin = 4;

export interface Tally {
  requests: number;
  failed: number;
  cut: number;
  hung: number;
  ttftMsP95: number;
}

export interface Times {
  beforeMs: number;
  beginMs: number;
  /** When what breaks had broken; where something is started anew, when it was there again. */
  begunMs: number;
  /** When it was mended, or the end of the run. */
  endMs: number;
  stopMs: number;
}

export interface Picks {
  /** Share of requests that met their text in the cache, before and at the end. */
  hitsBefore: number;
  hitsAfter: number;
  /** From the begin of the outage, or its end where only that can bring right picks; null = never. */
  rightAfterMs: number | null;
  /** From the end of the outage until the replica was used again; null = never, undefined = not asked. */
  usedAgainMs: number | null | undefined;
}

export function tally(records: readonly Record[], times: Times): Tally {
  const during = records.filter(({ startMs, endMs }) => endMs >= times.beginMs && startMs < times.stopMs);
  const count = (outcome: Record['outcome']): number => during.filter((record) => record.outcome === outcome).length;
  const ttft = during.flatMap(({ ttftMs }) => (ttftMs > 0 ? [ttftMs] : [])).toSorted((a, b) => a - b);
  return {
    requests: during.length,
    failed: count('failed'),
    cut: count('cut'),
    hung: count('hung'),
    ttftMsP95: Math.round(ttft[Math.floor(ttft.length * 0.95)] ?? 0),
  };
}

const share = (records: readonly Record[], is: (record: Record) => boolean): number =>
  records.length === 0 ? 0 : records.filter(is).length / records.length;

/** The windows from one moment to another that have enough requests to be judged, by their end. */
function* windows(records: readonly Record[], fromMs: number, toMs: number): Generator<[number, Record[]]> {
  for (let start = fromMs; start + windowMs <= toMs; start += stepMs) {
    const inside = records.filter(({ startMs }) => startMs >= start && startMs < start + windowMs);
    if (inside.length >= requestsMin) yield [start + windowMs, inside];
  }
}

export function judge(records: readonly Record[], outage: Outage, times: Times, faulty: string, pods: number): Picks {
  const fair = 1 / pods;
  const before = records.filter(({ startMs }) => startMs >= times.beforeMs && startMs < times.beginMs);
  const isHit = (record: Record): boolean => record.isHit;
  const hitsBefore = outage.isAbsentAtStart ? 1 : share(before, isHit);
  const isBroken = (record: Record): boolean =>
    record.pod === faulty || record.attempts !== 1 || record.outcome !== 'ok';
  const usesMax = (requests: number): number =>
    ({ nothing: Math.max(strayShare, straysMin / requests), little: fair / 2, share: 1 })[outage.faulty];
  const isRight = (window: readonly Record[]): boolean =>
    share(window, isHit) >= hitsBefore * hitsAgain &&
    (outage.faulty === 'share' || share(window, isBroken) <= usesMax(window.length));

  const sinceMs = { begin: times.beginMs, begun: times.begunMs, end: times.endMs }[outage.since];
  const untilMs = outage.since === 'end' ? times.stopMs : times.endMs;
  let rightAfterMs: number | null = 0;
  for (const [endMs, window] of windows(records, sinceMs, untilMs)) {
    if (isRight(window)) rightAfterMs ??= endMs - windowMs - sinceMs;
    else rightAfterMs = null;
  }
  const after = records.filter(({ startMs }) => startMs >= untilMs - 1000 && startMs < untilMs);
  let usedAgainMs: number | null | undefined;
  if (outage.faulty !== 'share' && outage.end !== undefined) {
    usedAgainMs = null;
    for (const [endMs, window] of windows(records, times.endMs, times.stopMs)) {
      if (share(window, ({ pod }) => pod === faulty) < fair / 2) continue;
      usedAgainMs = endMs - windowMs - times.endMs;
      break;
    }
  }
  return { hitsBefore, hitsAfter: share(after, isHit), rightAfterMs, usedAgainMs };
}

/** The course of a run, a line a window: when, requests, hits, share of the faulty replica, share of requests that did not go straight. */
export function trace(records: readonly Record[], times: Times, faulty: string): string {
  let text = '';
  for (let start = times.beforeMs; start < times.stopMs; start += traceMs) {
    const inside = records.filter(({ startMs }) => startMs >= start && startMs < start + traceMs);
    const bent = share(inside, ({ attempts, outcome }) => attempts !== 1 || outcome !== 'ok');
    const shares = [share(inside, ({ isHit }) => isHit), share(inside, ({ pod }) => pod === faulty), bent];
    const cells = [((start - times.beginMs) / 1000).toFixed(1), inside.length, ...shares.map((one) => one.toFixed(2))];
    text += `${cells.map((cell) => `${cell}`.padStart(7)).join('')}\n`;
  }
  return text;
}
