// What two requests have in common for a real engine they must have in common for the filter, and nothing else: turns, system prompts, tools,
// salts, adapters, names, and what is left after the cache was full or emptied. And no byte changes on the way.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { Random } from '../../sim/random.ts';
import { passage } from './corpus.ts';
import { startRig } from './gateway.ts';
import type { Api, Rig, Told } from './gateway.ts';
import { isClose, predictedTokens } from './judge.ts';
import { Mix } from './mixed.ts';
import { startRecorder } from './recorder.ts';
import type { Recorder } from './recorder.ts';

const random = new Random(11);
const engine = { models: ['tiny', 'tiny-alias'], lora: true, blocks: 384 };
const recorders: Recorder[] = [];
let rig: Rig;

beforeAll(async () => {
  const through = async ({ url }: { url: string }): Promise<string> => {
    const recorder = await startRecorder(url);
    recorders.push(recorder);
    return recorder.endpoint;
  };
  rig = await startRig({ engines: [engine, engine], through });
});
afterAll(async () => {
  await rig?.[Symbol.asyncDispose]();
  await Promise.all(recorders.map((recorder) => recorder.close()));
});

const text = (bytes: number): string => passage(random, 'english', bytes);
const engineOf = (told: Told): number => recorders.findIndex(({ endpoint }) => endpoint === told.endpoint);

function chat(system: string, user: string, more: object = {}): Promise<Told> {
  const messages = [
    { role: 'system', content: system },
    { role: 'user', content: user },
  ];
  return rig.ask('chat', { model: 'tiny', messages, max_tokens: 4, temperature: 0, ...more });
}

function expectCold(told: Told): void {
  expect(told.usage!.cachedTokens).toBe(0);
  expect(told.matchedBytes).toBe(0);
}

function expectHit(told: Told, first: Told): void {
  expect(told.endpoint).toBe(first.endpoint);
  expect(told.usage!.cachedTokens).toBeGreaterThan(0);
  expect(isClose(told), `${predictedTokens(told)} predicted, ${told.usage!.cachedTokens} found`).toBe(true);
}

test('a dialog stays on its pod, and each turn finds the ones before it', async () => {
  const messages = [{ role: 'system', content: text(900) }];
  let before: Told | undefined;
  for (let turn = 0; turn < 5; turn++) {
    messages.push({ role: 'user', content: text(300) });
    const told = await rig.ask('chat', { model: 'tiny', messages, max_tokens: 8, temperature: 0 });
    if (before) {
      expectHit(told, before);
      expect(told.usage!.cachedTokens).toBeGreaterThan(before.usage!.promptTokens - 64);
    }
    before = told;
    messages.push({ role: 'assistant', content: told.text });
  }
});

test('a system prompt is shared between users and APIs, with or without the note of who pays', async () => {
  const system = text(1_800);
  const first = await chat(system, text(100));
  expectCold(first);
  const user = (): { role: string; content: string } => ({ role: 'user', content: text(100) });
  const bill = { type: 'text', text: 'x-anthropic-billing-header: nonce=1' };
  const others: [Api, object][] = [
    ['chat', { messages: [{ role: 'system', content: [{ type: 'text', text: system }] }, user()], max_tokens: 4 }],
    ['responses', { instructions: system, input: text(100), max_output_tokens: 4 }],
    ['messages', { system, messages: [user()], max_tokens: 4 }],
    ['messages', { system: [bill, { type: 'text', text: system }], messages: [user()], max_tokens: 4 }],
  ];
  for (const [api, body] of others) expectHit(await rig.ask(api, { model: 'tiny', ...body }), first);
});

test('equal tools are found again; other tools end the match behind the system prompt', async () => {
  const system = text(900);
  const tool = (name: string): object => {
    const parameters = { type: 'object', properties: { query: { type: 'string', description: text(300) } } };
    return { type: 'function', function: { name, description: text(200), parameters } };
  };
  const [one, other] = [[tool('search')], [tool('weather')]];
  const first = await chat(system, text(100), { tools: one, tool_choice: 'none' });
  const again = await chat(system, text(100), { tools: one, tool_choice: 'none' });
  expectHit(again, first);
  const changed = await chat(system, text(100), { tools: other, tool_choice: 'none' });
  expectHit(changed, first);
  expect(changed.usage!.cachedTokens).toBeLessThan(again.usage!.cachedTokens);
});

test('salts keep caches apart', async () => {
  const system = text(1_200);
  for (const cache_salt of ['one', 'two']) {
    const cold = await chat(system, text(100), { cache_salt });
    expectCold(cold);
    expectHit(await chat(system, text(100), { cache_salt }), cold);
  }
  expectCold(await chat(system, text(100)));
});

test('adapters and their base model keep caches apart', async () => {
  const system = text(1_200);
  for (const model of ['tiny', 'adapter-a', 'adapter-b']) {
    const cold = await chat(system, text(100), { model });
    expectCold(cold);
    expectHit(await chat(system, text(100), { model }), cold);
  }
});

test('two names of one model are one cache, to the engine and to the filter', async () => {
  const system = text(1_200);
  const first = await chat(system, text(100));
  expectCold(first);
  expectHit(await chat(system, text(100), { model: 'tiny-alias' }), first);
  expectHit(await chat(system, text(100)), first);
  // An adapter under its own name is none of them.
  expectCold(await chat(system, text(100), { model: 'adapter-a' }));
});

test('every byte passes as it is, in every API, streamed and not', async () => {
  const mix = new Mix(new Random(5), ['tiny']);
  const seen = new Set<string>();
  for (let i = 0; i < 100 && seen.size < 8; i++) {
    const request = mix.next();
    const body = Buffer.from(JSON.stringify(request.body));
    const answer = await rig.post(request.api, body);
    const exchange = recorders.flatMap(({ exchanges }) => exchanges).find((one) => one.requestBody.equals(body));
    expect(answer.status).toBe(200);
    expect(exchange?.responseBody.equals(answer.body)).toBe(true);
    for (const { exchanges } of recorders) exchanges.length = 0;
    seen.add(`${request.api} ${request.isStreamed}`);
  }
  expect(seen.size).toBe(8);
});

test('what the engine has evicted is not predicted, what it holds is', async () => {
  const prompts = Array.from({ length: 24 }, () => text(3_300));
  const ask = (prompt: string): Promise<Told> =>
    rig.ask('completions', { model: 'tiny', prompt: `${prompt} ${text(60)}`, max_tokens: 1 });
  const firsts: Told[] = [];
  for (const prompt of prompts) firsts.push(await ask(prompt));
  const recent = await ask(prompts.at(-1)!);
  expectHit(recent, firsts.at(-1)!);
  const old = await ask(prompts[0]!);
  expect(old.usage!.cachedTokens).toBeLessThan(64);
  expect(isClose(old)).toBe(true);
});

test('a cache that was emptied by hand is believed in once, and right again after that', async () => {
  const system = text(1_800);
  const first = await chat(system, text(100));
  expectHit(await chat(system, text(100)), first);
  const response = await fetch(`${rig.engines[engineOf(first)]!.url}/reset_prefix_cache`, { method: 'POST' });
  expect(await response.json()).toEqual({ success: true });
  const wrong = await chat(system, text(100));
  expect(wrong.endpoint).toBe(first.endpoint);
  expect(wrong.usage!.cachedTokens).toBe(0);
  expect(predictedTokens(wrong)).toBeGreaterThan(300);
  expectHit(await chat(system, text(100)), first);
});
