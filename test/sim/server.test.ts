// The HTTP face of a replica against what a real vLLM answered: the committed samples, and the recorded fixtures where they are at hand.

import { existsSync, readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startReplica, type Replica } from '../../sim/server.ts';
import { textOf } from '../../sim/tokens.ts';
import { fixtures, readSamples, shape } from './samples.ts';

const samples = readSamples('vllm.json');

/** The same for an event line; what is not JSON stands for itself. */
function eventShape(event: string): unknown {
  return event.startsWith('data: {') ? shape(JSON.parse(event.slice(6))) : event;
}

let replica: Replica;

beforeAll(async () => {
  replica = await startReplica({ engine: 'H100-8B', model: 'tiny', kvTokens: 4096, slowFactor: 0.2 });
});
afterAll(() => replica.close());

function post(path: string, body: unknown): Promise<Response> {
  return fetch(replica.url + path, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) });
}

async function events(path: string, body: unknown): Promise<string[]> {
  const response = await post(path, body);
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  const text = await response.text();
  expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  return text.split('\n\n').filter((event) => event !== '');
}

const question = [
  { role: 'system', content: textOf(1, 300) },
  { role: 'user', content: 'Which rule comes first?' },
];
const chat = { model: 'tiny', messages: question, max_tokens: 16, ignore_eos: true };

describe('answers', () => {
  test('a chat has the fields of a real one, in their order', async () => {
    const response = await post('/v1/chat/completions', chat);
    expect(response.headers.get('x-warmpath-sim-pod')).toBe(replica.url.slice(7));
    const answer = await response.json();
    expect(shape(answer)).toEqual(shape(samples['chat_cold']!.json));
    expect(answer).toMatchObject({ choices: [{ finish_reason: 'length' }], usage: { completion_tokens: 16 } });
  });

  test('the same chat again is cached up to its last whole block', async () => {
    const messages = [{ role: 'user', content: textOf(77, 500) }];
    const seen: number[] = [];
    for (let i = 0; i < 2; i++) {
      const answer = (await (await post('/v1/chat/completions', { ...chat, messages })).json()) as {
        usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
      };
      expect(answer.usage.prompt_tokens).toBe(508);
      seen.push(answer.usage.prompt_tokens_details.cached_tokens);
    }
    expect(seen).toEqual([0, Math.floor(507 / 16) * 16]);
  });

  test.each([
    ['chat_stream_usage', '/v1/chat/completions', { ...chat, stream: true, stream_options: { include_usage: true } }],
    ['chat_stream_plain', '/v1/chat/completions', { ...chat, stream: true }],
    [
      'chat_stream_continuous',
      '/v1/chat/completions',
      { ...chat, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } },
    ],
    [
      'completions_stream_usage',
      '/v1/completions',
      {
        model: 'tiny',
        prompt: textOf(5, 90),
        max_tokens: 8,
        ignore_eos: true,
        stream: true,
        stream_options: { include_usage: true },
      },
    ],
  ])('%s has the events of a real one', async (name, path, body) => {
    const got = await events(path, body);
    const expected = samples[name]!.events!;
    const tail = name === 'chat_stream_plain' ? 2 : 3;
    expect([...got.slice(0, 2), ...got.slice(-tail)].map(eventShape)).toEqual(expected.map(eventShape));
    // The order and spelling of the fields is the real one's too.
    expect(got[0]!.replace(/"(id|created|model)":("[^"]*"|\d+)/g, '"$1":_').slice(0, 60)).toBe(
      expected[0]!.replace(/"(id|created|model)":("[^"]*"|\d+)/g, '"$1":_').slice(0, 60),
    );
  });

  test('a completion has the fields of a real one; token ids and several prompts work', async () => {
    const one = await (await post('/v1/completions', { model: 'tiny', prompt: textOf(3, 64), max_tokens: 4 })).json();
    expect(shape(one)).toEqual(shape(samples['completions_cold']!.json));
    const two = (await (
      await post('/v1/completions', { model: 'tiny', prompt: [[1, 2, 3], [4]], max_tokens: 4, ignore_eos: true })
    ).json()) as { choices: { index: number }[]; usage: unknown };
    expect(two.choices.map(({ index }) => index)).toEqual([0, 1]);
    expect(two.usage).toMatchObject({ prompt_tokens: 4, completion_tokens: 8 });
  });

  test('an answer stops by itself unless told otherwise, and not before min_tokens', async () => {
    const ask = async (fields: object) =>
      (await (await post('/v1/chat/completions', { model: 'tiny', messages: question, ...fields })).json()) as {
        choices: { finish_reason: string }[];
        usage: { completion_tokens: number };
      };
    const free = await ask({});
    expect(free.choices[0]!.finish_reason).toBe('stop');
    expect(free.usage.completion_tokens).toBeLessThan(256);
    const { completion_tokens: natural } = free.usage;
    const forced = await ask({ min_tokens: natural + 3, max_tokens: natural + 9 });
    expect(forced.usage.completion_tokens).toBe(natural + 3);
    const bounded = await ask({ min_tokens: 5, max_tokens: 20 });
    expect(bounded.usage.completion_tokens).toBe(20);
    expect(bounded.choices[0]!.finish_reason).toBe('length');
  });
});

describe('errors', () => {
  const tooLong = Array.from({ length: 5000 }, () => 7);
  test.each([
    ['error_bad_json_400', '/v1/chat/completions', '{"model":\n'],
    ['error_missing_field_400', '/v1/chat/completions', '{"model":"tiny"}'],
    ['error_model_404', '/v1/chat/completions', { model: 'nope', messages: [{ role: 'user', content: 'hi' }] }],
    ['error_not_found_path', '/v1/nowhere', '{}'],
    ['error_too_long_400', '/v1/completions', { model: 'tiny', prompt: tooLong }],
    ['error_max_tokens_400', '/v1/completions', { model: 'tiny', prompt: [7, 7], max_tokens: 5000 }],
  ])('%s is the real one, to the letter', async (name, path, body) => {
    const response = await post(path, body);
    expect(response.status).toBe(samples[name]!.status);
    expect(await response.json()).toEqual(samples[name]!.json);
  });

  test('another method: 405 and what is allowed', async () => {
    const response = await fetch(`${replica.url}/v1/chat/completions`);
    expect(response.status).toBe(405);
    expect(response.headers.get('allow')).toBe('POST');
    expect(await response.json()).toEqual(samples['error_method_405']!.json);
  });

  test('a full queue: 503 as the real one', async () => {
    const full = await startReplica({ engine: 'H100-8B', model: 'tiny', queueMax: 0 });
    try {
      const response = await fetch(`${full.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(chat) });
      expect(response.status).toBe(503);
      expect(await response.json()).toEqual(samples['error_queue_full_503']!.json);
    } finally {
      await full.close();
    }
  });
});

describe('the rest', () => {
  test('health, version, models, load', async () => {
    expect((await fetch(`${replica.url}/health`)).status).toBe(200);
    expect(await (await fetch(`${replica.url}/version`)).json()).toEqual(samples['version']!.json);
    expect(await (await fetch(`${replica.url}/load`)).json()).toEqual(samples['load']!.json);
    const models = (await (await fetch(`${replica.url}/v1/models`)).json()) as { data: object[] };
    expect(models.data[0]).toMatchObject({ id: 'tiny', object: 'model', max_model_len: 4096 });
  });

  test('metrics count what was done, in the real names', async () => {
    const text = await (await fetch(`${replica.url}/metrics`)).text();
    const value = (name: string) => Number(new RegExp(`^${name}(?:{[^}]*})? (.*)$`, 'm').exec(text)?.[1]);
    expect(value('vllm:num_requests_running')).toBe(0);
    expect(value('vllm:num_requests_waiting')).toBe(0);
    expect(value('vllm:kv_cache_usage_perc')).toBe(0);
    expect(value('vllm:prefix_cache_hits_total')).toBeGreaterThan(0);
    expect(value('vllm:prefix_cache_queries_total')).toBeGreaterThan(value('vllm:prefix_cache_hits_total'));
    expect(value('vllm:time_to_first_token_seconds_count')).toBe(replica.stats().finished);
    expect(value('vllm:request_queue_time_seconds_count')).toBe(replica.stats().finished);
    expect(value('process_start_time_seconds')).toBeGreaterThan(1.7e9);
    expect(text).toMatch(/vllm:cache_config_info\{block_size="16",.*num_gpu_blocks="256"\} 1\.0/);
  });

  test.skipIf(!existsSync(fixtures))('every metric family here is one of a real engine, of the same type', async () => {
    const real = readFileSync(new URL('metrics/a_under_load.prom', fixtures), 'utf8');
    const families = (text: string) => text.split('\n').filter((line) => line.startsWith('# TYPE'));
    const known = new Set(families(real));
    const ours = families(await (await fetch(`${replica.url}/metrics`)).text());
    expect(ours.length).toBeGreaterThan(15);
    expect(ours.filter((family) => !known.has(family))).toEqual([]);
  });

  test.skipIf(!existsSync(fixtures))('the samples are what was recorded', () => {
    for (const [name, sample] of Object.entries(samples)) {
      const recorded = readFileSync(new URL(`http/${name}.http`, fixtures), 'utf8').replaceAll('\r', '');
      if (sample.json !== undefined) expect(JSON.parse(recorded.slice(recorded.indexOf('\n\n')))).toEqual(sample.json);
      for (const event of sample.events ?? []) expect(recorded).toContain(event);
    }
  });

  test('a client that goes away ends its sequence and frees its memory', async () => {
    const before = replica.stats().aborted;
    const body = JSON.stringify({ ...chat, stream: true, max_tokens: 3000 });
    await new Promise<void>((resolve) => {
      const request = httpRequest(`${replica.url}/v1/chat/completions`, { method: 'POST' }, (response) => {
        response.once('data', () => {
          request.destroy();
          resolve();
        });
        response.on('error', () => undefined);
      });
      request.on('error', () => undefined);
      request.end(body);
    });
    await expect.poll(() => replica.stats().aborted).toBe(before + 1);
    await expect.poll(() => replica.stats().running).toBe(0);
  });
});
