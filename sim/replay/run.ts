// One replay: one policy, one seed, in virtual time. Replicas are those of sim/engine.ts; routers run the gateway's own engine.

import { KeyReader } from '../../control-plane/engine/keys.ts';
import { engineConstants, type EngineName } from '../constants.ts';
import { Sequence } from '../engine.ts';
import { LearnedCapacity } from '../../control-plane/capacity.ts';
import { Random } from '../random.ts';
import { summarise, type DriveSummary, type RequestRecord } from '../summary.ts';
import { spread } from '../tokens.ts';
import { EventQueue, recordOf, VirtualReplicas } from '../virtual.ts';
import { PerfectKnowledge, startCacheTruth, type CacheTruth } from './cache-truth.ts';
import { Gateways, TICK_MS } from './gateways.ts';
import type { Flight } from './router.ts';
import { choiceOf, polls, type Polled, type ReplayPolicy } from './policies.ts';
import {
  replaySource,
  type ReplayRequest,
  type ReplaySession,
  type ReplaySource,
  type SourceOptions,
} from './source.ts';

export interface ReplayOptions extends SourceOptions {
  policy: ReplayPolicy;
  /** As the source says when not given. */
  replicas?: number | undefined;
  engine?: EngineName | undefined;
  /** Gateways, and workers of each. */
  routers: number;
  workers: number;
  syncIntervalMs: number;
  /** How many of a hundred answers are not streamed. */
  notStreamedPercent: number;
  /** What the policy `weighted` weighs with, as the control plane would tell it. */
  weights?: { prefix: number; queue: number; kv: number } | undefined;
  /** Whether engines are scraped; routers go by their own counters otherwise. */
  metrics?: boolean | undefined;
  /** What routers take for the engines' capacity, as a multiple of it, and whether they learn better. As told by the engines when not given. */
  capacity?: { factor: number; learns: boolean };
  /** What they are told of the caches; nothing when not given. */
  cacheTruth?: CacheTruth;
  /** How often a replica drops its cache, each in its turn; never when not given. */
  resetIntervalMs?: number;
}

export interface ReplayResult {
  replicas: number;
  engine: EngineName;
  summary: DriveSummary;
  promptTokens: number;
  cachedTokens: number;
  /** Requests too long for the engine's model; they were not sent. */
  refused: number;
  /** Load counters that would have fallen below zero; a sign of a mistake in counting. */
  violations: number;
  /** How often a router took a replica for one that hangs. None does here. */
  silences: number;
  /** Requests that some router still counts as in flight at the end. */
  left: number;
  /** Cached tokens as routers predicted them, and by how many tokens each prediction was wrong, added up. */
  predictedTokens: number;
  wrongTokens: number;
  /** What routers took for each replica's capacity in the end, as a multiple of it. */
  capacityFactors: number[];
}

const POLL_INTERVAL_MS = 50;
const SILENCE_INTERVAL_MS = 50;

export async function replay(
  options: ReplayOptions,
  onProgress: (doneShare: number) => void = () => {},
  from?: ReplaySource,
): Promise<ReplayResult> {
  const source = from ?? replaySource(options, await KeyReader.create());
  const engine = options.engine ?? source.engine;
  const replicas = options.replicas ?? source.replicas;
  const { fitted } = source;
  const constants = fitted?.constants ?? engineConstants(engine);
  const frontMs = fitted?.frontMs ?? 0;
  const random = new Random(spread(options.seed) ^ 0x5eed);
  const gateways = await Gateways.create({
    gateways: options.routers,
    workers: options.workers,
    pods: replicas,
    capacityTokens: constants.kvTokens * (options.capacity?.factor ?? 1),
    syncIntervalMs: options.syncIntervalMs,
    hasMetrics: options.metrics ?? true,
    random,
  });
  if (options.weights !== undefined) for (const router of gateways.routers) router.setWeights(options.weights);
  const choose = choiceOf(options.policy);
  const queue = new EventQueue();
  const world = new VirtualReplicas(queue, constants, replicas, source.slowFactors, fitted?.blockTokens);
  const { engines } = world;
  const records: RequestRecord[] = [];
  const polled: Polled[] = engines.map(() => ({ waiting: 0, kvUsage: 0 }));
  const limit = options.limit ?? Infinity;
  const capacities = engines.map(() => new LearnedCapacity(constants.kvTokens * (options.capacity?.factor ?? 1)));
  let open = 0;
  let sent = 0;
  let refused = 0;
  let silences = 0;
  let predictedTokens = 0;
  let wrongTokens = 0;
  const perfect = options.cacheTruth === 'all' ? new PerfectKnowledge(engines) : undefined;

  // As the control plane does (control-plane/capacity.ts), but at once.
  const learnCapacity = (pod: number, judged: string, filledShare: number): void => {
    const capacity = capacities[pod]!;
    const count = (result: string): number => Number(judged === result);
    const matches = {
      confirmed: count('confirmed'),
      contradicted: count('contradicted'),
      exceeded: count('exceeded'),
    };
    capacity.learn(matches, filledShare);
    if (!capacity.moved()) return;
    for (const router of gateways.routers) router.setCapacity(pod, capacity.tokens);
  };

  const advance = (session: ReplaySession, answer: string, nowMs: number): void => {
    const request = sent < limit ? session.next(answer) : null;
    if (request === null) {
      open -= 1;
      onProgress(1 - open / sessions.length);
      return;
    }
    queue.at(nowMs + request.thinkMs, (sentMs) => {
      if (sent < limit) send(session, request, sentMs);
      else open -= 1;
    });
  };

  const send = (session: ReplaySession, request: ReplayRequest, sentMs: number): void => {
    sent += 1;
    const prompt = request.prompt();
    const { blocks } = prompt;
    if (blocks.tokens + request.outputTokens > engines[0]!.sequenceTokensMax) {
      refused += 1;
      open -= 1;
      return;
    }
    const place = { gateway: random.below(options.routers), worker: random.below(options.workers) };
    const isStreamed = random.unit() * 100 >= options.notStreamedPercent;
    const router = gateways.router(place, sentMs);
    perfect?.tell(router, prompt, sentMs);
    router.lookup(prompt);
    const pod = choose({ router, nowMs: sentMs, session: session.id, random, polled, engines });
    const uncachedTokens = router.uncachedTokens(pod);
    const matchBytes = router.matchBytes(pod);
    const edgeBytes = router.edgeBytes(pod, prompt);
    const predictedMs = router.predictedTtftMs(pod, uncachedTokens, sentMs);
    const aheadTokens = router.dispatch(pod, uncachedTokens, sentMs);
    gateways.touch(place, pod, prompt, sentMs);
    const arrived = perfect?.sent(pod, prompt);
    gateways.publish(place, pod);

    // An answer that is not streamed shows no first token. Its place is taken by the first tick after its expected time.
    const expect = (timeMs: number): void => {
      flight.expectedMs = timeMs;
      queue.at(Math.ceil(timeMs / TICK_MS) * TICK_MS, () => {
        if (flight.expectedMs === timeMs) release();
      });
    };
    const flight: Flight = { sentMs, uncachedTokens, isQueued: true, expect: null, expectedMs: sentMs + predictedMs };
    const release = (): void => {
      if (!flight.isQueued) return;
      flight.isQueued = false;
      router.releasePrefill(pod, uncachedTokens);
      gateways.publish(place, pod);
    };
    const landed = router.fly(pod, flight);
    if (!isStreamed) {
      flight.expect = expect;
      expect(sentMs + predictedMs);
    }
    const watched = isStreamed ? router.watch(pod, sentMs, predictedMs) : () => {};
    const words: string[] = [];
    const sequence = new Sequence(blocks, request.outputTokens, {
      token: (_, word, nowMs) => {
        if (session.readsAnswers) words.push(word);
        if (!isStreamed) return;
        router.alive(pod, nowMs);
        if (sequence.outputTokens !== 1) return;
        watched();
        release();
        router.observeTtft(pod, nowMs - sentMs, aheadTokens);
      },
      finished: (done, nowMs) => {
        arrived?.();
        gateways.touchAnswer(place, pod, prompt, done.outputTokens, nowMs);
        if (!isStreamed) router.alive(pod, nowMs);
        landed();
        router.success(pod);
        router.end(pod, uncachedTokens, flight.isQueued);
        flight.isQueued = false;
        const foundTokens = (matchBytes * done.promptTokens) / prompt.bytes;
        predictedTokens += foundTokens;
        wrongTokens += Math.abs(foundTokens - done.cachedTokens);
        router.learn(prompt.bytes, done.promptTokens, done.outputTokens);
        if (options.capacity?.learns === true && aheadTokens - uncachedTokens < 4096) {
          const ratio = done.promptTokens / prompt.bytes;
          const judged = router.judge(matchBytes * ratio, done.cachedTokens, edgeBytes * ratio);
          learnCapacity(pod, judged, router.filledShare(pod));
        }
        gateways.publish(place, pod);
        records.push(recordOf(session.id, request.measured, done, pod, sentMs, nowMs));
        advance(session, words.join(''), nowMs);
      },
    });
    if (frontMs === 0) world.add(pod, sequence, sentMs);
    else queue.at(sentMs + frontMs, (nowMs) => world.add(pod, sequence, nowMs));
  };

  const sessions = source.sessions();
  open = sessions.length;
  for (const session of sessions) queue.at(session.startMs, (nowMs) => advance(session, '', nowMs));
  const isOver = (): boolean => open === 0;
  gateways.start(queue, engines, isOver);
  const every = (intervalMs: number, action: (nowMs: number) => void): void => {
    const run = (nowMs: number): void => {
      if (isOver()) return;
      action(nowMs);
      queue.at(nowMs + intervalMs, run);
    };
    queue.at(0, run);
  };
  if (polls(options.policy)) {
    every(POLL_INTERVAL_MS, () => {
      for (const [pod, { waiting, cache }] of engines.entries()) polled[pod] = { waiting, kvUsage: cache.usedShare };
    });
  }
  const { routers } = gateways;
  const { cacheTruth: truth = 'none', resetIntervalMs } = options;
  startCacheTruth({ truth, resetIntervalMs, queue, engines, gateways, every });
  every(SILENCE_INTERVAL_MS, (nowMs) => {
    for (const router of routers) silences += router.silences(nowMs);
  });
  while (queue.run());

  const measured = records.filter((record) => record.measured);
  const sum = (of: (record: RequestRecord) => number | null): number =>
    measured.reduce((total, record) => total + (of(record) ?? 0), 0);
  return {
    replicas,
    engine,
    summary: summarise(records, replicas),
    promptTokens: sum((record) => record.promptTokens),
    cachedTokens: sum((record) => record.cachedTokens),
    refused,
    silences,
    predictedTokens,
    wrongTokens,
    capacityFactors: capacities.map((capacity) => capacity.tokens / constants.kvTokens),
    left: routers.reduce((total, router) => total + router.left, 0),
    violations: routers.reduce((total, router) => total + router.violations, 0),
  };
}
