// Pictures, sounds and files in a prompt: they are told apart by all their bytes, but count like what an engine makes of them, not like text.
import { beforeAll, describe, expect, test } from 'vitest';
import { KeyReader, localSecret, type RequestKeys } from '../../control-plane/engine/keys.ts';
import { oracleKeys } from '../oracle/keys.ts';

const CHAT = '/v1/chat/completions';
const MESSAGES = '/v1/messages';
const BYTES = 1_000_000;
const before = 'the text before the picture '.repeat(40);
const behind = 'the text behind the picture '.repeat(40);
const answer = 'an answer';
const picture = 'iVBORw0KGgoAAAANSUhEUgAA'.repeat(BYTES / 24);
const otherPicture = `${picture.slice(0, -4)}AAA=`;

type Part = Record<string, unknown>;
const shapes: [shape: string, path: string, part: (data: string) => Part][] = [
  ['image_url', CHAT, (data) => ({ type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } })],
  ['video_url', CHAT, (data) => ({ type: 'video_url', video_url: { url: `data:video/mp4;base64,${data}` } })],
  ['input_audio', CHAT, (data) => ({ type: 'input_audio', input_audio: { data, format: 'wav' } })],
  ['file', CHAT, (data) => ({ type: 'file', file: { filename: 'a.pdf', file_data: data } })],
  ['input_image', '/v1/responses', (data) => ({ type: 'input_image', image_url: `data:image/png;base64,${data}` })],
  ['input_file', '/v1/responses', (data) => ({ type: 'input_file', file_data: data })],
  ['image', MESSAGES, (data) => ({ type: 'image', source: { type: 'base64', media_type: 'image/png', data } })],
  [
    'tool_result',
    MESSAGES,
    (data) => ({ type: 'tool_result', content: [{ type: 'image', source: { type: 'base64', data } }] }),
  ],
];

let reader: KeyReader;
beforeAll(async () => {
  reader = await KeyReader.create();
});

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const bodyOf = (path: string, part: Part): string => {
  const turns = [
    { role: 'user', content: [{ type: 'text', text: before }, part, { type: 'text', text: behind }] },
    { role: 'assistant', content: answer },
  ];
  return JSON.stringify(path === '/v1/responses' ? { model: 'm', input: turns } : { model: 'm', messages: turns });
};
const read = (path: string, part: Part): RequestKeys => reader.read(path, bytesOf(bodyOf(path, part)));

describe.each(shapes)('%s (%s)', (_shape, path, part) => {
  test('1 MB counts like fewer than 5,000 tokens', () => {
    const { promptBytes, ends, reason } = read(path, part(picture));
    expect(reason).toBeNull();
    const counted = promptBytes - before.length - behind.length - answer.length;
    expect(counted).toBeGreaterThan(1024 + (BYTES - 1024) / 64 - 1);
    expect(counted).toBeLessThan(5000 * 4);
    expect(ends.at(-1)).toBeLessThanOrEqual(promptBytes);
    expect(ends.every((end, i) => i === 0 || end > ends[i - 1]!)).toBe(true);
  });

  test('a picture that differs in its last bytes has other keys from there on', () => {
    const one = read(path, part(picture));
    const other = read(path, part(otherPicture));
    expect(other.ends).toEqual(one.ends);
    const equal = one.keys.filter((key) => other.keys.includes(key)).length;
    expect(equal).toBe(one.keys.findIndex((key, i) => key !== other.keys[i]));
    expect(equal).toBeGreaterThan(4);
    expect(one.keys.at(-1)).not.toBe(other.keys.at(-1));
  });

  test('what stands before it has the same keys and ends whatever follows', () => {
    const text = reader.read(path, bytesOf(bodyOf(path, { type: 'text', text: '' })));
    const inside = text.ends.filter((end) => end <= before.length).length;
    expect(inside).toBe(4);
    for (const data of [picture, otherPicture, 'short']) {
      const { keys, ends } = read(path, part(data));
      expect(keys.slice(0, inside)).toEqual(text.keys.slice(0, inside));
      expect(ends.slice(0, inside)).toEqual(text.ends.slice(0, inside));
    }
  });

  test('cut anywhere it counts the same, as the oracle says', () => {
    const body = bodyOf(path, part(picture.slice(0, 3000)));
    const bytes = bytesOf(body);
    const { keys, ends, promptBytes } = oracleKeys(localSecret, path, body);
    for (const cuts of [[], Array.from(bytes.keys()), [1500, 1501, 2600]]) {
      expect(reader.read(path, bytes, {}, cuts)).toMatchObject({ keys, ends, promptBytes });
    }
  });
});

describe('what is no picture counts with all its bytes', () => {
  const text = 'a word '.repeat(1000);
  const counted = (part: Part): number =>
    read(MESSAGES, part).promptBytes - before.length - behind.length - answer.length;

  test.each<[why: string, part: Part]>([
    ['text of a document', { type: 'document', source: { type: 'text', media_type: 'text/plain', data: text } }],
    ['text in another script', { type: 'document', source: { data: 'воде'.repeat(1000) } }],
    ['another key', { type: 'tool_result', content: [{ type: 'x', source: { result: picture.slice(0, 7000) } }] }],
    ['a text of its own', { type: 'text', text: picture.slice(0, 7000) }],
    ['a value that is the name of a key', { type: 'x', input: { name: 'data', content: picture.slice(0, 7000) } }],
  ])('%s', (_why, part) => {
    expect(counted(part)).toBeGreaterThanOrEqual(7000);
  });

  test('arguments of a tool call', () => {
    const call = { id: 'c', type: 'function', function: { name: 'f', arguments: { data: picture.slice(0, 7000) } } };
    const body = JSON.stringify({ messages: [{ role: 'assistant', content: before, tool_calls: [call] }] });
    expect(reader.read(CHAT, bytesOf(body)).promptBytes).toBeGreaterThan(before.length + 7000);
  });
});
