// The named workloads, W1 to W8, each deterministic by its seed. What they stand for, what was published about them and which details had to be
// decided here is written in docs/WORKLOADS.md.

import { Random } from './random.ts';
import { spread, textOf } from './tokens.ts';
import { dialog, oneRequest, type Message, type Session, type Turn, type Workload } from './workload.ts';

export type WorkloadId = 'W1' | 'W2' | 'W3' | 'W3s' | 'W4' | 'W5' | 'W6' | 'W7' | 'W8';
export const WORKLOAD_IDS: readonly WorkloadId[] = ['W1', 'W2', 'W3', 'W3s', 'W4', 'W5', 'W6', 'W7', 'W8'];

export interface WorkloadOptions {
  /** How long requests arrive; W1 counts rounds instead. */
  seconds?: number;
  /** Requests or, where the table says so, sessions per second. */
  rate?: number;
  /** W1: how many times the published experiment is repeated, one after the other, each on new documents. */
  rounds?: number;
  /**
   * W1: what the history holds. `actual` answers are sent back as they came, so the engine has their KV; `rewritten` ones are other text of the same
   * length, as when a client strips or edits what the model said, and are prefilled anew.
   */
  answers?: 'actual' | 'rewritten';
  /** W1: different documents in a round; the published text says two types, not how many of each. */
  documents?: number;
}

type Maker = (seed: number, options: WorkloadOptions) => Omit<Workload, 'id' | 'seed'>;

/** Texts that many requests share are made once. */
class Shared {
  readonly #texts = new Map<number, string>();

  text(seed: number, tokens: number): string {
    const known = this.#texts.get(seed);
    if (known !== undefined) return known;
    const text = textOf(seed, tokens);
    this.#texts.set(seed, text);
    return text;
  }
}

/** Seeds of things that belong together: a name's hash and an index under the workload's own seed. */
function seedOf(seed: number, name: string, index: number): number {
  let value = spread(seed);
  for (let i = 0; i < name.length; i++) value = spread(value ^ name.charCodeAt(i));
  return spread(value ^ (index + 1));
}

/** Start times of a Poisson process, in milliseconds. */
function arrivals(random: Random, perSecond: number, seconds: number): number[] {
  const times: number[] = [];
  for (let at = random.exponential(1000 / perSecond); at < seconds * 1000; at += random.exponential(1000 / perSecond)) {
    times.push(at);
  }
  return times;
}

function prefixed(system: string, seed: number, tokens: number): Message[] {
  return [
    { role: 'system', content: system },
    { role: 'user', content: textOf(seed, tokens) },
  ];
}

// W1: the published comparison. 11 users hold 10-turn dialogs over two document types.
const W1_USERS = 11;
const W1_TURNS = 10;
const W1_SHARED_TOKENS = 2000;

const w1: Maker = (seed, { rounds = 3, answers = 'actual', documents = 2 }) => ({
  engine: 'L4-8B',
  replicas: 4,
  seconds: rounds * 155,
  published: [
    { name: 'round robin', ttftMs: { p95: 745, p99: 841 }, hitShareTokens: 0.62 },
    { name: 'prefix-aware', ttftMs: { p95: 272, p99: 674 }, hitShareTokens: 0.9 },
  ],
  sessions: () => {
    const shared = new Shared();
    return Array.from({ length: W1_USERS }, (_, user) => {
      const random = new Random(seedOf(seed, 'W1 user', user));
      const dialogs: Session[] = Array.from({ length: rounds }, (__, round) => {
        const document = seedOf(seed, 'W1 document', round * documents + ((user + round) % documents));
        const turns: Turn[] = Array.from({ length: W1_TURNS }, (___, turn) => {
          const textSeed = random.seed();
          const tokens = random.whole(20, 80);
          return {
            add: () =>
              turn === 0
                ? prefixed(shared.text(document, W1_SHARED_TOKENS), textSeed, tokens)
                : [{ role: 'user', content: textOf(textSeed, tokens) }],
            outputTokens: random.whole(80, 220),
            thinkMs: random.between(500, 8000),
          };
        });
        return dialog(`w1-${user}-${round}`, 0, turns);
      });
      // A user goes from one dialog to the next, so a session here is all dialogs of one user.
      let at = 0;
      let sent = 0;
      let outputTokens = 0;
      return {
        id: `w1-user-${user}`,
        startMs: 0,
        next: (actual) => {
          const answer =
            answers === 'actual' ? actual : textOf(seedOf(seed, `W1 answers of ${user}`, sent), outputTokens);
          while (at < dialogs.length) {
            const request = dialogs[at]!.next(answer);
            if (request !== null) {
              sent += 1;
              outputTokens = request.outputTokens;
              return request;
            }
            at += 1;
          }
          return null;
        },
      } satisfies Session;
    });
  },
});

// W2: many groups, each with a long system prompt of its own, visited in shuffled laps.
const w2: Maker = (seed, { seconds = 60, rate = 20 }) => ({
  engine: '2xH100-32B',
  replicas: 8,
  seconds,
  published: [
    { name: 'prefix-aware', ttftMs: { p95: 540 } },
    { name: 'round robin', ttftMs: { p95: 92_600 } },
  ],
  sessions: () => {
    const random = new Random(seed);
    const shared = new Shared();
    const groups = Array.from({ length: 150 }, (_, group) => group);
    let lap: number[] = [];
    return arrivals(random, rate, seconds).map((startMs, index) => {
      if (lap.length === 0) lap = random.shuffled(groups);
      const group = lap.pop()!;
      const textSeed = random.seed();
      const tokens = random.whole(800, 1200);
      return oneRequest(`w2-${index}`, startMs, random.whole(100, 300), () =>
        prefixed(shared.text(seedOf(seed, 'W2 group', group), 6016), textSeed, tokens),
      );
    });
  },
});

function hotPrefix(seed: number, seconds: number, rate: number): Session[] {
  const random = new Random(seed);
  const shared = new Shared();
  return arrivals(random, rate, seconds).map((startMs, index) => {
    const hot = random.unit() < 0.8;
    const prefix = hot ? 0 : 1 + random.below(40);
    const textSeed = random.seed();
    const tokens = random.whole(300, 700);
    return oneRequest(`w3-${index}`, startMs, random.whole(50, 250), () =>
      prefixed(shared.text(seedOf(seed, 'W3 prefix', prefix), hot ? 8000 : 4000), textSeed, tokens),
    );
  });
}

const w3: Maker = (seed, { seconds = 60, rate = 60 }) => ({
  engine: 'H100-8B',
  replicas: 8,
  seconds,
  published: [],
  timeoutMs: 600_000,
  sessions: () => hotPrefix(seed, seconds, rate),
});

const w3s: Maker = (seed, { seconds = 90, rate = 20 }) => ({
  engine: 'H100-8B',
  replicas: 4,
  seconds,
  published: [
    { name: 'round-robin (study)', ttftMs: { p95: 210 } },
    { name: 'least-request (study)', ttftMs: { p95: 210 } },
    { name: 'first-block-hash (study)', ttftMs: { p95: 22_400 } },
    { name: 'prefill-cost (study)', ttftMs: { p95: 60 } },
  ],
  sessions: () => hotPrefix(seed, seconds, rate),
});

const w4: Maker = (seed, { seconds = 60, rate = 30 }) => ({
  engine: 'H100-8B',
  replicas: 8,
  seconds,
  published: [],
  sessions: () => {
    const random = new Random(seed);
    return arrivals(random, rate, seconds).map((startMs, index) => {
      const tokens = random.unit() < 0.15 ? random.whole(16_000, 24_000) : random.whole(100, 300);
      const textSeed = random.seed();
      return oneRequest(`w4-${index}`, startMs, random.whole(50, 150), () => [
        { role: 'user', content: textOf(textSeed, tokens) },
      ]);
    });
  },
});

const w5: Maker = (seed, { seconds = 60, rate = 1 }) => ({
  engine: '2xH100-32B',
  replicas: 8,
  seconds,
  published: [],
  sessions: () => {
    const random = new Random(seed);
    const shared = new Shared();
    return arrivals(random, rate, seconds).map((startMs, index) => {
      const kind = random.below(4);
      const turns: Turn[] = Array.from({ length: random.whole(5, 25) }, (_, step) => {
        const textSeed = random.seed();
        const tokens = Math.max(16, Math.min(20_000, Math.round(random.logNormal(1300, 0.8))));
        return {
          add: () =>
            step === 0
              ? prefixed(shared.text(seedOf(seed, 'W5 tools', kind), 6000), textSeed, tokens)
              : [{ role: 'user', content: textOf(textSeed, tokens) }],
          outputTokens: random.whole(30, 130),
          thinkMs: step === 0 ? 0 : random.exponential(1000),
        };
      });
      return dialog(`w5-${index}`, startMs, turns);
    });
  },
});

const w6: Maker = (seed, { seconds = 60, rate = 40 }) => ({
  engine: 'H100-8B',
  replicas: 8,
  seconds,
  published: [],
  sessions: () => {
    const random = new Random(seed);
    return arrivals(random, rate, seconds).map((startMs, index) => {
      const tokens = Math.max(16, Math.min(60_000, Math.round(random.logNormal(2000, 1))));
      const outputTokens = Math.max(1, Math.min(2000, Math.round(random.logNormal(200, 0.8))));
      const textSeed = random.seed();
      return oneRequest(`w6-${index}`, startMs, outputTokens, () => [
        { role: 'user', content: textOf(textSeed, tokens) },
      ]);
    });
  },
});

const w7: Maker = (seed, { seconds = 60, rate = 20 }) => ({
  engine: 'H100-32B',
  replicas: 4,
  seconds,
  published: [],
  sessions: () => {
    const random = new Random(seed);
    const shared = new Shared();
    const sizes = Array.from({ length: 12 }, () => random.whole(2000, 4000));
    const weights = sizes.map((_, rank) => (rank + 1) ** -1.2);
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return arrivals(random, rate, seconds).map((startMs, index) => {
      let left = random.unit() * total;
      let prefix = 0;
      while (prefix < 11 && left >= weights[prefix]!) left -= weights[prefix++]!;
      const textSeed = random.seed();
      const tokens = random.whole(800, 1600);
      return oneRequest(`w7-${index}`, startMs, random.whole(20, 80), () =>
        prefixed(shared.text(seedOf(seed, 'W7 prefix', prefix), sizes[prefix]!), textSeed, tokens),
      );
    });
  },
});

const w8: Maker = (seed, { seconds = 60, rate = 15 }) => ({
  engine: 'H100-8B',
  replicas: 8,
  slowFactors: [1, 1, 1, 2, 1, 1, 1, 1],
  seconds,
  published: [],
  sessions: () => {
    const random = new Random(seed);
    const shared = new Shared();
    return arrivals(random, rate, seconds).map((startMs, index) => {
      const prefix = random.below(20);
      const turns: Turn[] = Array.from({ length: random.whole(1, 7) }, (_, turn) => {
        const textSeed = random.seed();
        const tokens = random.whole(50, 250);
        return {
          add: () =>
            turn === 0
              ? prefixed(shared.text(seedOf(seed, 'W8 prefix', prefix), 1500), textSeed, tokens)
              : [{ role: 'user', content: textOf(textSeed, tokens) }],
          outputTokens: random.whole(50, 250),
          thinkMs: turn === 0 ? 0 : random.between(500, 4000),
        };
      });
      return dialog(`w8-${index}`, startMs, turns);
    });
  },
});

const makers: Record<WorkloadId, Maker> = { W1: w1, W2: w2, W3: w3, W3s: w3s, W4: w4, W5: w5, W6: w6, W7: w7, W8: w8 };

export function workload(id: WorkloadId, seed = 1, options: WorkloadOptions = {}): Workload {
  const maker = makers[id] as Maker | undefined;
  if (maker === undefined) {
    throw new Error(`workload: unknown name ${JSON.stringify(id)}, expected one of ${WORKLOAD_IDS.join(', ')}`);
  }
  return { id, seed, ...maker(seed, options) };
}
