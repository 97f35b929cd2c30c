// The gateways of one pool: what each of them has in flight, how far its touches have been taken in, and what its counters
// stood at. The load of all gateways is kept as running sums, so that "everybody but you" costs one subtraction a pod
// however many gateways there are.
import { noLoadRows } from './engine/records.ts';
import type { LoadRows } from './engine/records.ts';
import { KIND_COUNTERS, OUTCOME_COUNTERS } from './engine/outcomes.ts';
import type { OutcomeKindRecord, OutcomeRecord, OutcomesRecord } from './engine/outcomes.ts';
import { LIMITS } from './limits.ts';
import { LoadSums, OwnLoad } from './load-sums.ts';

export interface Gateway {
  name: string;
  incarnation: bigint;
  workers: number;
  /** Version of the settings that it said it holds. */
  settingsVersion: number;
  /** Number of the touch that is expected next. */
  touchesNext: bigint;
  seenMs: number;
  reports: number;
  /** Last sequence that the gateway said it had applied. */
  sequence: bigint;
  /** Number of the last scrape whose metrics the gateway has been told. */
  scrapesTold: number;
  /** The longest it was silent between its last two reports. */
  gapMs: number;
  /** When it was asked for its table and has not sent all of it yet; 0 = it is not asked. */
  tableAskedMs: number;
  /** It was given a snapshot while others were still telling theirs, and gets another one when they are done. */
  wantsSnapshotAgain: boolean;
  load: OwnLoad;
  outcomes: Map<number, OutcomeRecord>;
  kinds: Map<string, OutcomeKindRecord>;
  /** The next outcomes only set the level: what they tell was counted by an earlier control plane. */
  setsLevel: boolean;
}

const NO_LOAD: LoadRows = noLoadRows();

export class Gateways {
  readonly #baseMs: number;
  /** By name, newest life first. */
  readonly #gateways = new Map<string, Gateway[]>();
  readonly #sums = new LoadSums();
  /** By name: which life reported last, and how often another one did before. */
  readonly #turns = new Map<string, { last: Gateway; count: number; sinceMs: number; isTold: boolean }>();

  constructor(nowMs: number) {
    this.#baseMs = nowMs;
  }

  /** Each gateway in the life that reported last. */
  list(): Gateway[] {
    return [...this.#gateways.values()].flatMap((lives) =>
      lives.reduce<Gateway[]>((last, gateway) => (last[0] && last[0].seenMs >= gateway.seenMs ? last : [gateway]), []),
    );
  }

  isLive(gateway: Gateway, nowMs: number): boolean {
    return nowMs - gateway.seenMs <= Math.max(LIMITS.gatewayStaleMs, LIMITS.gatewayGaps * gateway.gapMs);
  }

  /** Whether there is room for a gateway of that name. */
  hasRoomFor(name: string): boolean {
    return this.#gateways.has(name) || this.#gateways.size < LIMITS.gateways;
  }

  /**
   * The gateway of that name in that life, made anew when it is unknown. While a filter is
   * replaced, leaders of the old and the new code may report in turn: each has counters of its own, but there is one load.
   */
  meet(name: string, incarnation: bigint, nowMs: number): { gateway: Gateway; isNew: boolean } {
    const lives = this.#gateways.get(name) ?? [];
    const known = lives.find((gateway) => gateway.incarnation === incarnation);
    for (const other of lives) if (other !== known && other.load.size > 0) this.setLoad(other, NO_LOAD, nowMs);
    if (known !== undefined) {
      known.gapMs = Math.min(Math.max(0, nowMs - known.seenMs), LIMITS.gatewayGapMs);
      known.seenMs = nowMs;
      return { gateway: known, isNew: false };
    }
    const gateway: Gateway = {
      name,
      incarnation,
      workers: 0,
      settingsVersion: 0,
      touchesNext: 0n,
      seenMs: nowMs,
      reports: 0,
      sequence: 0n,
      scrapesTold: 0,
      gapMs: 0,
      tableAskedMs: 0,
      wantsSnapshotAgain: false,
      load: new OwnLoad(),
      outcomes: new Map(),
      kinds: new Map(),
      setsLevel: false,
    };
    const kept = lives.toSorted((a, b) => b.seenMs - a.seenMs).slice(0, LIMITS.gatewayLives - 1);
    this.#gateways.set(name, [gateway, ...kept]);
    return { gateway, isNew: true };
  }

  /**
   * Whether two gateways seem to have one name: two lives that report in turn, again and again. While a filter is replaced that
   * happens a few times, since one leader follows the other. True once, when it is found.
   */
  isDoubled(gateway: Gateway, nowMs: number): boolean {
    const turns = this.#turns.get(gateway.name) ?? { last: gateway, count: 0, sinceMs: nowMs, isTold: false };
    if (nowMs - turns.sinceMs > LIMITS.gatewayTurnsMs) Object.assign(turns, { count: 0, sinceMs: nowMs });
    if (turns.last !== gateway) turns.count++;
    turns.last = gateway;
    this.#turns.set(gateway.name, turns);
    const isFound = turns.count >= LIMITS.gatewayTurns && !turns.isTold;
    turns.isTold ||= isFound;
    return isFound;
  }

  /** Whether gateways that were asked for their tables are still telling them. */
  isTelling(nowMs: number): boolean {
    return [...this.#gateways.values()].some((lives) =>
      lives.some(({ tableAskedMs }) => tableAskedMs > 0 && nowMs - tableAskedMs < LIMITS.tableTellMs),
    );
  }

  /** Drops the load of gateways that went silent, and forgets those silent for long. */
  sweep(nowMs: number): string[] {
    const silent: string[] = [];
    for (const [name, lives] of this.#gateways) {
      for (const gateway of lives) {
        if (this.isLive(gateway, nowMs) || gateway.load.size === 0) continue;
        this.setLoad(gateway, NO_LOAD, nowMs);
        silent.push(name);
      }
      const kept = lives.filter((gateway) => nowMs - gateway.seenMs <= LIMITS.gatewayForgottenMs);
      if (kept.length === 0) {
        this.#gateways.delete(name);
        this.#turns.delete(name);
      } else if (kept.length < lives.length) this.#gateways.set(name, kept);
    }
    return silent;
  }

  /** Replaces what a gateway has in flight. Pods with nothing to tell of are left out. */
  setLoad(gateway: Gateway, rows: LoadRows, nowMs: number): void {
    this.#sums.replace(gateway.load, rows, nowMs - this.#baseMs);
  }

  /** The load of all gateways but one on the pods of the pool; pods without any are left out. */
  loadOfOthers(except: Gateway | null, podIds: ReadonlySet<number>, nowMs: number, into: LoadRows): void {
    this.#sums.withoutOwn(except?.load ?? null, podIds, nowMs - this.#baseMs, into);
  }

  /**
   * How far a gateway's outcome counters rose since its last report. A counter that fell, because a worker was
   * replaced, has not risen.
   */
  outcomesSince(gateway: Gateway, { pods, kinds }: OutcomesRecord): Pick<OutcomesRecord, 'pods' | 'kinds'> {
    const isLevel = gateway.setsLevel;
    gateway.setsLevel = false;
    const rises = {
      pods: pods.map((pod) => podRise(gateway, pod)),
      kinds: kinds.map((kind) => kindRise(gateway, kind)),
    };
    return isLevel ? { pods: [], kinds: [] } : rises;
  }
}

const rise = (now: number, before: number | undefined): number => Math.max(0, now - (before ?? 0));

function podRise(gateway: Gateway, record: OutcomeRecord): OutcomeRecord {
  const before = gateway.outcomes.get(record.podId);
  // Set last, so that the first is the pod that was told of longest ago: it makes room, since pods come and go.
  gateway.outcomes.delete(record.podId);
  gateway.outcomes.set(record.podId, record);
  const [oldest] = gateway.outcomes.keys();
  if (gateway.outcomes.size > LIMITS.outcomePods && oldest !== undefined) gateway.outcomes.delete(oldest);
  const risen = { ...record };
  if (before === undefined) return risen;
  risen.resets = rise(record.resets, before.resets);
  risen.ttftMsSum = rise(record.ttftMsSum, before.ttftMsSum);
  for (const counter of OUTCOME_COUNTERS) risen[counter] = rise(record[counter], before[counter]);
  return risen;
}

/** Kinds come from short lists, so there is no end to look after. */
function kindRise(gateway: Gateway, record: OutcomeKindRecord): OutcomeKindRecord {
  const key = `${record.api} ${record.language}`;
  const before = gateway.kinds.get(key);
  gateway.kinds.set(key, record);
  const risen = { ...record, errors: record.errors.map((count, bucket) => rise(count, before?.errors[bucket])) };
  for (const counter of KIND_COUNTERS) risen[counter] = rise(record[counter], before?.[counter]);
  return risen;
}
