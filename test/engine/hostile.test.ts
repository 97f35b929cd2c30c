// Bodies that nobody should send: whatever comes, the reader does not trap, answers with a known reason and gives back what it took.
import fc from 'fast-check';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { KeyReader } from '../../control-plane/engine/keys.ts';

const CHAT = '/v1/chat/completions';
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const chat = (content: string): string => `{"model":"m","messages":[{"role":"user","content":${content}}]}`;
const long = 'lorem ipsum '.repeat(60);

let reader: KeyReader;
let pages = 0;
beforeAll(async () => {
  reader = await KeyReader.create();
  pages = reader.pagesFree;
});
afterEach(() => {
  expect(reader.pagesFree).toBe(pages);
});

const read = (text: string, path = CHAT) => reader.read(path, bytesOf(text));

describe('JSON that an engine refuses yields no keys', () => {
  const broken: [why: string, body: string][] = [
    ['a raw control byte in a string', chat(`"${long}\n"`)],
    ['a NUL in a string', chat(`"${long}\0"`)],
    ['an unknown escape', chat(`"${long}\\x"`)],
    ['a bad \\u escape', chat(`"${long}\\u12g4"`)],
    ['a trailing comma in an object', `{"messages":[{"role":"user","content":"${long}",}]}`],
    ['a trailing comma in an array', `{"messages":[{"role":"user","content":"${long}"},]}`],
    ['a missing colon', `{"messages" [{"content":"${long}"}]}`],
    ['a missing comma', `{"messages":[{"content":"${long}"} {"content":"x"}]}`],
    ['a bracket that does not match', `{"messages":[{"content":"${long}"]}}`],
    ['two values', `${chat(`"${long}"`)} {}`],
    ['a leading zero', `{"n":01,"messages":[{"content":"${long}"}]}`],
    ['a lone minus', `{"n":-,"messages":[{"content":"${long}"}]}`],
    ['a point without digits', `{"n":1.,"messages":[{"content":"${long}"}]}`],
    ['a plus sign', `{"n":+1,"messages":[{"content":"${long}"}]}`],
    ['an exponent without digits', `{"n":1e,"messages":[{"content":"${long}"}]}`],
    ['NaN', `{"n":NaN,"messages":[{"content":"${long}"}]}`],
    ['a misspelt literal', `{"n":nul1,"messages":[{"content":"${long}"}]}`],
    ['a key without quotes', `{messages:[{"content":"${long}"}]}`],
    ['single quotes', `{'messages':[{"content":"${long}"}]}`],
    ['half a byte order mark', `\u00ef${chat(`"${long}"`)}`],
    ['compressed bytes', '\u001f\u008b\u0008'],
  ];
  test.each(broken)('%s', (_why, body) => {
    const whole = read(body);
    expect(whole).toMatchObject({ keys: [], reason: 'not-json' });
    const bytes = bytesOf(body);
    expect(reader.read(CHAT, bytes, {}, Array.from(bytes.keys()))).toEqual(whole);
  });

  test('the same bodies without their mistake have keys', () => {
    expect(read(chat(`"${long}"`)).keys.length).toBe(3);
    expect(read(`\ufeff ${chat(`"${long}"`)}\n`).keys).toEqual(read(chat(`"${long}"`)).keys);
  });
});

describe('reasons', () => {
  test.each([
    ['', 'truncated'],
    [' ', 'truncated'],
    ['\ufeff', 'truncated'],
    ['{', 'truncated'],
    ['tru', 'truncated'],
    ['"abc', 'truncated'],
    ['12', 'no-prompt'],
    ['-', 'truncated'],
    ['null', 'no-prompt'],
    ['[]', 'no-prompt'],
    ['{}', 'no-prompt'],
    ['{"messages":[]}', 'no-prompt'],
    ['{"messages":null}', 'no-prompt'],
    ['{"messages":"hello"}', 'no-prompt'],
    ['{"messages":[1,"a",[],{}]}', 'no-prompt'],
  ])('%j: %s', (body, reason) => {
    expect(read(body)).toMatchObject({ keys: [], reason });
  });

  test('a prompt shorter than a block has the key of its end, unless the window is shorter still', () => {
    const body = bytesOf(chat('"hi"'));
    expect(reader.read(CHAT, body)).toMatchObject({ ends: [2], reason: null });
    expect(reader.read(CHAT, body, { windowBytes: 1 })).toMatchObject({ keys: [], reason: 'too-short' });
  });

  test('another path is not read', () => {
    for (const path of ['/v1/embeddings', '/v1/chat/completions/', '/v1/chat', '', '/', 'v1/messages']) {
      expect(read(chat(`"${long}"`), path).reason).toBe('path');
    }
    expect(read(chat(`"${long}"`), `${CHAT}?beta=true`).reason).toBeNull();
    expect(['/v1/models', '/health', '/v1/messages'].map((path) => reader.api(path))).toEqual([
      'other',
      'none',
      'messages',
    ]);
  });

  test('a key that bears on the prompt may stand once, any other as often as it likes', () => {
    const content = `"${long}"`;
    const doubled = [
      `{"model":"a","model":"b","messages":[{"content":${content}}]}`,
      `{"messages":[{"content":${content}}],"messages":[]}`,
      `{"messages":[{"content":${content},"content":"x"}]}`,
      `{"messages":[{"role":"user","content":${content},"r\\u006fle":"user"}]}`,
      `{"messages":[{"content":[{"type":"text","text":${content},"text":"x"}]}]}`,
      `{"cache_salt":"a","cache_salt":"a","messages":[{"content":${content}}]}`,
    ];
    for (const body of doubled) expect(read(body)).toMatchObject({ keys: [], reason: 'duplicate-key' });
    expect(read(`{"seed":1,"seed":2,"messages":[{"content":${content},"x":1,"x":2}]}`).reason).toBeNull();
  });

  test('nesting of 64 is read and of 65 is not', () => {
    const nested = (depth: number): string =>
      `{"x":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)},"messages":[{"content":"${long}"}]}`;
    expect(read(nested(64)).reason).toBeNull();
    expect(read(nested(65)).reason).toBe('too-deep');
    expect(read('['.repeat(1_000_000)).reason).toBe('too-deep');
    expect(read('{"a":'.repeat(1_000_000)).reason).toBe('too-deep');
  });
});

describe('sizes', () => {
  test('a string of 30 MB', () => {
    const result = read(chat(`"${'0123456789abcde '.repeat(1_966_080)}"`));
    expect(result.promptBytes).toBe(31_457_280);
    expect(result.keys.length).toBeGreaterThan(100);
    expect(result.keys.length).toBeLessThan(400);
  });

  test('a million messages: the first ones are indexed', () => {
    const message = `{"role":"user","content":"${'x'.repeat(300)}"}`;
    const few = read(`{"messages":[${Array(100).fill(message).join(',')}]}`);
    const many = read(`{"messages":[${Array(100_000).fill(message).join(',')}]}`);
    expect(many.reason).toBe('keys-full');
    expect(many.keys.length).toBe(8192);
    expect(many.keys.slice(0, few.keys.length)).toEqual(few.keys);
    const empty = read(`{"messages":[${Array(1_000_000).fill('{"role":"user"}').join(',')},${message}]}`);
    expect(empty).toMatchObject({ keys: [], reason: 'arena-full' });
  });

  test('what comes after a full arena makes no false keys, wherever it stands in the template', () => {
    const filler = Array(20_000).fill('{"role":"user","content":""}').join(',');
    const first = `{"role":"user","content":"${long}"}`;
    const body = (system: string): string => `{"messages":[${first},${filler}]${system}}`;
    expect(read(body(''), '/v1/messages')).toMatchObject({ reason: 'arena-full' });
    expect(read(body(''), '/v1/messages').keys.length).toBe(3);
    expect(read(body(`,"system":"${long}"`), '/v1/messages')).toMatchObject({ keys: [], reason: 'arena-full' });
    const before = read(`{"system":"${long}","messages":[${first},${filler}]}`, '/v1/messages');
    expect(before.keys.length).toBe(6);
  });

  test('numbers of any length, and a million token ids', () => {
    const digits = '9'.repeat(10_000);
    expect(read(`{"n":${digits}.${digits}e${digits},"messages":[{"content":"${long}"}]}`).keys.length).toBe(3);
    const ids = read(`{"prompt":[${Array.from({ length: 1_000_000 }, (_, i) => i).join(',')}]}`, '/v1/completions');
    expect(ids.promptBytes).toBe(4_000_000);
    expect(new Set(ids.keys).size).toBe(ids.keys.length);
  });

  test('a window cuts the keys and nothing else', () => {
    const body = bytesOf(chat(`"${'lorem ipsum '.repeat(2000)}"`));
    const whole = reader.read(CHAT, body);
    const part = reader.read(CHAT, body, { windowBytes: 4000 });
    expect(part.keys).toEqual(whole.keys.slice(0, 15));
    expect(part.promptBytes).toBe(whole.promptBytes);
  });
});

describe('bytes', () => {
  test('NUL escapes, lone surrogates and invalid UTF-8 are text like any other', () => {
    const keysOf = (tail: string): bigint | undefined =>
      read(chat(`"${'x'.repeat(250)}${tail}${'y'.repeat(300)}"`)).keys[0];
    expect(keysOf('\\u0000')).not.toBe(keysOf('\\u0001'));
    expect(keysOf('\\ud800')).toBe(keysOf('\ufffd'));
    expect(keysOf('\\udc00')).toBe(keysOf('\ufffd'));
    expect(keysOf('\\ud800\\ud83d\\ude00')).toBe(keysOf('\ufffd😀'));
    expect(keysOf('\\ud83d\\n')).toBe(keysOf('\ufffd\\u000a'));
    const raw = (byte: number): bigint | undefined => {
      const bytes = bytesOf(chat(`"${'x'.repeat(300)}"`));
      bytes[60] = byte;
      return reader.read(CHAT, bytes).keys[0];
    };
    expect(new Set([0x80, 0xc0, 0xfe, 0xff].map(raw)).size).toBe(4);
  });

  test('any bytes at all, cut anywhere', () => {
    const pieces = fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      '"',
      '\\',
      ',',
      ':',
      '1',
      '-',
      'e',
      'true',
      'nul',
      ' ',
      '\\u',
      'd8',
    );
    const keys = fc.constantFrom(
      '"messages":',
      '"content":',
      '"tools":[',
      '"system":',
      '"prompt":[',
      '"role":"',
      '"input":[{',
    );
    const soup = fc
      .array(fc.oneof(pieces, keys, fc.string({ maxLength: 5 })), { maxLength: 60 })
      .map((all) => all.join(''));
    const path = fc.constantFrom(CHAT, '/v1/completions', '/v1/responses', '/v1/messages');
    const body = fc.oneof(
      soup.map(bytesOf),
      fc.uint8Array({ maxLength: 200 }),
      soup.map((text) => bytesOf(`{"messages":[{${text}`)),
    );
    fc.assert(
      fc.property(path, body, fc.array(fc.nat(200), { maxLength: 5 }), (at, bytes, cuts) => {
        const whole = reader.read(at, bytes);
        expect(
          reader.read(
            at,
            bytes,
            {},
            cuts.toSorted((a, b) => a - b),
          ),
        ).toEqual(whole);
        expect(reader.pagesFree).toBe(pages);
        let isJson = true;
        try {
          JSON.parse(new TextDecoder('utf-8', { fatal: false }).decode(bytes));
        } catch {
          isJson = false;
        }
        if (!isJson) expect(whole.keys).toEqual([]);
        expect(['not-json', 'truncated'].includes(whole.reason ?? '')).toBe(!isJson);
      }),
      { numRuns: 5000 },
    );
  });
});
