// Reads what a test wants from an engine's answer, streamed or not, in each of the four APIs: the text, the tokens, how it ended. It parses
// JSON, other than the filter, which only looks for names in passing bytes.

export interface Usage {
  promptTokens: number;
  cachedTokens: number;
  outputTokens: number;
}

export interface Reading {
  text: string;
  /** None when the answer does not tell. */
  usage: Usage | undefined;
  /** The reason that the engine gives for the end, in the words of the API. */
  end: string | undefined;
  /** Events of a stream, without comments; 0 when it was none. */
  events: number;
}

type Json = Record<string, unknown>;

const object = (value: unknown): Json => (typeof value === 'object' && value !== null ? (value as Json) : {});
const list = (value: unknown): Json[] => (Array.isArray(value) ? value.map(object) : []);
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number => (typeof value === 'number' ? value : 0);

/** Each API's usage in one form; Anthropic counts what was read from and written to the cache beside the rest of the prompt. */
function usageOf(value: unknown): Usage | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const usage = object(value);
  const read = number(usage['cache_read_input_tokens']);
  const details = object(usage['prompt_tokens_details'] ?? usage['input_tokens_details']);
  return {
    promptTokens:
      number(usage['prompt_tokens'] ?? usage['input_tokens']) + read + number(usage['cache_creation_input_tokens']),
    cachedTokens: read + number(details['cached_tokens']),
    outputTokens: number(usage['completion_tokens'] ?? usage['output_tokens']),
  };
}

function reasonOf(json: Json): string | undefined {
  const [choice] = list(json['choices']);
  const reason = choice?.['finish_reason'] ?? json['stop_reason'] ?? object(json['delta'])['stop_reason'];
  return text(reason ?? json['status']) || undefined;
}

function wholeText(json: Json): string {
  const [choice] = list(json['choices']);
  if (choice) return text(choice['text']) || text(object(choice['message'])['content']);
  const parts = list(json['content'] ?? list(json['output']).flatMap((item) => list(item['content'])));
  return parts.map((part) => text(part['text'])).join('');
}

function eventText(json: Json): string {
  const [choice] = list(json['choices']);
  if (choice) return text(choice['text']) || text(object(choice['delta'])['content']);
  if (json['type'] === 'response.output_text.delta') return text(json['delta']);
  return json['type'] === 'content_block_delta' ? text(object(json['delta'])['text']) : '';
}

export function readAnswer(body: Buffer, contentType: string): Reading {
  if (!contentType.startsWith('text/event-stream')) {
    const json = object(JSON.parse(body.toString()));
    return { text: wholeText(json), usage: usageOf(json['usage']), end: reasonOf(json), events: 0 };
  }
  const reading: Reading = { text: '', usage: undefined, end: undefined, events: 0 };
  for (const line of body.toString().split('\n')) {
    if (!line.startsWith('data: ')) continue;
    reading.events += 1;
    if (line === 'data: [DONE]') continue;
    const json = object(JSON.parse(line.slice('data: '.length)));
    reading.text += eventText(json);
    const inner = object(json['response'] ?? json['message']);
    reading.end = reasonOf(json) ?? reasonOf(inner) ?? reading.end;
    reading.usage = usageOf(json['usage']) ?? usageOf(inner['usage']) ?? reading.usage;
  }
  return reading;
}
