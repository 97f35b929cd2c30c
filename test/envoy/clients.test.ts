// The official clients through a whole gateway: a real Envoy with the filter, the real control plane, simulated replicas. What a client gets must
// be what the replica sent, later turns must find the replica that knows the talk, and the filter must have read every answer's usage.

import { APIError as AnthropicError } from '@anthropic-ai/sdk';
import { APIError as OpenAIError } from 'openai';
import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startControlPlane, type ControlPlane } from '../../control-plane/server.ts';
import { controlPlaneCluster } from '../../envoy/names.ts';
import { startReplica, type Replica } from '../../sim/server.ts';
import { words } from '../filter/gateway.ts';
import { startEnvoy } from '../../envoy/run.ts';
import { eventually, wasmPath, type RunningEnvoy } from './harness.ts';
import {
  ADAPTER,
  clientsOf,
  fromMessage,
  MODEL,
  openings,
  ways,
  type Clients,
  type Talk,
  type Wire,
} from './official.ts';

const workers = 2;
let replicas: Replica[];
let plane: ControlPlane;
let envoy: RunningEnvoy;
let gateway: Clients;
let requestId = '';

beforeAll(async () => {
  replicas = await Promise.all(
    [0, 1].map(() => startReplica({ engine: 'H100-8B', model: MODEL, loras: [ADAPTER], slowFactor: 0.2 })),
  );
  const endpoints = replicas.map(({ url }) => new URL(url).host);
  plane = await startControlPlane({ host: '127.0.0.1', port: 0, pools: [{ name: 'pool', endpoints }] });
  envoy = await startEnvoy({
    concurrency: workers,
    listeners: [
      {
        name: 'gateway',
        cluster: 'pool',
        chain: 'warmpath',
        wasmPath: wasmPath('filter'),
        pluginConfig: { pool: 'pool', sync: { cluster: controlPlaneCluster } },
      },
    ],
    pools: [{ name: 'pool', endpoints, balancing: 'override-host' }],
    controlPlane: { host: '127.0.0.1', port: plane.port },
  });
  gateway = clientsOf(`http://127.0.0.1:${envoy.ports['gateway']}`, () => requestId);
  interface Gateways {
    pools: { gateways: { reports: number; workers: number }[] }[];
  }
  await eventually('a gateway that has synchronised', () =>
    (plane.state() as Gateways).pools[0]!.gateways.some((one) => one.reports > 2 && one.workers > workers),
  );
});
afterAll(async () => {
  await envoy?.stop();
  await plane?.close();
  await Promise.all((replicas ?? []).map((replica) => replica.close()));
});

const total = async (name: string): Promise<number> =>
  Object.values(await envoy.stats(`warmpath_${name}`)).reduce((sum, value) => sum + value, 0);
const lastWire = ({ wires }: Clients): Wire => wires.at(-1)!;

/** The replica itself, without a gateway. */
const replicaClients = (pod: string | null): Clients => clientsOf(`http://${pod}`, () => requestId);

/** What came over the wire, but for the second in which it was made. */
async function wireText(wire: Wire): Promise<object> {
  const body = (await wire.body).replaceAll(/"(created|created_at)":\d+/g, '"$1":0');
  return { status: wire.status, type: wire.type, body };
}

/** Prompt and cached tokens that the filter has read from answers so far. */
const usageRead = async (): Promise<[number, number]> => [
  await total('prompt_tokens_total'),
  await total('cached_tokens_total'),
];

let talks = 0;
const newTalk = (): Talk => ({ system: words(`talk${talks++}-`, 6000), turns: [{ user: 'Hello, who are you?' }] });

describe.each([...ways])('$name', ({ ask }) => {
  test('turns find their replica, usage is read, and the answer is the replica’s own', async () => {
    const before = await usageRead();
    const talk = newTalk();
    requestId = 'first';
    const first = await ask(gateway, talk);
    const { pod } = lastWire(gateway);
    expect(first.promptTokens).toBeGreaterThan(1000);
    expect(first.cachedTokens).toBe(0);
    expect(first.text).not.toBe('');

    talk.turns[0]!.assistant = first.text;
    talk.turns.push({ user: 'And what do you know?' });
    requestId = 'second';
    const second = await ask(gateway, talk);
    expect(lastWire(gateway).pod).toBe(pod);
    // All but the end of the first turn, which the second goes on from.
    expect(second.cachedTokens).toBeGreaterThan(first.promptTokens - 32);

    // The same once more, with and without the gateway: now nothing but the way differs.
    requestId = 'third';
    const third = await ask(gateway, talk);
    expect(lastWire(gateway).pod).toBe(pod);
    const direct = replicaClients(pod);
    expect(await ask(direct, talk)).toEqual(third);
    expect(await wireText(lastWire(gateway))).toEqual(await wireText(lastWire(direct)));

    const told = [first, second, third];
    const expected = [
      before[0] + told.reduce((sum, { promptTokens }) => sum + promptTokens, 0),
      before[1] + told.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0),
    ];
    await expect.poll(usageRead).toEqual(expected);
  });
});

describe('tools', () => {
  const parameters = { type: 'object' as const, properties: { city: { type: 'string' }, days: { type: 'integer' } } };
  const weather = { name: 'get_weather', description: 'The weather of a city.', parameters };

  test.each([false, true])('chat, streamed: %s', async (isStream) => {
    const messages: OpenAI.ChatCompletionMessageParam[] = [
      { role: 'system', content: words(`tools${isStream}-`, 6000) },
      { role: 'user', content: 'What is the weather?' },
    ];
    const body = { model: MODEL, messages, tools: [{ type: 'function' as const, function: weather }] };
    const forced = { ...body, tool_choice: 'required' as const };
    const asked = isStream
      ? await gateway.openai.chat.completions.stream(forced).finalChatCompletion()
      : await gateway.openai.chat.completions.create(forced);
    const { pod } = lastWire(gateway);
    const { message, finish_reason: reason } = asked.choices[0]!;
    expect(reason).toBe('tool_calls');
    const call = message.tool_calls![0]!;
    if (call.type !== 'function') throw new Error('another kind of call');
    expect(call.function.name).toBe('get_weather');
    expect(JSON.parse(call.function.arguments)).toMatchObject({ city: expect.stringMatching(/^\w/), days: 1 });

    messages.push(message, { role: 'tool', tool_call_id: call.id, content: 'Rain.' });
    const told = await gateway.openai.chat.completions.create({ ...body, max_tokens: 8 });
    expect(lastWire(gateway).pod).toBe(pod);
    expect(told.usage!.prompt_tokens_details!.cached_tokens).toBeGreaterThan(1000);
    expect(told.choices[0]!.message.content).not.toBe('');
  });

  test.each([false, true])('responses, streamed: %s', async (isStream) => {
    const instructions = words(`calls${isStream}-`, 6000);
    const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: 'What is the weather?' }];
    const body = {
      model: MODEL,
      instructions,
      input,
      tools: [{ type: 'function' as const, strict: false, ...weather }],
    };
    const forced = { ...body, tool_choice: { type: 'function' as const, name: 'get_weather' } };
    const asked = isStream
      ? await gateway.openai.responses.stream(forced).finalResponse()
      : await gateway.openai.responses.create(forced);
    const { pod } = lastWire(gateway);
    const call = asked.output[0]!;
    if (call.type !== 'function_call') throw new Error(`an item of type ${call.type}`);
    expect(call.name).toBe('get_weather');
    expect(JSON.parse(call.arguments)).toMatchObject({ city: expect.stringMatching(/^\w/) });

    const { call_id: id, name, arguments: text } = call;
    input.push({ type: 'function_call', call_id: id, name, arguments: text });
    input.push({ type: 'function_call_output', call_id: id, output: 'Rain.' });
    const told = await gateway.openai.responses.create({ ...body, max_output_tokens: 8 });
    expect(lastWire(gateway).pod).toBe(pod);
    expect(told.usage!.input_tokens_details.cached_tokens).toBeGreaterThan(1000);
    expect(told.output_text).not.toBe('');
  });

  test.each([false, true])('messages, streamed: %s', async (isStream) => {
    const system = words(`uses${isStream}-`, 6000);
    const { name, description } = weather;
    const tools = [{ name, description, input_schema: parameters }];
    const body = { model: MODEL, max_tokens: 400, system, tools };
    const question = { role: 'user' as const, content: 'What is the weather?' };
    const forced = { ...body, messages: [question], tool_choice: { type: 'any' as const } };
    const asked = isStream
      ? await gateway.anthropic.messages.stream(forced).finalMessage()
      : await gateway.anthropic.messages.create(forced);
    const { pod } = lastWire(gateway);
    expect(asked.stop_reason).toBe('tool_use');
    const use = asked.content[0]!;
    if (use.type !== 'tool_use') throw new Error(`a block of type ${use.type}`);
    expect(use.input).toMatchObject({ city: expect.stringMatching(/^\w/), days: 1 });

    const result = { type: 'tool_result' as const, tool_use_id: use.id, content: 'Rain.' };
    const messages = [
      question,
      { role: 'assistant' as const, content: asked.content },
      { role: 'user' as const, content: [result] },
    ];
    const told = fromMessage(await gateway.anthropic.messages.create({ ...body, messages }));
    expect(lastWire(gateway).pod).toBe(pod);
    expect(told.cachedTokens).toBeGreaterThan(1000);
    expect(told.text).not.toBe('');
  });
});

describe('what belongs to one API', () => {
  test('the billing header of messages, another one each time, does not hide the prompt', async () => {
    const text = words('billed', 6000);
    const ask = async (nonce: number) =>
      fromMessage(
        await gateway.anthropic.messages.create({
          model: MODEL,
          max_tokens: 8,
          system: [
            { type: 'text', text: `x-anthropic-billing-header: cc_version=2.1; cch=${nonce};` },
            { type: 'text', text },
          ],
          messages: [{ role: 'user', content: `Question ${nonce}` }],
        }),
      );
    await ask(1);
    const { pod } = lastWire(gateway);
    for (const nonce of [2, 3, 4]) {
      expect((await ask(nonce)).cachedTokens).toBeGreaterThan(1000);
      expect(lastWire(gateway).pod).toBe(pod);
    }
  });

  test('an adapter is another model', async () => {
    const [{ ask }] = ways as [(typeof ways)[number]];
    const talk = newTalk();
    await ask(gateway, talk);
    const messages = [
      { role: 'system' as const, content: talk.system },
      { role: 'user' as const, content: talk.turns[0]!.user },
    ];
    const adapted = async () => {
      const body = { model: ADAPTER, messages, max_tokens: 8 };
      const { model, usage } = await gateway.openai.chat.completions.create(body);
      expect(model).toBe(ADAPTER);
      return usage!.prompt_tokens_details!.cached_tokens!;
    };
    expect(await adapted()).toBe(0);
    const { pod } = lastWire(gateway);
    expect(await adapted()).toBeGreaterThan(1000);
    expect(lastWire(gateway).pod).toBe(pod);
  });

  test('several prompts and token ids', async () => {
    const ids = Array.from({ length: 900 }, (_, i) => 100 + ((i * 7) % 800));
    const body = { model: MODEL, prompt: ids, max_tokens: 4 };
    const before = await usageRead();
    await gateway.openai.completions.create(body);
    const { pod } = lastWire(gateway);
    const again = await gateway.openai.completions.create(body);
    expect(lastWire(gateway).pod).toBe(pod);
    expect(again.usage!.prompt_tokens_details!.cached_tokens).toBe(Math.floor(899 / 16) * 16);

    // Of several prompts the engine tells the cache of the last one only, so the filter learns no hits from it.
    await expect.poll(async () => (await usageRead())[1]).toBeGreaterThan(before[1]);
    const readBefore = await usageRead();
    const several = await gateway.openai.completions.create({ ...body, prompt: [words('one', 300), 'two', 'three'] });
    expect(several.choices.map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(await usageRead()).toEqual(readBefore);
  });

  test('embeddings, the count of tokens and the models pass as they are, counted by reason', async () => {
    const reasonBefore = await total('fallbacks_total.pool.pool.reason.path');
    const embed = async ({ openai }: Clients) => openai.embeddings.create({ model: MODEL, input: ['one', 'two'] });
    const embedded = await embed(gateway);
    const { pod } = lastWire(gateway);
    expect(embedded.data.map(({ embedding }) => embedding.length)).toEqual([8, 8]);
    expect(embedded.data[0]!.embedding).not.toEqual(embedded.data[1]!.embedding);
    expect((await embed(replicaClients(pod))).data).toEqual(embedded.data);

    const talk = newTalk();
    const messages = [{ role: 'user' as const, content: talk.turns[0]!.user }];
    const counted = await gateway.anthropic.messages.countTokens({ model: MODEL, system: talk.system, messages });
    const asked = fromMessage(
      await gateway.anthropic.messages.create({ model: MODEL, system: talk.system, messages, max_tokens: 1 }),
    );
    expect(counted.input_tokens).toBe(asked.promptTokens);

    const { data } = await gateway.openai.models.list();
    expect(data.map(({ id }) => id)).toEqual([MODEL, ADAPTER]);
    expect((await total('fallbacks_total.pool.pool.reason.path')) - reasonBefore).toBe(2);
  });
});

describe('errors are the replica’s, in status and body', () => {
  const tooLong = 'word '.repeat(200_000);
  const user = (content: string) => [{ role: 'user' as const, content }];
  type Ask = (clients: Clients) => Promise<unknown>;
  const cases: [name: string, status: number, ask: Ask][] = [
    [
      'chat: no such model',
      404,
      ({ openai }) => openai.chat.completions.create({ model: 'nope', messages: user('x') }),
    ],
    ['chat: no messages', 400, ({ openai }) => openai.chat.completions.create({ model: MODEL } as never)],
    ['chat: too long', 400, ({ openai }) => openai.chat.completions.create({ model: MODEL, messages: user(tooLong) })],
    [
      'chat, streamed: no such model',
      404,
      ({ openai }) => openai.chat.completions.create({ model: 'nope', messages: user('x'), stream: true }),
    ],
    [
      'completions: too much asked',
      400,
      ({ openai }) => openai.completions.create({ model: MODEL, prompt: 'x', max_tokens: 1e9 }),
    ],
    ['completions: empty', 400, ({ openai }) => openai.completions.create({ model: MODEL, prompt: [] })],
    ['responses: no such model', 404, ({ openai }) => openai.responses.create({ model: 'nope', input: 'x' })],
    ['responses: too long', 400, ({ openai }) => openai.responses.create({ model: MODEL, input: tooLong })],
    ['embeddings: no such model', 404, ({ openai }) => openai.embeddings.create({ model: 'nope', input: 'x' })],
    [
      'messages: no such model',
      404,
      ({ anthropic }) => anthropic.messages.create({ model: 'nope', max_tokens: 8, messages: user('x') }),
    ],
    [
      'messages: too long',
      400,
      ({ anthropic }) => anthropic.messages.create({ model: MODEL, max_tokens: 8, messages: user(tooLong) }),
    ],
    [
      'messages: no max_tokens',
      400,
      ({ anthropic }) => anthropic.messages.create({ model: MODEL, messages: user('x') } as never),
    ],
  ];

  async function refusal(ask: Ask, clients: Clients): Promise<{ error: unknown; wire: object }> {
    const error: unknown = await ask(clients).then(
      () => 'no error',
      (reason: unknown) => reason,
    );
    if (!(error instanceof OpenAIError || error instanceof AnthropicError))
      throw new Error(`not refused: ${String(error)}`);
    const { name, status, message, error: body } = error as OpenAIError & { error: unknown };
    return { error: { name, status, message, body }, wire: await wireText(lastWire(clients)) };
  }

  async function compare(status: number, ask: Ask): Promise<void> {
    const through = await refusal(ask, gateway);
    expect(through.error).toMatchObject({ status });
    expect(through).toEqual(await refusal(ask, replicaClients(lastWire(gateway).pod)));
  }

  test.each(cases)('%s', async (_name, status, ask) => compare(status, ask));

  test.each(['error', 'busy'] as const)('replicas that are of no use: %s', async (fault) => {
    for (const replica of replicas) replica.setFault(fault);
    try {
      const status = fault === 'error' ? 500 : 503;
      await compare(status, ({ openai }) => openai.responses.create({ model: MODEL, input: 'x' }));
      const body = { model: MODEL, max_tokens: 8, messages: user('x') };
      await compare(status, ({ anthropic }) => anthropic.messages.create(body));
    } finally {
      for (const replica of replicas) replica.setFault('none');
    }
  });
});

describe('a stream that the client gives up', () => {
  const inFlight = async (): Promise<number> => total('in_flight');

  test.each([...openings])('$name', async ({ name, open }) => {
    await expect.poll(inFlight).toBe(0);
    const abortedBefore = replicas.reduce((sum, replica) => sum + replica.stats().aborted, 0);
    const abort = await open(gateway, words(`${name}-left`, 3000));
    await expect.poll(inFlight).toBe(1);
    expect(replicas.reduce((sum, replica) => sum + replica.stats().running, 0)).toBe(1);
    abort();
    await expect.poll(inFlight).toBe(0);
    await expect.poll(() => replicas.reduce((sum, replica) => sum + replica.stats().running, 0)).toBe(0);
    expect(replicas.reduce((sum, replica) => sum + replica.stats().aborted, 0)).toBe(abortedBefore + 1);
  });

  test('nothing is left in flight anywhere, and nothing trapped', async () => {
    await expect.poll(inFlight).toBe(0);
    expect(await envoy.log()).not.toMatch(/trap|unreachable|Uncaught/i);
  });
});
