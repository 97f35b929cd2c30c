// The tokenizer stand-in: sizes, prefixes and the chat template.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  ANSWER_OVERHEAD_TOKENS,
  BlockHasher,
  MESSAGE_OVERHEAD_TOKENS,
  nextState,
  renderChat,
  textOf,
  wordOf,
} from '../../sim/tokens.ts';

function hashed(text: string, blockTokens = 16, salt = ''): BlockHasher {
  const hasher = new BlockHasher(blockTokens, salt);
  hasher.text(text);
  return hasher;
}

describe('text', () => {
  test('English prose takes between 4 and 5 bytes a token', () => {
    const prose =
      'The gateway reads the body of each request while it goes by, cuts the prompt into blocks, and asks which of the ' +
      'replicas holds the longest part of it already. Nothing waits for an answer from another machine, because every ' +
      'worker keeps its own table in memory; what the others learn arrives a few milliseconds later.';
    const bytesPerToken = prose.length / hashed(prose).tokens;
    expect(bytesPerToken).toBeGreaterThan(4);
    expect(bytesPerToken).toBeLessThan(5);
  });

  test.each([
    ['prefix', 1],
    [' prefix', 1],
    [' tokenizer', 2],
    ['12345', 2],
    ['привет', 3],
    ['  two', 2],
    ['a, b', 3],
    ['', 0],
  ])('%j is %d tokens', (text, tokens) => {
    expect(hashed(text).tokens).toBe(tokens);
  });

  test('a made text has exactly the tokens asked for', () => {
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 0, max: 700 }), (seed, tokens) => {
        expect(hashed(textOf(seed, tokens)).tokens).toBe(tokens);
      }),
    );
  });

  test('prompts share the keys of their common blocks and no others', () => {
    fc.assert(
      fc.property(
        fc.integer(),
        fc.integer({ min: 0, max: 300 }),
        fc.integer(),
        fc.integer(),
        (shared, tokens, a, b) => {
          fc.pre(a !== b);
          const one = hashed(textOf(shared, tokens) + textOf(a, 64)).keys;
          const two = hashed(textOf(shared, tokens) + textOf(b, 64)).keys;
          const common = Math.floor(tokens / 16);
          expect(one.slice(0, common)).toEqual(two.slice(0, common));
          // The first words after the shared part may be equal by chance, so only the end has to differ.
          expect(one.at(-1)).not.toBe(two.at(-1));
        },
      ),
    );
  });

  test('equal text behind another beginning has other keys', () => {
    const one = new Set(hashed(textOf(1, 16) + textOf(9, 160)).keys);
    const two = hashed(textOf(2, 16) + textOf(9, 160)).keys;
    expect(two.filter((key) => one.has(key))).toEqual([]);
  });

  test('a salt changes every key', () => {
    const plain = new Set(hashed(textOf(1, 160)).keys);
    expect(hashed(textOf(1, 160), 16, 'tenant').keys.filter((key) => plain.has(key))).toEqual([]);
  });
});

describe('chat template', () => {
  test('adds a fixed number of tokens', () => {
    const hasher = new BlockHasher();
    renderChat(hasher, {
      messages: [
        { role: 'system', content: textOf(1, 100) },
        { role: 'user', content: textOf(2, 50) },
      ],
    });
    expect(hasher.tokens).toBe(150 + 2 * MESSAGE_OVERHEAD_TOKENS + ANSWER_OVERHEAD_TOKENS);
  });

  test('a string and text parts are the same prompt', () => {
    const one = new BlockHasher();
    const two = new BlockHasher();
    renderChat(one, { messages: [{ role: 'user', content: textOf(1, 64) }] });
    renderChat(two, { messages: [{ role: 'user', content: [{ type: 'text', text: textOf(1, 64) }] }] });
    expect(two.keys).toEqual(one.keys);
  });

  test('a picture has few tokens, and is told from another by all its data', () => {
    const withPicture = (data: string): BlockHasher => {
      const hasher = new BlockHasher();
      const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } };
      renderChat(hasher, { messages: [{ role: 'user', content: [{ type: 'text', text: textOf(1, 64) }, picture] }] });
      return hasher;
    };
    const data = 'iVBORw0KGgoAAAANSUhEUgAA'.repeat(40_000);
    const one = withPicture(data);
    const two = withPicture(`${data.slice(0, -1)}B`);
    expect(one.tokens).toBeLessThan(8000);
    expect(two.tokens).toBe(one.tokens);
    expect(two.keys.filter((key) => one.keys.includes(key))).toEqual(one.keys.slice(0, 4));
    expect(withPicture(data).keys).toEqual(one.keys);
  });

  test('tools stand between the system text and the turns', () => {
    const messages = [
      { role: 'system', content: textOf(1, 160) },
      { role: 'user', content: textOf(2, 160) },
    ];
    const without = new BlockHasher();
    const withTools = new BlockHasher();
    renderChat(without, { messages });
    renderChat(withTools, { messages, tools: [{ type: 'function', function: { name: 'look' } }] });
    const same = withTools.keys.filter((key) => without.keys.includes(key)).length;
    expect(same).toBe(10);
  });

  test('an answer that is sent back continues the prompt it answered', () => {
    const messages = [{ role: 'user', content: textOf(1, 40) }];
    const first = new BlockHasher();
    renderChat(first, { messages });
    let answer = '';
    let sampler = nextState(first.state);
    for (let i = 0; i < 70; i++) {
      const word = wordOf(sampler >>> 9);
      sampler = nextState(sampler);
      first.text(word);
      answer += word;
    }
    const second = new BlockHasher();
    renderChat(second, {
      messages: [...messages, { role: 'assistant', content: answer }, { role: 'user', content: 'and?' }],
    });
    expect(first.keys.length).toBe(Math.floor((40 + 8 + 70) / 16));
    expect(second.keys.slice(0, first.keys.length)).toEqual(first.keys);
  });
});
