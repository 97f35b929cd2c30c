// W1, W2 and W3 made small enough for two engines of one thread each: the same relations between shared and private tokens, memory and
// reuse, and load and speed, with a rate that follows from what the engine's steps cost. Answers are not read by the next turn: a model of
// random weights says things that are other tokens when they are read again, so a turn sends other words of the same length.

import type { EngineConstants } from '../../sim/constants.ts';
import { Random } from '../../sim/random.ts';
import { spread } from '../../sim/tokens.ts';
import { dialog, oneRequest, type Message, type Session, type Turn, type Workload } from '../../sim/workload.ts';
import type { Vocabulary } from './text.ts';

export const FIDELITY_WORKLOADS = ['W1', 'W2', 'W3'] as const;
export type FidelityWorkload = (typeof FIDELITY_WORKLOADS)[number];

export interface Setting {
  vocabulary: Vocabulary;
  constants: EngineConstants;
  replicas: number;
  /** How long the arrivals of each run last. */
  seconds: number;
  seed: number;
}

const seedOf = (seed: number, what: number, index: number): number => spread(spread(seed ^ (what << 24)) ^ index);

/** Seconds of an engine's time for one request: its prefill alone, and half of its decoding, since others share those steps. */
export function costSeconds(constants: EngineConstants, cached: number, uncached: number, output: number): number {
  const { overheadSeconds, perTokenSeconds, perAttentionSeconds, perContextSeconds, budgetTokens } = constants;
  const steps = Math.ceil(uncached / budgetTokens);
  const attention = uncached * (cached + uncached / 2);
  const prefill = steps * overheadSeconds + uncached * perTokenSeconds + attention * perAttentionSeconds;
  const step = overheadSeconds + perTokenSeconds + perContextSeconds * (cached + uncached);
  return prefill + (output * step) / 2;
}

const system = (text: string, more: string): Message[] => [
  { role: 'system', content: text },
  { role: 'user', content: more },
];

function arrivals(random: Random, perSecond: number, seconds: number): number[] {
  const times: number[] = [];
  for (let at = random.exponential(1000 / perSecond); at < seconds * 1000; at += random.exponential(1000 / perSecond)) {
    times.push(at);
  }
  return times;
}

/** 11 users in dialogs of 10 turns over two documents; memory holds all of it once, as in the published run. */
function w1({ vocabulary, seconds, seed }: Setting): Session[] {
  const USERS = 11;
  const TURNS = 10;
  const DOCUMENT_TOKENS = 2000;
  // What a turn takes beside its pause is small.
  const pauseMs = (seconds * 1000) / TURNS / 4.25;
  return Array.from({ length: USERS }, (_, user) => {
    const random = new Random(seedOf(seed, 1, user));
    const document = vocabulary.text(seedOf(seed, 2, user % 2), DOCUMENT_TOKENS);
    const turns: Turn[] = Array.from({ length: TURNS }, (__, turn) => {
      const textSeed = random.seed();
      const tokens = random.whole(20, 80);
      return {
        add: () => {
          const words = vocabulary.text(textSeed, tokens);
          return turn === 0 ? system(document, words) : [{ role: 'user', content: words }];
        },
        outputTokens: random.whole(8, 22),
        thinkMs: random.between(0.5, 8) * pauseMs,
      };
    });
    let outputTokens = 0;
    let sent = 0;
    const session = dialog(`w1-${user}`, 0, turns);
    return {
      id: session.id,
      startMs: 0,
      next: () => {
        const rewritten = sent === 0 ? '' : vocabulary.text(seedOf(seed, 3, user * 100 + sent), outputTokens);
        const request = session.next(rewritten);
        sent += 1;
        outputTokens = request?.outputTokens ?? 0;
        return request;
      },
    };
  });
}

/** Long system prompts of many groups in shuffled laps: more than one memory holds, less than both do. */
function w2({ vocabulary, constants, replicas, seconds, seed }: Setting): Session[] {
  const SYSTEM_TOKENS = 2000;
  const LOAD = 0.45;
  // 1.5 memories of system prompts.
  const groups = Math.round((1.5 * constants.kvTokens) / SYSTEM_TOKENS);
  const random = new Random(seed);
  const missed = costSeconds(constants, 0, SYSTEM_TOKENS + 330, 8);
  const hit = costSeconds(constants, SYSTEM_TOKENS, 330, 8);
  const rate = (LOAD * replicas) / (0.7 * missed + 0.3 * hit);
  let lap: number[] = [];
  return arrivals(random, rate, seconds).map((startMs, index) => {
    if (lap.length === 0) lap = random.shuffled(Array.from({ length: groups }, (_, group) => group));
    const group = lap.pop()!;
    const textSeed = random.seed();
    const tokens = random.whole(265, 400);
    return oneRequest(
      `w2-${index}`,
      startMs,
      random.whole(4, 12),
      () => system(vocabulary.text(seedOf(seed, 4, group), SYSTEM_TOKENS), vocabulary.text(textSeed, tokens)),
      // The first lap meets cold caches whatever the policy.
      index >= groups,
    );
  });
}

/** One hot prefix in four of five requests: kept to one replica, it is too much for that replica. */
function w3({ vocabulary, constants, seconds, seed }: Setting): Session[] {
  const HOT_TOKENS = 2400;
  const COLD_TOKENS = 1200;
  const PREFIXES = 8;
  const HOT_SHARE = 0.8;
  const LOAD_OF_THE_HOT_ONE = 0.85;
  const random = new Random(seed);
  const rate = LOAD_OF_THE_HOT_ONE / (HOT_SHARE * costSeconds(constants, HOT_TOKENS, 330, 5));
  const times = arrivals(random, rate, seconds);
  return times.map((startMs, index) => {
    const prefix = random.unit() < HOT_SHARE ? 0 : 1 + random.below(PREFIXES);
    const textSeed = random.seed();
    const tokens = random.whole(200, 460);
    return oneRequest(
      `w3-${index}`,
      startMs,
      random.whole(2, 8),
      () =>
        system(
          vocabulary.text(seedOf(seed, 5, prefix), prefix === 0 ? HOT_TOKENS : COLD_TOKENS),
          vocabulary.text(textSeed, tokens),
        ),
      startMs > (seconds * 1000) / 4,
    );
  });
}

const makers: Record<FidelityWorkload, (setting: Setting) => Session[]> = { W1: w1, W2: w2, W3: w3 };

export function fidelityWorkload(id: FidelityWorkload, setting: Setting): Workload {
  return {
    id: `${id} small`,
    seed: setting.seed,
    // Its costs come from the fit.
    engine: 'L4-8B',
    replicas: setting.replicas,
    seconds: setting.seconds,
    published: [],
    sessions: () => makers[id](setting),
  };
}
