// Requests of every API, made by fast-check, and spelt as JSON in a random way: white space, key order as drawn, escapes here and there.
import fc from 'fast-check';

export type Value = null | boolean | number | string | RawNumber | Value[] | { [key: string]: Value };

/** A number in a spelling that JSON.stringify would not choose. */
export class RawNumber {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
}

/** Where `spell` takes its choices from: a seed makes the same text again. */
function choices(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const SHORT: Record<string, string> = {
  '"': '\\"',
  '\\': '\\\\',
  '\b': '\\b',
  '\f': '\\f',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '/': '\\/',
};

function spellString(text: string, choose: (below: number) => number): string {
  const escapes = choose(4);
  let out = '"';
  for (const unit of text.split('')) {
    const code = unit.charCodeAt(0);
    const must = code < 0x20 || unit === '"' || unit === '\\' || (code >= 0xd800 && code < 0xe000);
    if (!must && (escapes !== 0 || choose(8) !== 0)) out += unit;
    else if (SHORT[unit] !== undefined && choose(2) === 0) out += SHORT[unit];
    else out += `\\u${code.toString(16).padStart(4, '0')}`;
  }
  return `${out}"`;
}

/** Spells a value as JSON. */
export function spell(value: Value, seed: number): string {
  const choose = choices(seed);
  const spaced = choose(3);
  const space = (): string => (spaced === 0 ? [' ', '\n\t', '', '\r\n  '][choose(4)]! : '');
  const write = (item: Value): string => {
    if (typeof item === 'string') return spellString(item, choose);
    if (item instanceof RawNumber) return item.source;
    if (Array.isArray(item)) return `[${space()}${item.map((entry) => write(entry) + space()).join(`,${space()}`)}]`;
    if (typeof item === 'object' && item !== null) {
      const members = Object.entries(item).map(
        ([key, member]) => `${spellString(key, choose)}${space()}:${space()}${write(member)}${space()}`,
      );
      return `{${space()}${members.join(`,${space()}`)}}`;
    }
    return String(item);
  };
  return `${space()}${write(value)}${space()}`;
}

const short = fc.string({ unit: 'binary', maxLength: 40 });
const words = fc.constantFrom('the cache ', 'prefix\n', '"quoted" ', 'воде мостах ', '😀 ', '\ud800', 'a\\b', 'tools/');
const long = fc
  .tuple(fc.array(words, { minLength: 1, maxLength: 12 }), fc.integer({ min: 1, max: 60 }))
  .map(([parts, times]) => parts.join('').repeat(times));
const plain = fc.integer({ min: 0, max: 1500 }).map((length) => 'abcdefghij klmno'.repeat(100).slice(0, length));
const text = fc.oneof(short, plain, long);

const number = fc.oneof(
  fc.integer().map((value) => value as Value),
  fc
    .constantFrom('1.0', '-0', '1e5', '12345678901234567890123', '0.5E-3')
    .map((source) => new RawNumber(source) as Value),
);
const name = fc.constantFrom(
  'a',
  'id',
  'text',
  'type',
  'cache_control',
  'content',
  'role',
  'é',
  'properties',
  'x'.repeat(70),
);

const { json } = fc.letrec<{ json: Value }>((tie) => ({
  json: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.oneof(short, number, fc.boolean(), fc.constant(null)) as fc.Arbitrary<Value>,
    fc.array(tie('json'), { maxLength: 4 }),
    fc.dictionary(name, tie('json'), { maxKeys: 4 }),
  ),
}));

/** Members in the order drawn, some left out. */
function shuffled(members: Record<string, fc.Arbitrary<Value>>): fc.Arbitrary<Value> {
  const keys = Object.keys(members);
  return fc
    .tuple(fc.shuffledSubarray(keys, { minLength: 0, maxLength: keys.length }), fc.record(members))
    .map(([order, values]) => Object.fromEntries(order.map((key) => [key, values[key] ?? null])));
}

const type = fc.constantFrom<Value>('text', 'input_text', 'image_url', 'tool_use', 'x'.repeat(70), null);
const part: fc.Arbitrary<Value> = fc.oneof(
  fc.record({ type: fc.constant('text'), text }) as fc.Arbitrary<Value>,
  shuffled({
    type,
    text,
    cache_control: json,
    image_url: json,
    input: json,
    id: short,
    annotations: json,
    thinking: text,
  }),
  text as fc.Arbitrary<Value>,
  json,
);

// Media: data long enough to count less than its bytes, short of it, and text under a key of media. Some begin with an escape when spelt.
const data = fc
  .tuple(
    fc.constantFrom('data:image/png;base64,', 'https://example.com/', '', 'a b ', 'x'.repeat(63) + ' ', 'é', '/'),
    fc.constantFrom('QUJD', '/9j+', 'iVBORw0KGgo', 'é', 'words and '),
    fc.integer({ min: 0, max: 9000 }),
  )
  .map(([head, unit, bytes]): Value => head + unit.repeat(Math.ceil(bytes / unit.length)));
const source = fc.oneof(
  fc.record({ type: fc.constantFrom<Value>('base64', 'url', 'text', 'data'), media_type: short, data }),
  shuffled({ url: data, detail: short, data: json, file_data: data, ['k'.repeat(70)]: data, video: fc.array(data) }),
);
const medium: fc.Arbitrary<Value> = fc.oneof(
  shuffled({ type, image_url: fc.oneof(data, source), text, audio: data, b64_json: data, urls: data, id: data }),
  fc.record({ type: fc.constant('image'), source }) as fc.Arbitrary<Value>,
  fc.record({
    type: fc.constant('tool_result'),
    content: fc.array(fc.record({ type: fc.constant('image'), source }) as fc.Arbitrary<Value>, { maxLength: 2 }),
  }) as fc.Arbitrary<Value>,
  source,
);
const parts = fc.array(fc.oneof({ weight: 2, arbitrary: part }, { weight: 1, arbitrary: medium }), { maxLength: 5 });
const content = fc.oneof(text as fc.Arbitrary<Value>, parts as fc.Arbitrary<Value>, fc.constant(null), json, source);
const role = fc.oneof(
  fc.constantFrom<Value>(
    'system',
    'developer',
    'user',
    'assistant',
    'tool',
    'function',
    'observer',
    '',
    'r'.repeat(70),
  ),
  short as fc.Arbitrary<Value>,
);
const call = shuffled({ id: short, type: fc.constant('function'), function: json, index: number, cache_control: json });
const message: fc.Arbitrary<Value> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ role, content: text }) as fc.Arbitrary<Value> },
  {
    weight: 3,
    arbitrary: shuffled({
      role,
      content,
      name: content,
      type: fc.constantFrom<Value>('message', 'function_call', 'reasoning', null),
      reasoning: content,
      reasoning_content: content,
      thinking: content,
      summary: content,
      tool_calls: fc.oneof(fc.array(call, { maxLength: 3 }) as fc.Arbitrary<Value>, json),
      function_call: json,
      arguments: content,
      input: json,
      output: content,
      tool_call_id: short,
    }),
  },
  { weight: 1, arbitrary: json },
);
const messages = fc.oneof(
  { weight: 5, arbitrary: fc.array(message, { maxLength: 8 }) as fc.Arbitrary<Value> },
  { weight: 1, arbitrary: content },
);
const systemPart = fc.record({
  type: fc.constant('text'),
  text: fc.oneof(
    text,
    fc.constantFrom('x-anthropic-billing-header: a=1;', 'x-anthropic-billing-header', 'x-ant\u00e9'),
  ),
}) as fc.Arbitrary<Value>;
const system = fc.oneof(content, fc.array(systemPart, { maxLength: 3 }) as fc.Arbitrary<Value>);
const tool = shuffled({ type: fc.constant('function'), function: json, cache_control: json, name: short, id: short });
const prompt = fc.oneof(
  text as fc.Arbitrary<Value>,
  fc.array(text, { maxLength: 4 }) as fc.Arbitrary<Value>,
  fc.array(number, { maxLength: 300 }) as fc.Arbitrary<Value>,
  fc.array(fc.array(number, { maxLength: 100 }), { maxLength: 3 }) as fc.Arbitrary<Value>,
  json,
);

/** A body that may belong to any API: each API must read its own fields and pass over the others. */
export const request: fc.Arbitrary<Value> = shuffled({
  model: fc.oneof(fc.constantFrom<Value>('m', 'Meta-LLaMA-3', 'l'.repeat(300), null), short as fc.Arbitrary<Value>),
  messages,
  system,
  instructions: system,
  input: messages,
  prompt,
  tools: fc.oneof(fc.array(tool, { maxLength: 3 }) as fc.Arbitrary<Value>, json),
  cache_salt: fc.oneof(short as fc.Arbitrary<Value>, json),
  stream: fc.constantFrom<Value>(true, false, null, 'true'),
  temperature: number,
  metadata: json,
});

export const path = fc.constantFrom('/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages');
