// A recorded trace as a workload. The Mooncake format has one JSON object a line: timestamp in milliseconds, input_length and output_length in
// tokens, and hash_ids, one per 512 tokens of the prompt, equal ids for equal prefixes. The text is made from the ids, so prompts that shared
// a prefix in production share it here, and every prompt has its recorded number of tokens, the chat template's included.

import { readFileSync } from 'node:fs';
import type { EngineName } from './constants.ts';
import { spread, textOf } from './tokens.ts';
import { oneRequest, templateTokens, type Message, type Workload } from './workload.ts';

/** Tokens that one of a line's hash ids stands for. */
export const TRACE_BLOCK_TOKENS = 512;
/** Blocks kept as text; a trace comes back to old ones rarely. */
const TEXTS_MAX = 4096;
/** All of 400 requests on one of 8 replicas, as first-block hashing does it, take a quarter of an hour. */
const TIMEOUT_MS = 1_500_000;

export interface TraceOptions {
  seed?: number;
  /** 2 plays the trace twice as fast. */
  speed?: number;
  engine?: EngineName;
  replicas?: number;
}

export interface TraceLine {
  timestamp: number;
  input_length: number;
  output_length: number;
  hash_ids: number[];
}

function parseLine(line: string, file: string, number: number): TraceLine {
  let value: Partial<Record<keyof TraceLine, unknown>>;
  try {
    value = JSON.parse(line) as typeof value;
  } catch {
    throw new Error(`trace: ${file}:${number} is not JSON`);
  }
  const { timestamp, input_length, output_length, hash_ids } = value;
  for (const [name, field] of Object.entries({ timestamp, input_length, output_length })) {
    if (typeof field !== 'number') throw new Error(`trace: ${file}:${number} has no number ${name}`);
  }
  if (!Array.isArray(hash_ids)) throw new Error(`trace: ${file}:${number} has no list hash_ids`);
  return value as TraceLine;
}

class BlockTexts {
  readonly #seed: number;
  readonly #texts = new Map<number, string>();

  constructor(seed: number) {
    this.#seed = seed;
  }

  whole(id: number): string {
    let text = this.#texts.get(id);
    if (text === undefined) {
      text = this.part(id, TRACE_BLOCK_TOKENS);
      if (this.#texts.size >= TEXTS_MAX) this.#texts.delete(this.#texts.keys().next().value!);
      this.#texts.set(id, text);
    }
    return text;
  }

  part(id: number, tokens: number): string {
    return textOf(spread(this.#seed) ^ spread(id), tokens);
  }
}

/** The content of a prompt: whole blocks, then as much of the last one as makes the recorded length with the template's tokens. */
function contentOf(line: TraceLine, texts: BlockTexts): string {
  let left = Math.max(1, line.input_length - templateTokens(1));
  let text = '';
  for (const id of line.hash_ids) {
    if (left <= 0) break;
    text += left >= TRACE_BLOCK_TOKENS ? texts.whole(id) : texts.part(id, left);
    left -= TRACE_BLOCK_TOKENS;
  }
  // Some lines have fewer ids than their length needs; the rest belongs to nobody else.
  if (left > 0) text += textOf(spread(line.timestamp) ^ line.input_length, left);
  return text;
}

/** The lines of a trace file, the first `limit` of them. */
export function readTrace(file: string, limit = Infinity): TraceLine[] {
  let raw: string;
  try {
    raw = readFileSync(file, 'utf8');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`trace: ${file} cannot be read (${reason}); traces are not part of this repository`, {
      cause: error,
    });
  }
  const lines: TraceLine[] = [];
  for (const [index, line] of raw.split('\n').entries()) {
    if (lines.length >= limit) break;
    if (line.trim() !== '') lines.push(parseLine(line, file, index + 1));
  }
  return lines;
}

export function traceWorkload(file: string, limit = Infinity, options: TraceOptions = {}): Workload {
  const { seed = 1, speed = 1, engine = '2xH100-32B', replicas = 8 } = options;
  const lines = readTrace(file, limit);
  const first = lines[0]?.timestamp ?? 0;
  const last = lines.at(-1)?.timestamp ?? 0;
  return {
    id: 'trace',
    seed,
    engine,
    replicas,
    seconds: (last - first) / 1000 / speed,
    published: [],
    timeoutMs: TIMEOUT_MS,
    sessions: () => {
      const texts = new BlockTexts(seed);
      return lines.map((line, index) =>
        oneRequest(
          `trace-${index}`,
          (line.timestamp - first) / speed,
          Math.max(1, line.output_length),
          (): Message[] => [{ role: 'user', content: contentOf(line, texts) }],
        ),
      );
    },
  };
}
