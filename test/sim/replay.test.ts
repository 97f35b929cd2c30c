// Replays in virtual time: that they repeat, that routers count right and know of each other what they should, and that a trace played from its ids
// alone is the trace played as text.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KeyReader } from '../../control-plane/engine/keys.ts';
import { Random } from '../../sim/random.ts';
import { runJobs } from '../../sim/replay/jobs.ts';
import { REPLAY_POLICIES } from '../../sim/replay/policies.ts';
import { replay, type ReplayOptions, type ReplayResult } from '../../sim/replay/run.ts';
import { policyRow, scores } from '../../sim/replay/score.ts';
import { workloadSource } from '../../sim/replay/source.ts';
import { tracePrompt, TRACE_BYTES_PER_TOKEN } from '../../sim/replay/trace-prompts.ts';
import { textOf } from '../../sim/tokens.ts';
import { traceWorkload, type TraceLine } from '../../sim/trace.ts';

const options = (over: Partial<ReplayOptions> = {}): ReplayOptions => ({
  source: 'W3s',
  policy: 'prefill-cost',
  seed: 1,
  speed: 1,
  limit: 150,
  routers: 1,
  workers: 1,
  syncIntervalMs: 50,
  notStreamedPercent: 0,
  ...over,
});

/** Conversations as in a real trace: all share the first block, later turns begin with the earlier ones. */
function traceLines(count: number): TraceLine[] {
  const random = new Random(3);
  const dialogs: { ids: number[]; tokens: number }[] = [];
  let nextId = 1;
  return Array.from({ length: count }, (_, index) => {
    const known = dialogs.length > 0 && random.unit() < 0.5 ? dialogs[random.below(dialogs.length)]! : undefined;
    const dialog = known ?? { ids: [0], tokens: 512 };
    if (known === undefined) dialogs.push(dialog);
    // A turn goes on where the last whole block ended; what stood in a block that was not full is cut anew.
    dialog.ids.length = Math.max(1, Math.floor(dialog.tokens / 512));
    dialog.tokens = dialog.ids.length * 512 + random.whole(1, 3000);
    while (dialog.ids.length * 512 < dialog.tokens) dialog.ids.push(nextId++);
    return {
      timestamp: index * 40,
      input_length: dialog.tokens,
      output_length: random.whole(1, 120),
      hash_ids: [...dialog.ids],
    };
  });
}

let folder = '';
let trace = '';
const lines = traceLines(120);

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'warmpath-replay-'));
  trace = join(folder, 'trace.jsonl');
  writeFileSync(trace, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const shared = <T>(one: ArrayLike<T>, two: ArrayLike<T>): number => {
  let at = 0;
  while (at < one.length && at < two.length && one[at] === two[at]) at += 1;
  return at;
};

describe('a trace from its ids alone', () => {
  it('has the tokens of the text and shares the blocks that the text shares', async () => {
    const source = workloadSource(traceWorkload(trace), await KeyReader.create());
    const texts = source.sessions().map((session) => session.next('')!.prompt());
    const prompts = lines.map(tracePrompt);
    for (const [i, prompt] of prompts.entries()) {
      const text = texts[i]!;
      expect(prompt.blocks.tokens).toBe(lines[i]!.input_length);
      expect(prompt.blocks.tokens).toBe(text.blocks.tokens);
      expect(prompt.blocks.keys.length).toBe(text.blocks.keys.length);
      expect(prompt.bytes / text.bytes).toBeCloseTo(1, 1);
      for (let j = 0; j < i; j++) {
        expect(shared(prompt.blocks.keys, prompts[j]!.blocks.keys)).toBe(
          shared(text.blocks.keys, texts[j]!.blocks.keys),
        );
        const difference = shared(prompt.keys, prompts[j]!.keys) - shared(text.keys, texts[j]!.keys);
        expect(Math.abs(difference)).toBeLessThanOrEqual(1);
      }
    }
  });

  it('takes the mean length of the words for a token', () => {
    expect(textOf(11, 50_000).length / 50_000 / TRACE_BYTES_PER_TOKEN).toBeCloseTo(1, 2);
  });

  it('plays as the text does', async () => {
    const source = workloadSource(traceWorkload(trace), await KeyReader.create());
    const [ids, text] = await Promise.all([
      replay(options({ source: trace, policy: 'round-robin' })),
      replay(options({ source: trace, policy: 'round-robin' }), () => {}, source),
    ]);
    // The routers' matches differ by what the cut of a block in the middle of a word changes.
    expect(ids.predictedTokens / text.predictedTokens).toBeCloseTo(1, 1);
    const { predictedTokens, wrongTokens } = text;
    expect({ ...ids, predictedTokens, wrongTokens }).toEqual(text);
    expect(ids.summary.hitShareTokens).toBeGreaterThan(0.1);
  });

  it('plays faster when told', async () => {
    const [once, twice] = await Promise.all([1, 2].map((speed) => replay(options({ source: trace, speed }))));
    expect(twice!.summary.seconds).toBeLessThan(once!.summary.seconds);
    expect(twice!.promptTokens).toBe(once!.promptTokens);
  });
});

describe('the same seed gives the same bytes', () => {
  it('on any number of threads', async () => {
    const jobs = REPLAY_POLICIES.map((policy) => options({ source: trace, policy, limit: 60, notStreamedPercent: 30 }));
    const shares: number[] = [];
    const one = await runJobs(jobs, { threads: 1, onProgress: (share) => shares.push(share) });
    const two = await runJobs(jobs, { threads: 2 });
    expect(JSON.stringify(two)).toBe(JSON.stringify(one));
    expect(shares.at(-1)).toBe(1);
    expect(shares).toEqual(shares.toSorted((a, b) => a - b));
    for (const { summary, left, violations, refused, silences } of one) {
      expect({ requests: summary.requests, left, violations, refused, silences }).toEqual({
        requests: 60,
        left: 0,
        violations: 0,
        refused: 0,
        silences: 0,
      });
    }
  });

  it('and another seed gives others', async () => {
    const [one, two] = await Promise.all([1, 2].map((seed) => replay(options({ source: 'W1', seed, limit: 40 }))));
    expect(one).not.toEqual(two);
  });

  it('a failing job fails them all, and an interrupt ends them', async () => {
    await expect(runJobs([options({ source: 'no-such-file' })])).rejects.toThrow('no-such-file cannot be read');
    const signal = AbortSignal.timeout(1);
    await expect(runJobs([options({ limit: 1e6 })], { signal })).rejects.toThrow('timeout');
  });
});

const ttft = ({ summary }: ReplayResult): number => summary.ttftMs.mean;

describe('several routers', () => {
  it('count each request once, however they share the work', async () => {
    for (const over of [
      { routers: 3, workers: 2 },
      { routers: 1, workers: 4, notStreamedPercent: 50 },
    ]) {
      const { left, violations, summary } = await replay(options({ ...over, source: 'W1', limit: 100 }));
      expect({ left, violations, requests: summary.requests }).toEqual({ left: 0, violations: 0, requests: 100 });
    }
  });

  it('workers of one gateway know as much as one', async () => {
    const [one, many] = await Promise.all(
      [1, 4].map((workers) => replay(options({ source: 'W1', workers, limit: 110 }))),
    );
    expect(many!.summary.hitShareTokens).toBeCloseTo(one!.summary.hitShareTokens, 1);
    expect(ttft(many!) / ttft(one!)).toBeGreaterThan(0.85);
    expect(ttft(many!) / ttft(one!)).toBeLessThan(1.15);
  });

  it('gateways know the more the sooner they hear of each other', async () => {
    const over = { source: 'W1', limit: 110, routers: 8 };
    const [soon, never] = await Promise.all(
      [50, 600_000].map((syncIntervalMs) => replay(options({ ...over, syncIntervalMs }))),
    );
    expect(ttft(never!)).toBeGreaterThan(ttft(soon!) * 1.3);
    expect(soon!.summary.hitShareTokens).toBeGreaterThan(never!.summary.hitShareTokens + 0.05);
  });
});

describe('what a replay must show again', () => {
  it('the gateway halves the waiting of round robin on dialogs', async () => {
    const [even, warm] = await Promise.all(
      (['round-robin', 'prefill-cost'] as const).map((policy) => replay(options({ source: 'W1', policy, limit: 330 }))),
    );
    expect(warm!.summary.ttftMs.p95).toBeLessThan(even!.summary.ttftMs.p95 / 2.5);
    expect(warm!.summary.hitShareTokens).toBeGreaterThan(0.9);
  });

  it('hashing the first block sends a trace to one replica, since all its requests share that block', async () => {
    const { summary } = await replay(options({ source: trace, policy: 'first-block-hash' }));
    expect(summary.busiestPodShare).toBe(8);
  });

  it('routers that do not know the capacity learn it from hits, and little wrong while replicas have more than they can do', async () => {
    const learn = (factor: number): Promise<ReplayResult> =>
      replay(
        options({ source: 'W5', engine: 'H100-32B', replicas: 4, capacity: { factor, learns: true }, limit: 300 }),
      );
    const [known, large] = await Promise.all([learn(1), learn(10)]);
    expect(Math.min(...known.capacityFactors)).toBeGreaterThan(0.6);
    expect(Math.max(...known.capacityFactors)).toBeLessThan(1.2);
    expect(Math.min(...large.capacityFactors)).toBeLessThan(10);
  });

  it('requests that no replica can hold are left out and counted', async () => {
    const { refused, summary } = await replay(options({ source: 'W4', engine: 'L4-8B', replicas: 2, limit: 30 }));
    expect(refused + summary.requests).toBe(30);
  });
});

describe('scores', () => {
  const row = (time: number) => ({ ttftMs: { mean: time, p50: 0, p95: time, p99: time }, e2eMs: { mean: time } });

  it('compare each policy with the best other one', () => {
    expect(scores([row(100), row(50), row(200)])).toEqual([2, 0.5, 4].map((s) => expect.closeTo(s, 9)));
  });

  it('take means over the seeds, and hits over all tokens', async () => {
    const one = await replay(options({ source: 'W1', limit: 20 }));
    const two = await replay(options({ source: 'W1', limit: 30, seed: 2 }));
    const { requests, ttftMs, hitShareTokens } = policyRow('x', [one, two]);
    expect(requests).toBe(50);
    expect(ttftMs.mean).toBeCloseTo((ttft(one) + ttft(two)) / 2, 9);
    expect(hitShareTokens).toBeCloseTo(
      (one.cachedTokens + two.cachedTokens) / (one.promptTokens + two.promptTokens),
      9,
    );
  });
});
