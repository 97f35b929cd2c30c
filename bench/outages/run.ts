// Runs one outage on a stage of its own: warm caches, a quiet while to compare with, the outage, and some time after it.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Outage } from './cases.ts';
import { judge, tally, trace, type Picks, type Tally, type Times } from './judge.ts';
import { Load } from './load.ts';
import { armNames, startStage, type ArmName, type StageOptions } from './stage.ts';

export interface RunOptions {
  seed: number;
  seconds: number;
  clients: number;
  plain: StageOptions['plain'];
  version?: string;
  /** How long caches are warmed, and how long it is quiet before the outage. */
  warmMs?: number;
  quietMs?: number;
  /** Gets the course of the filter's arm and Envoy's log. */
  onTrace?: (text: string) => void;
}

export interface Result {
  name: string;
  what: string;
  arms: Record<ArmName, Tally>;
  picks: Picks;
  /** Bounds that did not hold, in words. */
  broken: string[];
}

export const conditions = {
  replicas: 4,
  engine: 'H100-8B',
  kvTokens: 24_000,
  workers: 2,
  groups: 40,
  sharedTokens: 1000,
  outputTokens: 8,
  thinkMs: 250,
  tryTimeoutMs: 2000,
  idleTimeoutMs: 5000,
  patienceMs: 12_000,
  scrapeIntervalMs: 500,
} as const;

/** Fewer tell nothing. */
const requestsMin = 50;
/** A replica that failed all the time is tried again at the latest as long after it was mended as it was broken, and the trial takes its time. */
const trialMs = 3000;
const warmMsDefault = 4000;
const warmMsMore = 10_000;
const quietMsDefault = 2000;

export async function runOutage(outage: Outage, options: RunOptions): Promise<Result> {
  const { replicas, engine, kvTokens, workers, tryTimeoutMs, idleTimeoutMs, scrapeIntervalMs, ...load } = conditions;
  const stage = await startStage({
    replicas,
    replica: { engine, kvTokens },
    plain: options.plain,
    workers,
    tryTimeoutMs,
    idleTimeoutMs,
    scrapeIntervalMs,
    hasControlPlane: outage.isAbsentAtStart !== true,
    keepsSecret: outage.losesSecret !== true,
    ...(options.version === undefined ? {} : { version: options.version }),
  });
  try {
    const { seed, clients, seconds, warmMs = warmMsDefault, quietMs = quietMsDefault } = options;
    const loads = armNames.map((arm) => new Load({ ...load, url: stage.url(arm), seed, clients }));
    await sleep(warmMs);
    if (outage.isAbsentAtStart !== true) await warmed(loads[0]!);
    const beforeMs = performance.now();
    await sleep(quietMs);
    const beginMs = performance.now();
    await outage.begin(stage);
    const begunMs = performance.now();
    await sleep(seconds * 1000);
    const endMs = performance.now();
    if (outage.end !== undefined) {
      await outage.end(stage);
      await sleep(seconds * 1000 + trialMs);
    }
    const times: Times = { beforeMs, beginMs, begunMs, endMs, stopMs: performance.now() };
    const [picked, plain] = await Promise.all(loads.map((one) => one.stop()));
    const arms = { warmpath: tally(picked!, times), plain: tally(plain!, times) };
    const picks = judge(picked!, outage, times, stage.fleets.warmpath.faulty, replicas);
    const log = await stage.envoy.log();
    options.onTrace?.(trace(picked!, times, stage.fleets.warmpath.faulty) + log);
    return { name: outage.name, what: outage.what, arms, picks, broken: broken(outage, arms, picks, log) };
  } finally {
    await stage.close();
  }
}

/** On a busy machine caches take longer to warm. When they do not, what is usual tells. */
async function warmed(load: Load): Promise<void> {
  for (let waitedMs = 0; waitedMs < warmMsMore; waitedMs += 100) {
    const latest = load.records.slice(-50);
    if (latest.filter(({ isHit }) => isHit).length >= latest.length * 0.85 && latest.length === 50) return;
    await sleep(100);
  }
}

function broken(outage: Outage, { warmpath, plain }: Result['arms'], picks: Picks, log: string): string[] {
  const words: string[] = [];
  if (warmpath.requests < requestsMin) words.push(`only ${warmpath.requests} requests`);
  if (warmpath.failed > plain.failed) words.push(`${warmpath.failed} failed, ${plain.failed} under plain Envoy`);
  if (warmpath.failed > outage.failedMax) words.push(`${warmpath.failed} failed where Envoy can retry`);
  if (warmpath.hung > 0) words.push(`${warmpath.hung} hung`);
  if (picks.rightAfterMs === null) words.push('picks were not right again');
  if (picks.usedAgainMs === null) words.push('the replica was not used again');
  if (/trap|unreachable|Uncaught/i.test(log)) words.push('the filter trapped');
  return words;
}
