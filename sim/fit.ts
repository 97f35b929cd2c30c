// Fits the constants of the engine model to a running vLLM, from outside: how long prompts of several lengths take to their first token, and how long
// batches of answers take for each further one. All prompts are random token ids, so nothing is cached that is not meant to be.
//
// A step is taken to cost overhead + perToken * tokens + perAttention * attention + perContext * context, and a request `front` before and after its
// steps. Each measurement is a sum of these, so the constants are the solution of least squares in which none may be negative.

import { setTimeout as sleep } from 'node:timers/promises';
import type { EngineConstants, FittedEngine } from './constants.ts';
import { Random } from './random.ts';
import { percentile } from './summary.ts';

/** What the engine was started with. */
export interface EngineSettings {
  model: string;
  blockTokens: number;
  blocks: number;
  budgetTokens: number;
  sequencesMax: number;
  modelTokensMax: number;
}

const PREFILL_TOKENS = [16, 64, 128, 256, 480, 960, 1920];
const DECODES: readonly (readonly [sequences: number, contextTokens: number])[] = [
  [1, 32],
  [2, 32],
  [4, 32],
  [8, 32],
  [1, 1536],
  [4, 1536],
];
const DECODE_STEPS = 32;
/** Token ids below are special ones. */
const ID_MIN = 16;
const ID_MAX = 4000;

export interface FitPoint {
  what: string;
  /** The lower quartile of the runs, since whatever disturbs only adds, and what the fitted model says. */
  measuredMs: number;
  fittedMs: number;
}

export interface Fit {
  engine: FittedEngine;
  points: FitPoint[];
}

interface Measured {
  what: string;
  seconds: number;
  /** How often each constant is in it: front, overhead, perToken, perAttention, perContext. */
  terms: number[];
}

async function complete(url: string, model: string, prompt: unknown, maxTokens: number): Promise<number> {
  const body = JSON.stringify({ model, prompt, max_tokens: maxTokens, ignore_eos: true, temperature: 0 });
  const startMs = performance.now();
  const response = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`fit: ${url} answers ${response.status}: ${text.slice(0, 200)}`);
  return (performance.now() - startMs) / 1000;
}

function prefillTerms(tokens: number, budgetTokens: number): number[] {
  let attention = 0;
  let steps = 0;
  for (let at = 0; at < tokens;) {
    const chunk = Math.min(budgetTokens, tokens - at);
    at += chunk;
    attention += chunk * at;
    steps += 1;
  }
  return [1, steps, tokens, attention, 0];
}

/** The least squares of the points' relative errors in which no constant is negative. */
export function solve(points: readonly Measured[]): number[] {
  const size = points[0]!.terms.length;
  const free = Array.from({ length: size }, (_, i) => i);
  for (;;) {
    const found = linear(points, free);
    const lowest = free.reduce((low, i) => (found[i]! < found[low]! ? i : low), free[0]!);
    if (free.length === 0 || found[lowest]! >= 0) return found;
    free.splice(free.indexOf(lowest), 1);
  }
}

/** The normal equations over the free constants, by elimination; the others are 0. */
function linear(points: readonly Measured[], free: readonly number[]): number[] {
  const rows = free.map((i) => [
    ...free.map((j) => points.reduce((sum, { terms, seconds }) => sum + (terms[i]! * terms[j]!) / seconds ** 2, 0)),
    points.reduce((sum, { terms, seconds }) => sum + terms[i]! / seconds, 0),
  ]);
  for (const [i, row] of rows.entries()) {
    // The matrix is that of a sum of squares: its pivots are positive, or the column says nothing.
    const pivot = row[i]!;
    if (pivot <= 0) continue;
    for (const [k, other] of rows.entries()) {
      if (k === i) continue;
      const factor = other[i]! / pivot;
      for (let j = i; j < other.length; j++) other[j]! -= factor * row[j]!;
    }
  }
  const found = points[0]!.terms.map(() => 0);
  for (const [i, constant] of free.entries()) {
    const row = rows[i]!;
    found[constant] = row[i]! > 0 ? row.at(-1)! / row[i]! : 0;
  }
  return found;
}

/** Measures engines of one kind in turn, so that the constants are those of none in particular. */
export async function fitEngine(urls: readonly string[], settings: EngineSettings, repeats = 7): Promise<Fit> {
  const { model, budgetTokens, blockTokens, blocks } = settings;
  const random = new Random(Date.now());
  const ids = (tokens: number): number[] => Array.from({ length: tokens }, () => random.whole(ID_MIN, ID_MAX));
  const rounds = Array.from({ length: repeats }, (_, round) => urls[round % urls.length]!);
  for (const url of urls) for (let i = 0; i < 3; i++) await complete(url, model, ids(200), 8);
  const points: Measured[] = [];
  const measure = async (what: string, terms: number[], once: (url: string) => Promise<number>): Promise<void> => {
    const seconds: number[] = [];
    for (const url of rounds) {
      seconds.push(await once(url));
      await sleep(2);
    }
    points.push({
      what,
      seconds: percentile(
        seconds.toSorted((a, b) => a - b),
        0.25,
      ),
      terms,
    });
  };
  for (const tokens of PREFILL_TOKENS) {
    if (tokens >= settings.modelTokensMax) continue;
    await measure(`${tokens} tokens to prefill`, prefillTerms(tokens, budgetTokens), (url) =>
      complete(url, model, ids(tokens), 1),
    );
  }
  for (const [sequences, contextTokens] of DECODES) {
    const context = sequences * (contextTokens + DECODE_STEPS / 2);
    const fits = sequences * (contextTokens + DECODE_STEPS + blockTokens) < blocks * blockTokens;
    if (!fits || sequences > settings.sequencesMax) continue;
    await measure(
      `a step of ${sequences} answers after ${contextTokens} tokens`,
      [0, 1, sequences, 0, context],
      async (url) => {
        const prompts = Array.from({ length: sequences }, () => ids(contextTokens));
        await complete(url, model, prompts, 1);
        const first = await complete(url, model, prompts, 1);
        const all = await complete(url, model, prompts, 1 + DECODE_STEPS);
        return Math.max(1e-6, (all - first) / DECODE_STEPS);
      },
    );
  }
  const [front, overheadSeconds, perTokenSeconds, perAttentionSeconds, perContextSeconds] = solve(points) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const constants: EngineConstants = {
    overheadSeconds,
    weightsSeconds: 0,
    perTokenSeconds,
    perAttentionSeconds,
    perContextSeconds,
    budgetTokens,
    sequencesMax: settings.sequencesMax,
    // vLLM keeps one block for itself.
    kvTokens: (blocks - 1) * blockTokens,
    modelTokensMax: settings.modelTokensMax,
  };
  const solved = [front, overheadSeconds, perTokenSeconds, perAttentionSeconds, perContextSeconds];
  return {
    engine: { constants, blockTokens, frontMs: front * 1000 },
    points: points.map(({ what, seconds, terms }) => ({
      what,
      measuredMs: seconds * 1000,
      fittedMs: terms.reduce((sum, term, i) => sum + term * solved[i]!, 0) * 1000,
    })),
  };
}
