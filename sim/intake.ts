// Reads a request body as vLLM does: what is asked, how long the prompt is, and the errors that vLLM answers before any engine sees the request.

import { BodyError, invalid, parseBody, refused, requireFields, whole, type Body } from './body.ts';
import { chatPrompt, forcedTool, messagesPrompt, responsesPrompt, type ForcedTool } from './prompts.ts';
import { BlockHasher, renderChat, spread, type ChatPrompt } from './tokens.ts';

/** `count` is /v1/messages/count_tokens, which no engine sees. */
export type Api = 'chat' | 'completions' | 'responses' | 'messages' | 'count' | 'embeddings';

export interface ModelLimits {
  model: string;
  /** Adapters over the model, each with a cache of its own. */
  loras: readonly string[];
  tokensMax: number;
  blockTokens: number;
}

export interface Work {
  api: Api;
  /** The name by which the model was asked for. */
  model: string;
  stream: boolean;
  includeUsage: boolean;
  continuousUsage: boolean;
  /** One entry per prompt; a chat has one. */
  prompts: Prompt[];
  /** The answer is a call of this tool. */
  tool: ForcedTool | null;
  body: Body;
}

export interface Prompt {
  hasher: BlockHasher;
  outputTokens: number;
  /** What `max_tokens` says, or the room that is left where it says nothing. */
  tokensAsked: number;
  finishReason: 'stop' | 'length';
}

// A model that is left alone stops by itself somewhere in this range.
const ANSWER_TOKENS_MIN = 64;
const ANSWER_TOKENS_SPREAD = 192;
// The arguments of a tool call are shorter.
const CALL_TOKENS_MIN = 8;
const CALL_TOKENS_SPREAD = 24;

const required: Record<Api, readonly string[]> = {
  chat: ['messages'],
  completions: ['prompt'],
  responses: ['input'],
  messages: ['model', 'messages', 'max_tokens'],
  count: ['model', 'messages'],
  embeddings: ['input'],
};

const tokensFields: Record<Api, readonly string[]> = {
  chat: ['max_completion_tokens', 'max_tokens'],
  completions: ['max_tokens'],
  responses: ['max_output_tokens'],
  messages: ['max_tokens'],
  count: [],
  embeddings: [],
};

function measure(api: Api, hasher: BlockHasher, body: Body, limits: ModelLimits, isCall: boolean): Prompt {
  const { tokensMax } = limits;
  const isText = !hasher.isIds;
  // A real engine stops reading a text one token after the most that fits; token ids it counts.
  const promptTokens = isText ? Math.min(hasher.tokens, tokensMax + 1) : hasher.tokens;
  const field = tokensFields[api].find((name) => whole(body[name]) !== undefined) ?? 'max_tokens';
  const asked = api === 'embeddings' ? 1 : whole(body[field]);
  if (asked !== undefined && asked > tokensMax) {
    throw refused(
      field,
      `${field}=${asked} cannot be greater than max_model_len=${tokensMax}. ` +
        `Please request fewer output tokens. (parameter=${field}, value=${asked})`,
    );
  }
  if (promptTokens >= tokensMax) {
    throw refused(
      'input_tokens',
      `This model's maximum context length is ${tokensMax} tokens. However, your prompt contains ${isText ? 'at least ' : ''}${promptTokens} input tokens, ` +
        `which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. ` +
        `(parameter=input_tokens, value=${promptTokens})`,
    );
  }
  const room = tokensMax - promptTokens;
  if (asked !== undefined && asked > room) {
    throw refused(
      'input_tokens',
      `This model's maximum context length is ${tokensMax} tokens. However, you requested ${asked} output tokens and your prompt ` +
        `contains ${promptTokens} input tokens, for a total of ${asked + promptTokens} tokens. Please reduce the length of the input ` +
        `prompt or the number of requested output tokens. (parameter=input_tokens, value=${promptTokens})`,
    );
  }
  const most = Math.max(1, asked ?? room);
  if (body['ignore_eos'] === true) return { hasher, outputTokens: most, tokensAsked: most, finishReason: 'length' };
  const least = Math.min(whole(body['min_tokens']) ?? 0, most);
  const drawn = spread(hasher.state);
  const natural = isCall
    ? CALL_TOKENS_MIN + (drawn % CALL_TOKENS_SPREAD)
    : ANSWER_TOKENS_MIN + (drawn % ANSWER_TOKENS_SPREAD);
  const outputTokens = Math.max(least, Math.min(natural, most));
  return { hasher, outputTokens, tokensAsked: most, finishReason: natural < most ? 'stop' : 'length' };
}

/** Texts or token ids, one of them or a list of them, as completions and embeddings take them. */
function listedPrompts(prompt: unknown): (string | number[])[] {
  if (typeof prompt === 'string') return [prompt];
  if (!Array.isArray(prompt) || prompt.length === 0) return [];
  const items = prompt as unknown[];
  if (items.every((item) => typeof item === 'number')) return [items];
  return items.filter(
    (item): item is string | number[] =>
      typeof item === 'string' || (Array.isArray(item) && item.every((id) => typeof id === 'number')),
  );
}

function chatOf(api: Api, body: Body): ChatPrompt | null {
  switch (api) {
    case 'chat':
      return chatPrompt(body);
    case 'messages':
    case 'count':
      return messagesPrompt(body);
    case 'responses':
      return responsesPrompt(body);
    default:
      return null;
  }
}

function hashersOf(api: Api, body: Body, chat: ChatPrompt | null, open: () => BlockHasher): BlockHasher[] {
  if (chat !== null) {
    const hasher = open();
    renderChat(hasher, chat);
    return [hasher];
  }
  const hashers: BlockHasher[] = [];
  for (const prompt of listedPrompts(body[required[api][0]!])) {
    const hasher = open();
    if (typeof prompt === 'string') hasher.text(prompt);
    else hasher.tokenIds(prompt);
    if (hasher.tokens > 0) hashers.push(hasher);
  }
  if (hashers.length > 0) return hashers;
  if (api === 'completions') {
    throw refused('prompt', 'Either prompt or prompt_embeds must be provided and non-empty.');
  }
  throw invalid('body.input', [`'type': 'list_type', 'loc': 'body.input', 'msg': 'Input should be a valid list'`]);
}

export function readRequest(api: Api, raw: Buffer, limits: ModelLimits): Work {
  const body = parseBody(raw);
  requireFields(body, required[api]);
  const chat = chatOf(api, body);
  const model = typeof body['model'] === 'string' ? body['model'] : limits.model;
  const isLora = limits.loras.includes(model);
  if (model !== limits.model && !isLora) {
    const names = [limits.model, ...limits.loras].join(', ');
    throw new BodyError(
      404,
      'NotFoundError',
      'model',
      `The model \`${model}\` does not exist. Valid aliases: ${names}.`,
    );
  }
  const salt = typeof body['cache_salt'] === 'string' ? body['cache_salt'] : '';
  const seed = isLora ? `\u0001${model}\u0001${salt}` : salt;
  const tool = chat === null ? null : forcedTool(body, chat);
  const hashers = hashersOf(api, body, chat, () => new BlockHasher(limits.blockTokens, seed));
  const prompts =
    api === 'count'
      ? hashers.map((hasher) => ({ hasher, outputTokens: 0, tokensAsked: 0, finishReason: 'stop' as const }))
      : hashers.map((hasher) => measure(api, hasher, body, limits, tool !== null));
  const streamOptions = body['stream_options'] as
    { include_usage?: unknown; continuous_usage_stats?: unknown } | null | undefined;
  return {
    api,
    model,
    stream: body['stream'] === true && api !== 'embeddings',
    includeUsage: streamOptions?.include_usage === true,
    continuousUsage: streamOptions?.continuous_usage_stats === true,
    prompts,
    tool,
    body,
  };
}
