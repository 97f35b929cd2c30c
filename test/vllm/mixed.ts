// Requests as different as clients send them: dialogs that grow, system prompts that many share, tools, salts, adapters, retries of the same
// request, edits in the middle; four APIs, several languages, streamed and not. The same seed gives the same requests, as far as they
// do not hold what the engine answered.

import type { Random } from '../../sim/random.ts';
import { languages, passage } from './corpus.ts';
import type { Language } from './corpus.ts';
import type { Api } from './gateway.ts';

export interface Turn {
  role: 'user' | 'assistant';
  text: string;
}

/** A chat as it is meant, before an API gives it a form. */
export interface Chat {
  api: Exclude<Api, 'completions'>;
  model: string;
  language: Language;
  system: string | null;
  tools: string[];
  salt: string | null;
  turns: Turn[];
}

export interface MixedRequest {
  api: Api;
  language: Language;
  /** What kind of likeness to earlier requests it has. */
  kind: 'turn' | 'opening' | 'retry' | 'edit' | 'document' | 'ids';
  isStreamed: boolean;
  hasTools: boolean;
  body: Record<string, unknown>;
  /** Gets the answer's text, to go on from there. */
  answered: (text: string) => void;
}

const toolsOf = (names: string[], api: Api): object[] =>
  names.map((name) => {
    const description = `Use ${name} when the user asks for ${name.replaceAll('_', ' ')}, and only then.`;
    const properties = {
      query: { type: 'string', description: `What to ${name} for, in the language of the user.` },
      limit: { type: 'integer', description: 'How many results are wanted at most.' },
    };
    const schema = { type: 'object', properties, required: ['query'] };
    if (api === 'messages') return { name, description, input_schema: schema };
    if (api === 'responses') return { type: 'function', name, description, parameters: schema };
    return { type: 'function', function: { name, description, parameters: schema } };
  });

const toolNames = ['search_orders', 'get_weather', 'read_file', 'list_calendar', 'send_message', 'run_query'];

/** The body of a chat in its API's form. */
export function bodyOf(chat: Chat, random: Random, isStreamed: boolean): Record<string, unknown> {
  const { api, model, system, turns, salt } = chat;
  const outputTokens = random.whole(1, 24);
  const asParts = random.unit() < 0.3;
  const content = (text: string, type: string): unknown => (asParts ? [{ type, text }] : text);
  const common = {
    model,
    ...(chat.tools.length > 0
      ? { tools: toolsOf(chat.tools, api), tool_choice: api === 'messages' ? { type: 'none' } : 'none' }
      : {}),
    ...(salt === null ? {} : { cache_salt: salt }),
    ...(isStreamed ? { stream: true } : {}),
    temperature: 0,
  };
  if (api === 'responses') {
    const input = turns.map(({ role, text }) => ({
      role,
      content: role === 'user' ? content(text, 'input_text') : text,
    }));
    return { ...(system === null ? {} : { instructions: system }), input, max_output_tokens: outputTokens, ...common };
  }
  const messages = turns.map(({ role, text }) => ({ role, content: content(text, 'text') }));
  if (api === 'messages') {
    // Claude Code's first block changes with every request, and engines leave it out.
    const bill = { type: 'text', text: `x-anthropic-billing-header: cc_version=2; nonce=${random.below(1e9)}` };
    const blocks = random.unit() < 0.4 ? [bill, { type: 'text', text: system ?? '' }] : system;
    return { messages, ...(system === null ? {} : { system: blocks }), max_tokens: outputTokens, ...common };
  }
  const all = system === null ? messages : [{ role: 'system', content: system }, ...messages];
  const usage = isStreamed ? { stream_options: { include_usage: true } } : {};
  return { ...common, ...usage, messages: all, max_tokens: outputTokens };
}

/** Draws requests one by one. */
export class Mix {
  readonly #random: Random;
  readonly #models: readonly string[];
  readonly #systems: Record<Language, string[]>;
  readonly #documents: { language: Language; text: string }[] = [];
  readonly #ids: number[][] = [];
  #chats: Chat[] = [];
  #last: MixedRequest | undefined;

  constructor(random: Random, models: readonly string[]) {
    this.#random = random;
    this.#models = models;
    const systems = languages.map((language) => {
      const texts = [700, 1_500, 2_600].map((bytes) => passage(random, language, bytes));
      return [language, texts] as const;
    });
    this.#systems = Object.fromEntries(systems) as Record<Language, string[]>;
  }

  next(): MixedRequest {
    const draw = this.#random.unit();
    let request: MixedRequest;
    if (draw < 0.08 && this.#last !== undefined) request = this.#retry(this.#last);
    else if (draw < 0.2) request = this.#document();
    else if (draw < 0.26) request = this.#tokenIds();
    else if (draw < 0.55 || this.#chats.length === 0) request = this.#opening();
    else request = this.#turn();
    this.#last = request;
    return request;
  }

  #retry(last: MixedRequest): MixedRequest {
    return { ...last, kind: 'retry' };
  }

  #isStreamed(): boolean {
    return this.#random.unit() < 0.5;
  }

  #opening(): MixedRequest {
    const random = this.#random;
    const language = languages[random.below(languages.length)]!;
    const chat: Chat = {
      api: (['chat', 'responses', 'messages'] as const)[random.below(3)]!,
      model: this.#models[random.below(this.#models.length)]!,
      language,
      system: random.unit() < 0.85 ? this.#systems[language][random.below(3)]! : null,
      tools: random.unit() < 0.25 ? toolNames.slice(0, random.whole(1, toolNames.length)) : [],
      salt: random.unit() < 0.15 ? `tenant-${random.below(3)}` : null,
      turns: [],
    };
    this.#chats.push(chat);
    if (this.#chats.length > 12) this.#chats = this.#chats.slice(-12);
    return this.#say(chat, 'opening');
  }

  #turn(): MixedRequest {
    const random = this.#random;
    const at = random.below(this.#chats.length);
    const chat = this.#chats[at]!;
    // The engine takes no more than 4,096 tokens, and some languages need one for each byte.
    const texts = [
      chat.system ?? '',
      ...chat.turns.map(({ text }) => text),
      JSON.stringify(toolsOf(chat.tools, chat.api)),
    ];
    if (Buffer.byteLength(texts.join('')) > 3_200) {
      this.#chats.splice(at, 1);
      return this.#opening();
    }
    if (random.unit() < 0.1 && chat.turns.length > 2) {
      // An earlier question is asked anew: the dialog forks there.
      chat.turns = chat.turns.slice(0, 2 * random.below(chat.turns.length / 2));
      return this.#say(chat, 'edit');
    }
    return this.#say(chat, chat.turns.length === 0 ? 'opening' : 'turn');
  }

  #say(chat: Chat, kind: MixedRequest['kind']): MixedRequest {
    const random = this.#random;
    chat.turns.push({ role: 'user', text: passage(random, chat.language, random.whole(30, 400)) });
    const isStreamed = this.#isStreamed();
    return {
      api: chat.api,
      language: chat.language,
      kind,
      isStreamed,
      hasTools: chat.tools.length > 0,
      body: bodyOf(chat, random, isStreamed),
      answered: (text) => {
        if (chat.turns.at(-1)?.role === 'user') chat.turns.push({ role: 'assistant', text: text || 'Good.' });
      },
    };
  }

  /** A document that others have asked about too, up to some place in it, and then something else. */
  #document(): MixedRequest {
    const random = this.#random;
    if (this.#documents.length < 6) {
      const language = languages[this.#documents.length % languages.length]!;
      this.#documents.push({ language, text: passage(random, language, 2_400) });
    }
    const { language, text } = this.#documents[random.below(this.#documents.length)]!;
    const kept = text.slice(0, Math.floor(text.length * random.between(0.5, 1)));
    const prompt = `${kept}\n${passage(random, language, 100)}`;
    return this.#completion('document', language, prompt);
  }

  #tokenIds(): MixedRequest {
    const random = this.#random;
    if (this.#ids.length < 3) this.#ids.push(Array.from({ length: 1_200 }, () => random.whole(300, 4_000)));
    const ids = this.#ids[random.below(this.#ids.length)]!;
    const kept = ids.slice(0, random.whole(600, 1_200));
    const more = Array.from({ length: random.whole(5, 60) }, () => random.whole(300, 4_000));
    return this.#completion('ids', 'code', [...kept, ...more]);
  }

  #completion(kind: 'document' | 'ids', language: Language, prompt: unknown): MixedRequest {
    const isStreamed = this.#isStreamed();
    const usage = isStreamed ? { stream: true, stream_options: { include_usage: true } } : {};
    const body = { model: this.#models[0], prompt, max_tokens: this.#random.whole(1, 24), temperature: 0, ...usage };
    return { api: 'completions', language, kind, isStreamed, hasTools: false, body, answered: () => {} };
  }
}
