// What every API's wording of an answer has in common: when its pieces are asked for, how tokens are summed up, and the text of a tool call.

import type { Sequence } from '../engine.ts';
import type { Work } from '../intake.ts';
import type { ForcedTool } from '../prompts.ts';

export const FINGERPRINT = 'vllm-0.32.0-sim';

/** What an answer knows before its first token. */
export interface Head {
  /** The request's own number or name, from which all ids of the answer are made. */
  id: string;
  createdSeconds: number;
  work: Work;
}

/** How one API words an answer. Tokens are ASCII without quotes and backslashes, so they may be pasted into JSON. */
export interface Form {
  /** What a stream sends before the engine has done anything; '' where it is only headers. */
  opening(): string;
  /** The events of one more token of one choice. */
  token(index: number, sequence: Sequence, word: string, isLast: boolean): string;
  /** What ends the stream after the last token of the last choice. */
  ending(sequences: readonly Sequence[]): string;
  /** The answer in one piece, of the text of each choice. */
  whole(texts: readonly string[], sequences: readonly Sequence[]): unknown;
}

export interface Totals {
  promptTokens: number;
  outputTokens: number;
  cachedTokens: number;
  /** Prompt tokens that the request brought into the cache. */
  createdTokens: number;
}

export function totals(sequences: readonly Sequence[]): Totals {
  let promptTokens = 0;
  let outputTokens = 0;
  for (const sequence of sequences) {
    promptTokens += sequence.promptTokens;
    outputTokens += sequence.outputTokens;
  }
  // Of several prompts, vLLM reports the cache of the last one only.
  const last = sequences.at(-1)!;
  const blockTokens = last.hasher.blockTokens;
  const cachedTokens = Math.max(0, last.cachedTokens);
  const createdTokens = Math.floor(last.promptTokens / blockTokens) * blockTokens - cachedTokens;
  return { promptTokens, outputTokens, cachedTokens, createdTokens };
}

/** The usage of chat and completions. */
export function openaiUsage(sequences: readonly Sequence[], isChat: boolean): unknown {
  const { promptTokens, outputTokens, cachedTokens, createdTokens } = totals(sequences);
  return {
    prompt_tokens: promptTokens,
    total_tokens: promptTokens + outputTokens,
    completion_tokens: outputTokens,
    prompt_tokens_details: {
      cached_tokens: cachedTokens,
      created_cache_tokens: isChat ? createdTokens : null,
      multimodal_tokens: null,
    },
    completion_tokens_details: null,
  };
}

/** Text as it stands inside a JSON string. */
export function escaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

// Known to Node, not yet to TypeScript.
const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };

/** A number that Python holds as a float: written with a point, whatever it is. */
export function pythonFloat(value: unknown): unknown {
  return Number.isInteger(value) ? rawJSON(`${value as number}.0`) : value;
}

export function event(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

const samples: Record<string, unknown> = { integer: 1, number: 1, boolean: true, array: [], object: {}, null: null };

/** Arguments that fit the tool's parameters: what the model says becomes the first text among them. */
export class CallText {
  readonly #before: string;
  readonly #after: string;
  readonly #hasText: boolean;

  constructor({ parameters }: ForcedTool) {
    const { properties } = (parameters ?? {}) as { properties?: Record<string, { type?: unknown } | null> };
    const entries = Object.entries(properties ?? {});
    const spoken = entries.find(([, property]) => (property?.type ?? 'string') === 'string');
    this.#hasText = spoken !== undefined;
    const others = entries
      .filter((entry) => entry !== spoken)
      .map(([name, property]) => `${JSON.stringify(name)}:${JSON.stringify(samples[String(property?.type)] ?? '')}`);
    const members = spoken === undefined ? others : [...others, `${JSON.stringify(spoken[0])}:"`];
    this.#before = `{${members.join(',')}`;
    this.#after = this.#hasText ? '"}' : '}';
  }

  /** What one more token adds to the arguments. An answer that is cut off by its length leaves them open. */
  piece(isFirst: boolean, word: string, isEnd: boolean): string {
    const said = this.#hasText ? word : '';
    return `${isFirst ? this.#before + said.trimStart() : said}${isEnd ? this.#after : ''}`;
  }

  whole(text: string, isEnd: boolean): string {
    return this.piece(true, text, isEnd);
  }
}
