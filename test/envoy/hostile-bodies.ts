// One body of each kind that an attacker, or a client with a mistake, may send.

const chatPath = '/v1/chat/completions';
const messagesPath = '/v1/messages';
const completionsPath = '/v1/completions';
const responsesPath = '/v1/responses';
const mib = 1 << 20;
const long = 'lorem ipsum dolor sit amet '.repeat(40);

export interface HostileBody {
  name: string;
  path: string;
  make: () => Buffer;
}

const withContent = (content: string): string => `{"model":"m","messages":[{"role":"user","content":${content}}]}`;
/** Text around bytes that are no text. */
const around = (before: string, bytes: Buffer, after: string): Buffer =>
  Buffer.concat([Buffer.from(before), bytes, Buffer.from(after)]);
const repeated = (item: string, times: number, separator = ','): string =>
  `${item}${separator}`.repeat(times - 1) + item;

const kinds: [name: string, path: string, make: () => string | Buffer][] = [
  ['a million open arrays', chatPath, () => '['.repeat(1_000_000)],
  ['a million arrays, closed', chatPath, () => `{"x":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)},"messages":[]}`],
  ['a million nested objects', chatPath, () => `${'{"a":'.repeat(1_000_000)}1${'}'.repeat(1_000_000)}`],
  ['a million nested contents', chatPath, () => withContent(`${'[{"type":"text","text":'.repeat(1_000_000)}`)],
  ['a string of 30 MB', chatPath, () => withContent(`"${'0123456789abcde '.repeat(30 * 65_536)}"`)],
  ['a string of 30 MB that never ends', chatPath, () => withContent(`"${'x'.repeat(30 * mib)}`).slice(0, -3)],
  ['30 MB of white space', chatPath, () => `${' \n\t\r'.repeat(7.5 * mib)}${withContent(`"${long}"`)}`],
  ['30 MB of escapes', chatPath, () => withContent(`"${'\\u0041\\n\\ud83d\\ude00'.repeat(1.5 * mib)}"`)],
  ['a million messages', chatPath, () => `{"messages":[${repeated('{"role":"user","content":"hi"}', 1_000_000)}]}`],
  ['a million empty messages', chatPath, () => `{"messages":[${repeated('{}', 1_000_000)}]}`],
  ['a million parts', chatPath, () => withContent(`[${repeated('{"type":"text","text":"a"}', 1_000_000)}]`)],
  ['a million token ids', completionsPath, () => `{"prompt":[${repeated('12345', 1_000_000)}]}`],
  ['a hundred thousand prompts', completionsPath, () => `{"prompt":[${repeated('"hello"', 100_000)}]}`],
  [
    'a hundred thousand tools',
    chatPath,
    () =>
      `{"tools":[${repeated(`{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}`, 100_000)}],"messages":[{"role":"user","content":"${long}"}]}`,
  ],
  [
    'a tool whose schema is 60 deep',
    chatPath,
    () =>
      `{"tools":[{"function":{"parameters":${'{"properties":{"x":'.repeat(28)}{}${'}}'.repeat(28)}}}],"messages":[{"role":"user","content":"${long}"}]}`,
  ],
  [
    'a tool whose schema is 100,000 deep',
    chatPath,
    () =>
      `{"tools":[{"function":{"parameters":${'{"properties":{"x":'.repeat(50_000)}{}${'}}'.repeat(50_000)}}}],"messages":[{"role":"user","content":"${long}"}]}`,
  ],
  [
    'every escape, and lone surrogates',
    chatPath,
    () =>
      withContent(
        `"${long}\\"\\\\\\/\\b\\f\\n\\r\\t${Array.from({ length: 65_536 }, (_, unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('')}\\udc00\\ud800"`,
      ),
  ],
  ['an escape that is none', chatPath, () => withContent(`"${long}\\x41"`)],
  [
    'every pair of bytes in a string',
    chatPath,
    () =>
      around(
        `{"model":"m","messages":[{"role":"user","content":"${long}`,
        Buffer.from(Array.from({ length: 128 * 128 }, (_, i) => [0x80 + (i >> 7), 0x80 + (i & 127)]).flat()),
        '"}]}',
      ),
  ],
  [
    'UTF-8 cut off, overlong and of surrogates',
    chatPath,
    () =>
      around(
        `{"messages":[{"role":"user","content":"${long}`,
        Buffer.from('f09f98e282c0afe080afeda080edb080f88080808000', 'hex').subarray(0, -1),
        '"}]}',
      ),
  ],
  [
    'keys that stand twice',
    chatPath,
    () => `{"messages":[{"role":"user","content":"${long}"}],"messages":[{"role":"user","content":"other"}]}`,
  ],
  [
    'a key that stands 100,000 times',
    chatPath,
    () => `{${repeated('"x":1', 100_000)},"messages":[{"role":"user","content":"${long}"}]}`,
  ],
  ['NUL in a string', chatPath, () => withContent(`"${long}\0"`)],
  ['NUL escaped', chatPath, () => withContent(`"${long}\\u0000${long}"`)],
  ['nothing but NUL', chatPath, () => Buffer.alloc(mib)],
  [
    'numbers of 10,000 digits',
    chatPath,
    () =>
      `{"seed":-${'9'.repeat(10_000)}.${'1'.repeat(10_000)}e+${'7'.repeat(10_000)},"messages":[{"role":"user","content":"${long}"}]}`,
  ],
  ['token ids of 10,000 digits', completionsPath, () => `{"prompt":[${repeated('9'.repeat(10_000), 100)}]}`],
  ['a byte order mark', chatPath, () => `\ufeff${withContent(`"${long}"`)}`],
  ['UTF-16', chatPath, () => Buffer.from(`\ufeff${withContent(`"${long}"`)}`, 'utf16le')],
  ['a key of 1 MB', chatPath, () => `{"${'k'.repeat(mib)}":1,"messages":[{"role":"user","content":"${long}"}]}`],
  ['a role of 1 MB', chatPath, () => `{"messages":[{"role":"${'r'.repeat(mib)}","content":"${long}"}]}`],
  [
    'a model of 1 MB',
    chatPath,
    () => `{"model":"${'m'.repeat(mib)}","messages":[{"role":"user","content":"${long}"}]}`,
  ],
  [
    'a cache salt of 1 MB',
    chatPath,
    () => `{"cache_salt":"${'s'.repeat(mib)}","messages":[{"role":"user","content":"${long}"}]}`,
  ],
  [
    'empty strings everywhere',
    chatPath,
    () => '{"model":"","messages":[{"role":"","content":""},{"":""}],"tools":[],"":""}',
  ],
  [
    'arrays where strings are due',
    chatPath,
    () => `{"model":[],"cache_salt":[[]],"messages":[{"role":["user"],"content":[["${long}"]]}]}`,
  ],
  [
    'objects where arrays are due',
    chatPath,
    () => `{"messages":{"0":{"role":"user","content":"${long}"}},"tools":{"a":1}}`,
  ],
  ['a string where messages are due', messagesPath, () => `{"system":{"text":"${long}"},"messages":"${long}"}`],
  [
    'numbers where text is due',
    responsesPath,
    () => `{"input":[1,2.5e3,null,true,{"type":"message","content":7}],"instructions":12}`,
  ],
  ['a bare number', chatPath, () => '1'],
  ['a bare string of 1 MB', chatPath, () => `"${'x'.repeat(mib)}"`],
  ['two bodies', chatPath, () => withContent(`"${long}"`).repeat(2)],
  [
    'random bytes',
    chatPath,
    () => Buffer.from(Array.from({ length: mib }, (_, i) => (Math.imul(i + 1, 2_654_435_761) >>> 13) & 0xff)),
  ],
];

export const hostileBodies: HostileBody[] = kinds.map(([name, path, make]) => ({
  name,
  path,
  make: () => Buffer.from(make()),
}));
