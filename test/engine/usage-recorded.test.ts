// Token counts out of what a real vLLM answered, cut into two at every byte and into single bytes, against what JSON.parse finds in the whole.

import { beforeAll, describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import { recording, recordingNames } from '../sim/recordings.ts';

interface UsageExports {
  memory: { buffer: ArrayBuffer };
  keysInput(): number;
  usageInit(streams: number): void;
  usageOpen(slot: number): void;
  usageFeed(slot: number, pointer: number, lengthBytes: number): void;
  usagePromptTokens(slot: number): number;
  usageCachedTokens(slot: number): number;
  usageCompletionTokens(slot: number): number;
}

interface UsageJson {
  prompt_tokens?: number;
  input_tokens?: number;
  completion_tokens?: number;
  output_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number } | null;
  input_tokens_details?: { cached_tokens?: number } | null;
  cache_read_input_tokens?: number;
  cache_creation_input_tokens?: number;
}

type Counts = [prompt: number, cached: number, completion: number];

/** The usage of an answer or of one event: its own, its message's, its response's, or the whole where it is nothing else. */
function usageOf(value: Record<string, unknown>): UsageJson {
  const inner = (value['message'] ?? value['response'] ?? value) as { usage?: UsageJson | null };
  return (value['usage'] as UsageJson | null | undefined) ?? inner.usage ?? (value as UsageJson);
}

/** What the last word on each number is, read without haste. */
function counted(body: string): Counts {
  const values = body.includes('data: ')
    ? body
        .split('\n')
        .filter((line) => line.startsWith('data: {'))
        .map((line) => JSON.parse(line.slice(6)) as Record<string, unknown>)
    : [body.startsWith('{') ? (JSON.parse(body) as Record<string, unknown>) : {}];
  const all: UsageJson = {};
  for (const value of values) {
    for (const [name, field] of Object.entries(usageOf(value)))
      if (field !== null) Object.assign(all, { [name]: field });
  }
  const prompt = all.prompt_tokens ?? all.input_tokens;
  const kept = (all.cache_read_input_tokens ?? 0) + (all.cache_creation_input_tokens ?? 0);
  const details = all.prompt_tokens_details ?? all.input_tokens_details;
  return [
    prompt === undefined ? -1 : prompt + kept,
    all.cache_read_input_tokens ?? details?.cached_tokens ?? -1,
    all.completion_tokens ?? all.output_tokens ?? -1,
  ];
}

/** The recordings of a real vLLM that have a body. */
const answers = recordingNames
  .map((name): [name: string, body: string] => [name, recording(name).body])
  .filter(([, body]) => body !== '');

let engine: UsageExports;
beforeAll(async () => {
  engine = (await loadEngine<UsageExports>()).exports;
  engine.usageInit(1);
});

const PIECE_BYTES = 32_768;

function feed(bytes: Uint8Array): void {
  const pointer = engine.keysInput();
  for (let from = 0; from < bytes.length; from += PIECE_BYTES) {
    const piece = bytes.subarray(from, from + PIECE_BYTES);
    new Uint8Array(engine.memory.buffer).set(piece, pointer);
    engine.usageFeed(0, pointer, piece.length);
  }
}

const counts = (): Counts => [
  engine.usagePromptTokens(0),
  engine.usageCachedTokens(0),
  engine.usageCompletionTokens(0),
];

/** Where to cut: everywhere, but in a long answer only around numbers of tokens, at the ends, and here and there. */
function cutsOf(body: Uint8Array): number[] {
  const everywhere = Array.from({ length: Math.max(0, body.length - 1) }, (_, i) => i + 1);
  if (body.length <= 16_384) return everywhere;
  const near = new Uint8Array(body.length);
  const text = Buffer.from(body).toString('latin1');
  for (const { index } of text.matchAll(/tokens"/g)) near.fill(1, Math.max(0, index - 40), index + 60);
  near.fill(1, 0, 100);
  near.fill(1, body.length - 100);
  return everywhere.filter((cut) => near[cut] === 1 || cut % 997 === 0);
}

describe('recorded answers', () => {
  test('there are some of every API, with and without usage', () => {
    const names = answers.map(([name]) => name);
    for (const name of ['chat_cold', 'chat_stream_usage', 'completions_cold', 'messages_stream', 'responses_stream']) {
      expect(names).toContain(name);
    }
    expect(answers.filter(([, body]) => counted(body)[0] > 0).length).toBeGreaterThan(8);
    expect(answers.filter(([, body]) => counted(body)[0] < 0).length).toBeGreaterThan(8);
    expect(counted(answers.find(([name]) => name === 'messages_stream')![1])).toEqual([664, 640, 16]);
  });

  test.each(answers)('%s', (_name, body) => {
    const expected = counted(body);
    const bytes = new TextEncoder().encode(body);
    engine.usageOpen(0);
    for (let i = 0; i < bytes.length; i++) feed(bytes.subarray(i, i + 1));
    expect(counts()).toEqual(expected);
    const wrong: [number, Counts][] = [];
    for (const cut of cutsOf(bytes)) {
      engine.usageOpen(0);
      feed(bytes.subarray(0, cut));
      feed(bytes.subarray(cut));
      if (counts().join() !== expected.join()) wrong.push([cut, counts()]);
    }
    expect(wrong).toEqual([]);
  });
});
