// The APIs beside chat and completions: one cache for one chat whatever API it came by, tools, adapters, and errors as each API words them. How
// answers compare with a real vLLM's is in fidelity.test.ts.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startReplica, type Replica } from '../../sim/server.ts';
import { textOf } from '../../sim/tokens.ts';

let replica: Replica;

beforeAll(async () => {
  replica = await startReplica({
    engine: 'H100-8B',
    model: 'tiny',
    loras: ['ad1', 'ad2'],
    kvTokens: 16_384,
    slowFactor: 0.1,
  });
});
afterAll(() => replica.close());

function post(path: string, body: unknown): Promise<Response> {
  return fetch(replica.url + path, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) });
}

async function json(path: string, body: unknown): Promise<Record<string, unknown>> {
  const response = await post(path, body);
  const answer = (await response.json()) as Record<string, unknown>;
  expect(response.status, JSON.stringify(answer).slice(0, 300)).toBe(200);
  return answer;
}

async function events(path: string, body: object): Promise<string[]> {
  const response = await post(path, { ...body, stream: true });
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  return (await response.text()).split('\n\n').filter((event) => event !== '');
}

const dataOf = (event: string): Record<string, unknown> =>
  JSON.parse(event.slice(event.indexOf('data: ') + 6)) as Record<string, unknown>;

const system = textOf(1, 300);
const question = 'Which rule comes first?';
const messages = [{ role: 'user', content: question }];
const asMessages = { model: 'tiny', system, messages, max_tokens: 16, ignore_eos: true };
const asResponse = {
  model: 'tiny',
  instructions: system,
  input: question,
  max_output_tokens: 16,
  temperature: 0,
  ignore_eos: true,
};
const asChat = {
  model: 'tiny',
  messages: [{ role: 'system', content: system }, ...messages],
  max_tokens: 16,
  ignore_eos: true,
};

describe('events of responses', () => {
  test('are numbered through, and the first two come before any token', async () => {
    replica.setFault('freeze');
    const response = await post('/v1/responses', { ...asResponse, stream: true });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    const { value: opening } = await reader.read();
    expect(opening!.match(/^event: .*$/gm)).toEqual(['event: response.created', 'event: response.in_progress']);
    replica.setFault('none');
    let text = opening!;
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
    const numbers = text
      .trimEnd()
      .split('\n\n')
      .map((event) => dataOf(event)['sequence_number']);
    expect(numbers).toEqual(numbers.map((_, i) => i));
    expect(numbers.length).toBeGreaterThan(16);
  });

  test('a text that is not ASCII comes back as it was', async () => {
    const instructions = `Отвечай кратко. 你好 ${textOf(3, 20)}`;
    const got = await events('/v1/responses', { ...asResponse, instructions });
    for (const event of [got[0]!, got.at(-1)!]) {
      expect((dataOf(event)['response'] as { instructions: string }).instructions).toBe(instructions);
    }
  });
});

describe('one cache', () => {
  const cachedOf = ({ usage }: Record<string, unknown>): number => {
    const {
      input_tokens_details: input,
      prompt_tokens_details: prompt,
      cache_read_input_tokens: read,
    } = usage as {
      input_tokens_details?: { cached_tokens: number };
      prompt_tokens_details?: { cached_tokens: number };
      cache_read_input_tokens?: number;
    };
    return input?.cached_tokens ?? prompt?.cached_tokens ?? read!;
  };

  test('the same chat by three APIs has the same tokens, and the later ones hit', async () => {
    replica.clearCache();
    const chat = await json('/v1/chat/completions', asChat);
    expect(cachedOf(chat)).toBe(0);
    const { prompt_tokens: tokens } = chat['usage'] as { prompt_tokens: number };
    const whole = Math.floor((tokens - 1) / 16) * 16;
    expect(cachedOf(await json('/v1/responses', asResponse))).toBe(whole);
    const message = await json('/v1/messages', asMessages);
    expect(cachedOf(message)).toBe(whole);
    const { input_tokens: rest, cache_creation_input_tokens: created } = message['usage'] as Record<string, number>;
    expect(rest! + created! + whole).toBe(tokens);
    expect(await json('/v1/messages/count_tokens', { model: 'tiny', system, messages })).toMatchObject({
      input_tokens: tokens,
    });
  });

  test('a salt and each adapter have their own', async () => {
    replica.clearCache();
    const seen: number[] = [];
    for (const fields of [
      {},
      { cache_salt: 'a' },
      { model: 'ad1' },
      { model: 'ad2' },
      { model: 'ad1', cache_salt: 'a' },
    ]) {
      for (let i = 0; i < 2; i++) seen.push(cachedOf(await json('/v1/responses', { ...asResponse, ...fields })));
    }
    const hit = seen[1]!;
    expect(hit).toBeGreaterThan(300);
    expect(seen).toEqual([0, hit, 0, hit, 0, hit, 0, hit, 0, hit]);
    const { data } = (await (await fetch(`${replica.url}/v1/models`)).json()) as { data: object[] };
    expect(data[2]).toMatchObject({ id: 'ad2', parent: 'tiny', max_model_len: null });
  });

  test('the billing header of messages is no part of the prompt, a system message in the list is', async () => {
    const count = async (fields: object): Promise<number> =>
      ((await json('/v1/messages/count_tokens', { model: 'tiny', messages, ...fields })) as { input_tokens: number })
        .input_tokens;
    const plain = await count({ system });
    const billing = { type: 'text', text: 'x-anthropic-billing-header: cc_version=1; cch=f00;' };
    expect(await count({ system: [billing, { type: 'text', text: system }] })).toBe(plain);
    expect(await count({ messages: [...messages, { role: 'system', content: system }] })).toBe(plain);
    expect(await count({})).toBeLessThan(plain - 300);
  });

  test('one character before the system text shares nothing, another question shares the system text', async () => {
    replica.clearCache();
    await json('/v1/messages', asMessages);
    expect(cachedOf(await json('/v1/messages', { ...asMessages, system: `.${system}` }))).toBe(0);
    const other = { ...asMessages, messages: [{ role: 'user', content: textOf(8, 40) }] };
    // The system message and the opening of the next one.
    expect(cachedOf(await json('/v1/messages', other))).toBe(Math.floor((300 + 8) / 16) * 16);
  });

  test('a tool stands between system text and messages; turns with calls and results hit', async () => {
    replica.clearCache();
    const parameters = { type: 'object', properties: { city: { type: 'string' } } };
    const tools = [{ name: 'get_weather', description: 'w', input_schema: parameters }];
    await json('/v1/messages', asMessages);
    expect(cachedOf(await json('/v1/messages', { ...asMessages, tools }))).toBe(Math.floor(303 / 16) * 16);
    const use = { type: 'tool_use', id: 'one', name: 'get_weather', input: { city: 'Oslo' } };
    const talk = [...messages, { role: 'assistant', content: [{ type: 'text', text: 'Wait.' }, use] }];
    const first = await json('/v1/messages', { ...asMessages, tools, messages: talk });
    const later = [...talk, { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'one', content: 'Rain' }] }];
    const second = await json('/v1/messages', { ...asMessages, tools, messages: later });
    const firstTokens = Object.values(first['usage'] as Record<string, number>).reduce((sum, n) => sum + n, -16);
    expect(cachedOf(second)).toBeGreaterThan(firstTokens - 32);
    // The same in chat's words.
    const call = { id: 'two', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Oslo"}' } };
    const same = {
      ...asChat,
      tools: [{ type: 'function', function: { name: 'get_weather', description: 'w', parameters } }],
      messages: [
        ...asChat.messages,
        { role: 'assistant', content: 'Wait.', tool_calls: [call] },
        { role: 'tool', tool_call_id: 'two', content: 'Rain' },
      ],
    };
    const { usage } = (await json('/v1/chat/completions', same)) as { usage: { prompt_tokens: number } };
    expect(cachedOf({ usage })).toBe(Math.floor((usage.prompt_tokens - 1) / 16) * 16);
  });
});

describe('tools', () => {
  const parameters = {
    type: 'object',
    properties: { days: { type: 'integer' }, 'the "city"': { type: 'string' }, tags: { type: 'array' } },
  };
  const tools = [{ type: 'function', function: { name: 'get_weather', parameters } }];
  interface Called {
    choices: { finish_reason: string; message: { tool_calls?: { function: { arguments: string } }[] } }[];
  }
  const forced = { model: 'tiny', messages, tools, tool_choice: 'required' };

  test('the arguments fit the parameters, streamed or not', async () => {
    const { choices } = (await json('/v1/chat/completions', forced)) as unknown as Called;
    const text = choices[0]!.message.tool_calls![0]!.function.arguments;
    expect(JSON.parse(text)).toEqual({ days: 1, tags: [], 'the "city"': expect.stringMatching(/^\w+( \w+)+$/) });
    const deltas = (await events('/v1/chat/completions', forced)).slice(0, -1).map(dataOf) as unknown as {
      choices: { delta: { tool_calls?: { function: { arguments: string } }[] } }[];
    }[];
    const pieces = deltas.map(({ choices: [choice] }) => choice!.delta.tool_calls?.[0]!.function.arguments ?? '');
    expect(pieces.join('')).toBe(text);
  });

  test('a tool that is named is called; one that is not there, or none, is not', async () => {
    const choose = async (choice: unknown) =>
      ((await json('/v1/chat/completions', { ...forced, tool_choice: choice })) as unknown as Called).choices[0]!;
    const named = (name: string) => ({ type: 'function', function: { name } });
    expect((await choose(named('get_weather'))).message.tool_calls).toHaveLength(1);
    expect((await choose(named('other'))).message.tool_calls).toBeUndefined();
    expect((await choose('none')).message.tool_calls).toBeUndefined();
    expect((await choose('auto')).message.tool_calls).toBeUndefined();
  });

  test('a call that the length cuts off is left open', async () => {
    const { choices } = (await json('/v1/chat/completions', { ...forced, max_tokens: 3 })) as unknown as Called;
    expect(choices[0]!.finish_reason).toBe('length');
    expect(() => JSON.parse(choices[0]!.message.tool_calls![0]!.function.arguments) as unknown).toThrow(SyntaxError);
    const anthropic = [{ name: 'get_weather', input_schema: parameters }];
    const cut = { model: 'tiny', messages, tools: anthropic, tool_choice: { type: 'any' }, max_tokens: 3 };
    expect(await json('/v1/messages', cut)).toMatchObject({
      stop_reason: 'max_tokens',
      content: [{ type: 'tool_use', input: {} }],
    });
  });
});

describe('embeddings', () => {
  interface Embedded {
    data: { index: number; embedding: number[] | string }[];
    usage: { prompt_tokens: number };
  }
  const embed = async (fields: object): Promise<Embedded> =>
    (await json('/v1/embeddings', { model: 'tiny', ...fields })) as unknown as Embedded;

  test('equal texts have equal vectors of length 1, other texts others', async () => {
    const { data, usage } = await embed({ input: ['one text', 'one text', [5, 6, 7]] });
    expect(data.map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(data[0]!.embedding).toEqual(data[1]!.embedding);
    expect(data[0]!.embedding).not.toEqual(data[2]!.embedding);
    expect(Math.hypot(...(data[2]!.embedding as number[]))).toBeCloseTo(1, 5);
    expect(usage.prompt_tokens).toBe(2 + 2 + 3);
  });

  test('base64 and dimensions', async () => {
    const plain = (await embed({ input: 'x', dimensions: 3 })).data[0]!.embedding;
    const encoded = (await embed({ input: 'x', dimensions: 3, encoding_format: 'base64' })).data[0]!.embedding;
    const bytes = Buffer.from(encoded as string, 'base64');
    expect([0, 4, 8].map((at) => bytes.readFloatLE(at))).toEqual(plain);
  });
});

describe('errors', () => {
  test('what the framework finds is worded alike for all, and names every field that is missing', async () => {
    const response = await post('/v1/messages', { messages });
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({
      error: {
        message:
          "2 validation errors:\n  {'type': 'missing', 'loc': 'body.model', 'msg': 'Field required', 'input': '<dict of 1 items>'}\n" +
          "  {'type': 'missing', 'loc': 'body.max_tokens', 'msg': 'Field required', 'input': '<dict of 1 items>'}",
        type: 'Bad Request',
        param: 'body.model',
        code: 400,
      },
    });
  });

  test.each([
    ['no input', 400, '/v1/responses', { model: 'tiny' }],
    ['an empty input', 400, '/v1/responses', { model: 'tiny', input: [] }],
    ['too much asked', 400, '/v1/responses', { ...asResponse, max_output_tokens: 1e9 }],
    ['messages of another type', 400, '/v1/messages', { ...asMessages, messages: 'x' }],
    ['tokens of another model', 404, '/v1/messages/count_tokens', { model: 'nope', messages }],
    ['nothing to embed', 400, '/v1/embeddings', { model: 'tiny', input: [] }],
    ['not JSON', 400, '/v1/embeddings', '{"input":'],
  ])('%s: %i', async (_name, status, path, body) => {
    const response = await post(path, body);
    expect(response.status).toBe(status);
    expect(await response.json()).toHaveProperty('error.message');
  });
});
