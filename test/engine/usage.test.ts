// Token counts out of responses: every recorded form, cut anywhere, and texts that try to look like one.
import fc from 'fast-check';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';

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

let engine: UsageExports;
beforeAll(async () => {
  engine = (await loadEngine<UsageExports>()).exports;
  engine.usageInit(4);
});
beforeEach(() => {
  engine.usageOpen(1);
});

/** Feeds a response in pieces that end at the cuts; returns prompt, cached and completion tokens. */
function usage(response: string, cuts: readonly number[] = [], slot = 1): [number, number, number] {
  const bytes = new TextEncoder().encode(response);
  engine.usageOpen(slot);
  let from = 0;
  for (const to of [...cuts, bytes.length]) {
    if (to <= from || to > bytes.length) continue;
    new Uint8Array(engine.memory.buffer).set(bytes.subarray(from, to), engine.keysInput());
    engine.usageFeed(slot, engine.keysInput(), to - from);
    from = to;
  }
  return [engine.usagePromptTokens(slot), engine.usageCachedTokens(slot), engine.usageCompletionTokens(slot)];
}

const chunk =
  'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"},"logprobs":null}]}\n\n';
const responses: [form: string, response: string, expected: [number, number, number]][] = [
  [
    'chat, JSON',
    '{"choices":[{"message":{"content":"\\n"}}],"usage":{"prompt_tokens":737,"total_tokens":753,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":640,"created_cache_tokens":96}}}',
    [737, 640, 16],
  ],
  [
    'chat, stream',
    `${chunk.repeat(3)}data: {"choices":[],"usage":{"prompt_tokens":664,"total_tokens":680,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":640}}}\n\ndata: [DONE]\n\n`,
    [664, 640, 16],
  ],
  [
    'chat, usage in every chunk, CRLF, white space',
    `data: {"usage" : {"prompt_tokens" :\t7, "completion_tokens": 1}}\r\n\r\ndata: {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}\r\n\r\n`,
    [7, -1, 2],
  ],
  [
    'responses',
    '{"output":[],"usage":{"input_tokens":664,"input_tokens_details":{"cached_tokens":640,"cached_tokens_per_turn":[]},"output_tokens":16,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":680}}',
    [664, 640, 16],
  ],
  [
    'messages, JSON: input_tokens are what the cache did not hold',
    '{"type":"message","usage":{"input_tokens":24,"output_tokens":16,"cache_creation_input_tokens":8,"cache_read_input_tokens":640}}',
    [672, 640, 16],
  ],
  [
    'messages, stream',
    'event: message_start\ndata: {"message":{"usage":{"input_tokens":664,"output_tokens":0}}}\n\nevent: message_delta\ndata: {"usage":{"input_tokens":24,"output_tokens":16,"cache_creation_input_tokens":0,"cache_read_input_tokens":640}}\n\n',
    [664, 640, 16],
  ],
  ['no usage', chunk.repeat(2), [-1, -1, -1]],
  ['null', '{"usage":{"prompt_tokens":5,"prompt_tokens_details":null,"completion_tokens":null}}', [5, -1, -1]],
  ['zero', '{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}', [5, 0, -1]],
  [
    'numbers beyond all bounds',
    `{"prompt_tokens":${'9'.repeat(40)},"completion_tokens":2147483648}`,
    [2147483647, -1, 2147483647],
  ],
  [
    'text that looks like usage',
    '{"content":"\\"prompt_tokens\\":1, {\\"usage\\":{\\"completion_tokens\\":2}} prompt_tokens\\": 3","a":"prompt_tokens","b":"cached_tokens"}',
    [-1, -1, -1],
  ],
  [
    'other names with the same end',
    '{"max_prompt_tokens":1,"my\\"prompt_tokens":2,"prompt_tokens_details":3,"xcached_tokens":4}',
    [-1, -1, -1],
  ],
  ['the request’s echo before the usage', '{"tools":[{"prompt_tokens":1}],"usage":{"prompt_tokens":9}}', [9, -1, -1]],
];

describe('responses', () => {
  test.each(responses)('%s', (_form, response, expected) => {
    expect(usage(response)).toEqual(expected);
  });

  test.each(responses)('%s, cut at every byte and into single bytes', (_form, response, expected) => {
    for (let cut = 1; cut < response.length; cut++) expect(usage(response, [cut])).toEqual(expected);
    expect(
      usage(
        response,
        Array.from({ length: 2000 }, (_, i) => i),
      ),
    ).toEqual(expected);
  });

  test('cut anywhere, several at once', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...responses),
        fc.array(fc.nat(900), { maxLength: 20 }),
        ([, response, expected], cuts) => {
          expect(
            usage(
              response,
              cuts.toSorted((a, b) => a - b),
            ),
          ).toEqual(expected);
        },
      ),
      { numRuns: 2000 },
    );
  });

  test('each slot has its own, and slots that do not exist have none', () => {
    expect(usage('{"prompt_tokens":1,', [], 0)).toEqual([1, -1, -1]);
    expect(usage('{"prompt_tokens":2,', [], 1)).toEqual([2, -1, -1]);
    expect(engine.usagePromptTokens(0)).toBe(1);
    expect(usage('{"prompt_tokens":3,', [], 4)).toEqual([-1, -1, -1]);
    expect(usage('{"prompt_tokens":3,', [], -1)).toEqual([-1, -1, -1]);
  });

  test('any bytes', () => {
    const word = fc.constantFrom(
      '"prompt_tokens"',
      ':',
      '12',
      ' ',
      '"',
      '\\',
      'tokens"',
      '"cache_read_input_tokens"',
      'ns"',
      ',',
    );
    fc.assert(
      fc.property(fc.array(word, { maxLength: 30 }), fc.array(fc.nat(200), { maxLength: 6 }), (words, cuts) => {
        const text = words.join('');
        // The same rule as one pattern: the value ends before the end of the text.
        const values = [...text.matchAll(/(?<!\\)"prompt_tokens"\s*:\s*(\d+)(?=\D)/g)].map((match) => Number(match[1]));
        const [prompt] = usage(
          text,
          cuts.toSorted((a, b) => a - b),
        );
        const read = [...text.matchAll(/(?<!\\)"cache_read_input_tokens"\s*:\s*(\d+)(?=\D)/g)].map((match) =>
          Number(match[1]),
        );
        const expected = Math.min((values.at(-1) ?? NaN) + (read.at(-1) ?? 0), 2 ** 31 - 1);
        expect(prompt).toBe(Number.isNaN(expected) ? -1 : expected);
      }),
      { numRuns: 3000 },
    );
  });
});
