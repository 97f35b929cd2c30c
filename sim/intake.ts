// Reads a request body as vLLM does: what is asked, how long the prompt is, and the errors that vLLM answers before any engine sees the request.

import { BlockHasher, renderChat, spread, type ChatMessage } from './tokens.ts';

export type Api = 'chat' | 'completions';

export interface ModelLimits {
  model: string;
  tokensMax: number;
  blockTokens: number;
}

export interface Work {
  api: Api;
  stream: boolean;
  includeUsage: boolean;
  continuousUsage: boolean;
  /** One entry per prompt; a chat has one. */
  prompts: Prompt[];
}

export interface Prompt {
  hasher: BlockHasher;
  outputTokens: number;
  finishReason: 'stop' | 'length';
}

/** An answer that is an error, in the fields of vLLM's error object. */
export class BodyError extends Error {
  readonly status: number;
  readonly type: string;
  readonly param: string | null;

  constructor(status: number, type: string, param: string | null, message: string) {
    super(message);
    this.status = status;
    this.type = type;
    this.param = param;
  }
}

// A model that is left alone stops by itself somewhere in this range.
const ANSWER_TOKENS_MIN = 64;
const ANSWER_TOKENS_SPREAD = 192;

type Body = Record<string, unknown>;

function fieldMissing(field: string, body: Body): BodyError {
  const input = `<dict of ${Object.keys(body).length} items>`;
  const text = `1 validation error:\n  {'type': 'missing', 'loc': 'body.${field}', 'msg': 'Field required', 'input': '${input}'}`;
  return new BodyError(400, 'Bad Request', `body.${field}`, text);
}

function parse(raw: Buffer): Body {
  let value: unknown;
  try {
    value = JSON.parse(raw.toString('utf8'));
  } catch {
    const at = `body.${raw.length > 0 ? raw.length - 1 : 0}`;
    const text =
      `1 validation error:\n  {'type': 'json_invalid', 'loc': '${at}', 'msg': 'JSON decode error', ` +
      `'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}`;
    throw new BodyError(400, 'Bad Request', at, text);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    const text = `1 validation error:\n  {'type': 'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary'}`;
    throw new BodyError(400, 'Bad Request', 'body', text);
  }
  return value as Body;
}

function whole(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : undefined;
}

function measure(hasher: BlockHasher, body: Body, limits: ModelLimits): Prompt {
  const { tokensMax } = limits;
  const promptTokens = hasher.tokens;
  const asked = whole(body['max_completion_tokens']) ?? whole(body['max_tokens']);
  if (asked !== undefined && asked > tokensMax) {
    const text =
      `max_tokens=${asked} cannot be greater than max_model_len=${tokensMax}. ` +
      `Please request fewer output tokens. (parameter=max_tokens, value=${asked})`;
    throw new BodyError(400, 'BadRequestError', 'max_tokens', text);
  }
  if (promptTokens >= tokensMax) {
    const text =
      `This model's maximum context length is ${tokensMax} tokens. However, your prompt contains ${promptTokens} input tokens, ` +
      `which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. ` +
      `(parameter=input_tokens, value=${promptTokens})`;
    throw new BodyError(400, 'BadRequestError', 'input_tokens', text);
  }
  const room = tokensMax - promptTokens;
  if (asked !== undefined && asked > room) {
    const text =
      `This model's maximum context length is ${tokensMax} tokens. However, you requested ${asked} output tokens and your prompt ` +
      `contains ${promptTokens} input tokens, for a total of ${asked + promptTokens} tokens. Please reduce the length of the input ` +
      `prompt or the number of requested output tokens. (parameter=input_tokens, value=${promptTokens})`;
    throw new BodyError(400, 'BadRequestError', 'input_tokens', text);
  }
  const most = Math.max(1, asked ?? room);
  if (body['ignore_eos'] === true) return { hasher, outputTokens: most, finishReason: 'length' };
  const least = Math.min(whole(body['min_tokens']) ?? 0, most);
  const natural = ANSWER_TOKENS_MIN + (spread(hasher.state) % ANSWER_TOKENS_SPREAD);
  const outputTokens = Math.max(least, Math.min(natural, most));
  return { hasher, outputTokens, finishReason: natural < most ? 'stop' : 'length' };
}

function completionPrompts(prompt: unknown): (string | number[])[] {
  if (typeof prompt === 'string') return [prompt];
  if (!Array.isArray(prompt) || prompt.length === 0) return [];
  const items = prompt as unknown[];
  if (items.every((item) => typeof item === 'number')) return [items];
  return items.filter(
    (item): item is string | number[] =>
      typeof item === 'string' || (Array.isArray(item) && item.every((id) => typeof id === 'number')),
  );
}

export function readRequest(api: Api, raw: Buffer, limits: ModelLimits): Work {
  const body = parse(raw);
  const field = api === 'chat' ? 'messages' : 'prompt';
  if (!(field in body)) throw fieldMissing(field, body);
  const model = body['model'];
  if (typeof model === 'string' && model !== limits.model) {
    const text = `The model \`${model}\` does not exist. Valid aliases: ${limits.model}.`;
    throw new BodyError(404, 'NotFoundError', 'model', text);
  }
  const salt = typeof body['cache_salt'] === 'string' ? body['cache_salt'] : '';
  const prompts: Prompt[] = [];
  if (api === 'chat') {
    const messages = body['messages'];
    const usable =
      Array.isArray(messages) &&
      messages.length > 0 &&
      (messages as unknown[]).every((message) => typeof message === 'object' && message !== null);
    if (!usable) {
      const text = `1 validation error:\n  {'type': 'list_type', 'loc': 'body.messages', 'msg': 'Input should be a valid list'}`;
      throw new BodyError(400, 'Bad Request', 'body.messages', text);
    }
    const hasher = new BlockHasher(limits.blockTokens, salt);
    renderChat(hasher, { messages: messages as ChatMessage[], tools: body['tools'] });
    prompts.push(measure(hasher, body, limits));
  } else {
    for (const prompt of completionPrompts(body['prompt'])) {
      const hasher = new BlockHasher(limits.blockTokens, salt);
      if (typeof prompt === 'string') hasher.text(prompt);
      else hasher.tokenIds(prompt);
      if (hasher.tokens > 0) prompts.push(measure(hasher, body, limits));
    }
    if (prompts.length === 0) {
      throw new BodyError(
        400,
        'BadRequestError',
        'prompt',
        'Either prompt or prompt_embeds must be provided and non-empty.',
      );
    }
  }
  const streamOptions = body['stream_options'] as
    { include_usage?: unknown; continuous_usage_stats?: unknown } | null | undefined;
  return {
    api,
    stream: body['stream'] === true,
    includeUsage: streamOptions?.include_usage === true,
    continuousUsage: streamOptions?.continuous_usage_stats === true,
    prompts,
  };
}
