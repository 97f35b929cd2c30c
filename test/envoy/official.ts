// The official clients as a user's program has them: each API asked with and without streaming, through whatever base URL, with what went over
// the wire kept beside what the client made of it.

import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

export const MODEL = 'sim-8b';
export const ADAPTER = 'sim-8b-legal';
const OUTPUT_TOKENS = 16;
const ended = { ignore_eos: true } as object;

/** What came over the wire. */
export interface Wire {
  status: number;
  pod: string | null;
  type: string | null;
  body: Promise<string>;
}

export interface Clients {
  openai: OpenAI;
  anthropic: Anthropic;
  /** The answers so far, oldest first. */
  wires: Wire[];
}

export function clientsOf(url: string, requestId: () => string): Clients {
  const wires: Wire[] = [];
  const recording: typeof fetch = async (input, init) => {
    const headers = new Headers(init?.headers);
    headers.set('x-request-id', requestId());
    const response = await fetch(input, { ...init, headers });
    const body = response.clone().text();
    // An answer that the client gives up is broken here too.
    body.catch(() => {});
    wires.push({
      status: response.status,
      pod: response.headers.get('x-warmpath-sim-pod'),
      type: response.headers.get('content-type'),
      body,
    });
    return response;
  };
  const common = { apiKey: 'none', maxRetries: 0, fetch: recording };
  return {
    openai: new OpenAI({ ...common, baseURL: `${url}/v1` }),
    anthropic: new Anthropic({ ...common, baseURL: url }),
    wires,
  };
}

export interface Turn {
  user: string;
  /** What was answered; the last turn has none yet. */
  assistant?: string;
}

export interface Talk {
  system: string;
  turns: Turn[];
}

export interface Told {
  text: string;
  promptTokens: number;
  cachedTokens: number;
}

/** One way to ask: an API, streaming or not. */
export interface Way {
  name: string;
  ask(clients: Clients, talk: Talk): Promise<Told>;
}

type ChatMessage = { role: 'system' | 'user' | 'assistant'; content: string };

function turnsOf({ turns }: Talk): { role: 'user' | 'assistant'; content: string }[] {
  return turns.flatMap(({ user, assistant }) => [
    { role: 'user' as const, content: user },
    ...(assistant === undefined ? [] : [{ role: 'assistant' as const, content: assistant }]),
  ]);
}

function chatBody(talk: Talk) {
  const messages: ChatMessage[] = [{ role: 'system', content: talk.system }, ...turnsOf(talk)];
  return { model: MODEL, messages, max_tokens: OUTPUT_TOKENS, ...ended };
}

/** A base model's prompt, with the turns as plain text. */
function completionBody(talk: Talk) {
  const turns = talk.turns.map(({ user, assistant }) => `\nQ: ${user}\nA:${assistant ?? ''}`);
  return { model: MODEL, prompt: talk.system + turns.join(''), max_tokens: OUTPUT_TOKENS, ...ended };
}

function responsesBody(talk: Talk) {
  return {
    model: MODEL,
    instructions: talk.system,
    input: turnsOf(talk),
    max_output_tokens: OUTPUT_TOKENS,
    ...ended,
  };
}

function messagesBody(talk: Talk) {
  return { model: MODEL, system: talk.system, messages: turnsOf(talk), max_tokens: OUTPUT_TOKENS, ...ended };
}

function fromOpenai(text: string | null | undefined, usage: OpenAI.CompletionUsage | null | undefined): Told {
  if (!usage) throw new Error('an answer without usage');
  return {
    text: text ?? '',
    promptTokens: usage.prompt_tokens,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? -1,
  };
}

function fromResponse({ output_text: text, usage }: OpenAI.Responses.Response): Told {
  if (!usage) throw new Error('an answer without usage');
  return { text, promptTokens: usage.input_tokens, cachedTokens: usage.input_tokens_details.cached_tokens };
}

export function fromMessage({ content, usage }: Anthropic.Message): Told {
  const read = usage.cache_read_input_tokens ?? -1;
  return {
    text: content.map((block) => (block.type === 'text' ? block.text : '')).join(''),
    promptTokens: usage.input_tokens + (usage.cache_creation_input_tokens ?? 0) + read,
    cachedTokens: read,
  };
}

export const ways: readonly Way[] = [
  {
    name: 'chat',
    async ask({ openai }, talk) {
      const { choices, usage } = await openai.chat.completions.create(chatBody(talk));
      return fromOpenai(choices[0]!.message.content, usage);
    },
  },
  {
    name: 'chat, streamed',
    async ask({ openai }, talk) {
      const runner = openai.chat.completions.stream({ ...chatBody(talk), stream_options: { include_usage: true } });
      const { choices, usage } = await runner.finalChatCompletion();
      return fromOpenai(choices[0]!.message.content, usage);
    },
  },
  {
    name: 'completions',
    async ask({ openai }, talk) {
      const { choices, usage } = await openai.completions.create(completionBody(talk));
      return fromOpenai(choices[0]!.text, usage);
    },
  },
  {
    name: 'completions, streamed',
    async ask({ openai }, talk) {
      const body = { ...completionBody(talk), stream: true as const, stream_options: { include_usage: true } };
      let text = '';
      let usage: OpenAI.CompletionUsage | undefined;
      for await (const chunk of await openai.completions.create(body)) {
        text += chunk.choices[0]?.text ?? '';
        usage = chunk.usage ?? usage;
      }
      return fromOpenai(text, usage);
    },
  },
  {
    name: 'responses',
    async ask({ openai }, talk) {
      return fromResponse(await openai.responses.create(responsesBody(talk)));
    },
  },
  {
    name: 'responses, streamed',
    async ask({ openai }, talk) {
      return fromResponse(await openai.responses.stream(responsesBody(talk)).finalResponse());
    },
  },
  {
    name: 'messages',
    async ask({ anthropic }, talk) {
      return fromMessage(await anthropic.messages.create(messagesBody(talk)));
    },
  },
  {
    name: 'messages, streamed',
    async ask({ anthropic }, talk) {
      return fromMessage(await anthropic.messages.stream(messagesBody(talk)).finalMessage());
    },
  },
];

const LONG = 3000;

/** One way to begin a long stream: resolves after a few events, with what ends it from the client's side. */
export interface Opening {
  name: string;
  open(clients: Clients, system: string): Promise<() => void>;
}

async function afterSome(stream: AsyncIterable<unknown> & { controller: AbortController }, events: number) {
  let seen = 0;
  const iterator = stream[Symbol.asyncIterator]();
  while (seen < events) {
    const { done } = await iterator.next();
    if (done) throw new Error(`the stream ended after ${seen} events`);
    seen += 1;
  }
  return () => stream.controller.abort();
}

export const openings: readonly Opening[] = [
  {
    name: 'chat',
    open: async ({ openai }, system) =>
      afterSome(await openai.chat.completions.create({ ...chatBody(once(system)), max_tokens: LONG, stream: true }), 4),
  },
  {
    name: 'completions',
    open: async ({ openai }, system) =>
      afterSome(
        await openai.completions.create({ ...completionBody(once(system)), max_tokens: LONG, stream: true }),
        4,
      ),
  },
  {
    name: 'responses',
    open: async ({ openai }, system) =>
      afterSome(
        await openai.responses.create({ ...responsesBody(once(system)), max_output_tokens: LONG, stream: true }),
        8,
      ),
  },
  {
    name: 'messages',
    open: async ({ anthropic }, system) =>
      afterSome(await anthropic.messages.create({ ...messagesBody(once(system)), max_tokens: LONG, stream: true }), 4),
  },
];

function once(system: string): Talk {
  return { system, turns: [{ user: 'Tell me everything.' }] };
}
