// What becomes of requests when a real engine sleeps, is full, is told to end, or dies: the others go on, what was cut is told as the
// engine or Envoy tells it, the counters come back to nothing, and an engine that starts anew is known to hold nothing.

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Random } from '../../sim/random.ts';
import { eventually } from '../envoy/harness.ts';
import type { Answer } from '../envoy/harness.ts';
import { readAnswer } from './answers.ts';
import { passage } from './corpus.ts';
import { startRig } from './gateway.ts';
import type { Rig, Told } from './gateway.ts';
import { isClose, predictedTokens } from './judge.ts';

const random = new Random(13);
const inFlightMax = 3;
const engine = { blocks: 512, args: ['--max-num-queued-reqs', `${inFlightMax}`] };
let rig: Rig;

beforeAll(async () => {
  rig = await startRig({ engines: [engine, engine] });
});
afterAll(() => rig?.[Symbol.asyncDispose]());

// On a busy machine an engine needs minutes to start.
const startMsMax = 300_000;

/** What one test did to an engine is not the next one's. */
beforeEach(async () => {
  for (let index = 0; index < rig.engines.length; index++) {
    const isOver = await Promise.race([rig.engines[index]!.exited.then(() => true), sleep(0, false)]);
    if (isOver) await rig.restart(index);
  }
}, startMsMax);

const text = (bytes: number): string => passage(random, 'english', bytes);
const engineOf = (endpoint: string): number => rig.engines.findIndex((one) => one.endpoint === endpoint);

const bodyOf = (prompt: string, more: object = {}): object => ({ model: 'tiny', prompt, temperature: 0, ...more });
const ask = (prompt: string): Promise<Told> => rig.ask('completions', bodyOf(prompt, { max_tokens: 2 }));

/** A prompt that a pod holds, and which one: so that the next request with it goes there. */
async function settled(): Promise<{ prompt: string; index: number }> {
  const prompt = text(1_600);
  const { endpoint } = await ask(prompt);
  return { prompt, index: engineOf(endpoint) };
}

/** A long stream over a prompt, and a promise of its first bytes. */
function stream(prompt: string, tokens: number): { begun: Promise<void>; whole: Promise<Answer> } {
  let begin = (): void => {};
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const body = bodyOf(`${prompt} more`, { max_tokens: tokens, ignore_eos: true, stream: true });
  const whole = rig.post('completions', body, { onChunk: begin });
  whole.catch(() => undefined);
  return { begun, whole };
}

async function inFlight(): Promise<number> {
  const stats = await rig.envoy.stats('warmpath_in_flight');
  return Object.values(stats).reduce((sum, value) => sum + value, 0);
}
const idle = (): Promise<unknown> => eventually('nothing is in flight', async () => (await inFlight()) === 0, 10_000);

test('an engine that is paused takes requests and answers none: it is found out, and the others go on', async () => {
  const { prompt, index } = await settled();
  const { url, endpoint } = rig.engines[index]!;
  expect((await fetch(`${url}/pause?mode=keep`, { method: 'POST' })).ok).toBe(true);
  expect((await fetch(`${url}/health`)).ok).toBe(true);
  const hung = stream(prompt, 4);
  // Another engine's signs of life tell that this one's silence is its own.
  await eventually(
    'the silence is noticed',
    async () => {
      await rig
        .post('completions', bodyOf(text(300), { max_tokens: 2, stream: true }), {
          signal: AbortSignal.timeout(2_000),
        })
        .catch(() => undefined);
      const stats = await rig.envoy.stats('silent_pods');
      return Object.values(stats).some((value) => value > 0);
    },
    30_000,
  );
  const elsewhere = await ask(`${prompt} and on`);
  expect(elsewhere.endpoint).not.toBe(endpoint);
  expect((await fetch(`${url}/resume`, { method: 'POST' })).ok).toBe(true);
  const answer = await hung.whole;
  expect(readAnswer(answer.body, String(answer.headers['content-type'])).end).toBe('length');
  await idle();
});

test('a full engine refuses by 503, which comes through as it is, and nothing stays counted', async () => {
  const bodies = Array.from({ length: 40 }, () => bodyOf(text(200), { max_tokens: 300, ignore_eos: true }));
  const answers = await Promise.all(bodies.map((body) => rig.post('completions', body)));
  const of = (status: number): Answer[] => answers.filter((answer) => answer.status === status);
  expect(of(200).length + of(503).length).toBe(answers.length);
  expect(of(200).length).toBeGreaterThanOrEqual(inFlightMax);
  expect(of(503).length).toBeGreaterThan(0);
  for (const { body } of of(503)) expect(JSON.parse(body.toString())).toHaveProperty('error');
  await idle();
  await sleep(1_500);
  expect((await ask(text(400))).status).toBe(200);
});

/**
 * How a stream ended whose engine was told to end. Which of the three it is depends on which of the engine's two processes is the first to be
 * gone: its server has the last message of the engine process ("abort"), finds it dead (an error event), or is gone itself (cut).
 */
async function endOf(whole: Promise<Answer>): Promise<string | undefined> {
  try {
    const { status, body, headers } = await whole;
    expect(status).toBe(200);
    expect(body.toString()).toMatch(/data: \[DONE\]\s*$/);
    return body.includes('data: {"error"') ? 'error' : readAnswer(body, String(headers['content-type'])).end;
  } catch (error) {
    if (error instanceof Error && error.message === 'aborted') return 'cut';
    throw error;
  }
}

test(
  'SIGTERM in the middle of a stream ends it; started anew, the engine holds nothing and the filter knows',
  { timeout: startMsMax },
  async () => {
    const { prompt, index } = await settled();
    const before = rig.pod(index);
    const { begun, whole } = stream(prompt, 2_000);
    await begun;
    const stopped = rig.engines[index]!.stop();
    try {
      expect(['abort', 'error', 'cut']).toContain(await endOf(whole));
    } finally {
      await stopped;
    }
    const meanwhile = await ask(`${prompt} again`);
    expect(engineOf(meanwhile.endpoint)).not.toBe(index);
    await rig.restart(index);
    await eventually('its pod has a new life', () => rig.pod(index)['podId'] !== before['podId'], 10_000);
    // The gateway hears of it with its next sync.
    await sleep(500);
    for (let i = 0; i < 4; i++) {
      const told = await ask(`${prompt} ${i}`);
      expect(
        isClose(told),
        `${told.endpoint}: ${predictedTokens(told)} predicted, ${told.usage!.cachedTokens} found`,
      ).toBe(true);
    }
    await idle();
  },
);

test('an engine that is killed in the middle of a stream cuts it; the others serve, and the counters come back', async () => {
  const { prompt, index } = await settled();
  const { begun, whole } = stream(prompt, 2_000);
  await begun;
  await rig.engines[index]!.kill();
  await expect(whole).rejects.toThrow();
  for (let i = 0; i < 6; i++) {
    const told = await ask(`${prompt} ${i}`);
    expect(engineOf(told.endpoint)).not.toBe(index);
  }
  await idle();
});
