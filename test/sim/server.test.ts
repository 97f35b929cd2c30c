// The HTTP face of a replica: what it counts, when it stops, what it does with a client that goes away. How its words compare with a real
// vLLM's is in fidelity.test.ts.

import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startReplica, type Replica } from '../../sim/server.ts';
import { textOf } from '../../sim/tokens.ts';

let replica: Replica;

beforeAll(async () => {
  replica = await startReplica({ engine: 'H100-8B', model: 'tiny', kvTokens: 4096, slowFactor: 0.2 });
});
afterAll(() => replica.close());

function post(path: string, body: unknown): Promise<Response> {
  return fetch(replica.url + path, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) });
}

const question = [
  { role: 'system', content: textOf(1, 300) },
  { role: 'user', content: 'Which rule comes first?' },
];
const chat = { model: 'tiny', messages: question, max_tokens: 16, ignore_eos: true };

describe('answers', () => {
  test('an answer names its pod', async () => {
    const response = await post('/v1/chat/completions', chat);
    expect(response.headers.get('x-warmpath-sim-pod')).toBe(replica.url.slice(7));
    expect(await response.json()).toMatchObject({
      choices: [{ finish_reason: 'length' }],
      usage: { completion_tokens: 16 },
    });
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

  test('token ids and several prompts work', async () => {
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

describe('the rest', () => {
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
    expect(text).toMatch(/vllm:cache_config_info\{.*,block_size="16",.*num_gpu_blocks="256",.*\} 1\.0/);
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
