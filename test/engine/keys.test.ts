// The request reader against the oracle: on requests of every kind, spelt and cut in every way, both make the same keys.
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { KeyReader, localSecret } from '../../control-plane/engine/keys.ts';
import { compareKeys, loadCases } from '../cases.ts';
import { oracleKeys } from '../oracle/keys.ts';
import { path, request, spell } from './requests.ts';

const runs = Number(process.env['WARMPATH_KEYS_RUNS'] ?? 2000);
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

let reader: KeyReader;
beforeAll(async () => {
  reader = await KeyReader.create();
});

describe('pairs of requests', () => {
  const { cases, hasShared } = loadCases();
  if (!hasShared) console.log('shared/cases/prefix.json is absent: only the pairs of test/vectors/prefix.json are run');

  test.each(cases)('engine.wasm: $name ($path)', (one) => {
    const wrong = compareKeys(one, (at, body, toolsPosition) => reader.read(at, bytesOf(body), { toolsPosition }));
    expect(wrong).toEqual([]);
  });
  test.each(cases)('oracle: $name ($path)', (one) => {
    const wrong = compareKeys(one, (at, body, toolsPosition) => oracleKeys(localSecret, at, body, { toolsPosition }));
    expect(wrong).toEqual([]);
  });
  test.each(cases)('one byte at a time: $name', (one) => {
    const body = bytesOf(one.b);
    const cuts = Array.from(body.keys());
    const { toolsPosition } = one;
    expect(reader.read(one.path, body, { toolsPosition }, cuts)).toEqual(
      reader.read(one.path, body, { toolsPosition }),
    );
  });
});

describe('the same text through different APIs', () => {
  const [system, user, answer] = ['the cache '.repeat(90), 'a question '.repeat(40), 'an answer '.repeat(40)];
  const turns = [
    { role: 'user', content: user },
    { role: 'assistant', content: answer },
    { role: 'user', content: answer },
  ];
  const keysOf = (at: string, body: object): bigint[] => reader.read(at, bytesOf(JSON.stringify(body))).keys;

  test('has the same keys', () => {
    const chat = keysOf('/v1/chat/completions', {
      model: 'm',
      messages: [{ role: 'system', content: system }, ...turns],
    });
    expect(chat.length).toBeGreaterThan(6);
    expect(keysOf('/v1/responses', { input: turns, instructions: system, model: 'm' })).toEqual(chat);
    expect(keysOf('/v1/messages', { system, messages: turns, model: 'm' })).toEqual(chat);
    expect(keysOf('/v1/messages', { system: [{ type: 'text', text: system }], messages: turns, model: 'm' })).toEqual(
      chat,
    );
  });

  test('has other keys as a plain prompt, which no template surrounds', () => {
    const prompt = keysOf('/v1/completions', { model: 'm', prompt: system });
    const chat = keysOf('/v1/chat/completions', { model: 'm', messages: [{ role: 'user', content: system }] });
    expect(prompt.length).toBeGreaterThan(2);
    expect(prompt.filter((key) => chat.includes(key))).toEqual([]);
  });

  test('has other keys under another secret', () => {
    const body = { model: 'm', messages: turns };
    const one = keysOf('/v1/chat/completions', body);
    reader.setSecret(new Uint8Array(32).fill(7));
    const other = keysOf('/v1/chat/completions', body);
    reader.setSecret(localSecret);
    expect(other.length).toBe(one.length);
    expect(other.filter((key) => one.includes(key))).toEqual([]);
    expect(keysOf('/v1/chat/completions', body)).toEqual(one);
  });
});

describe('generated requests', () => {
  test('have the oracle’s keys, however spelt and cut', { timeout: 30 * 60_000 }, () => {
    const settings = fc.record({
      toolsPosition: fc.constantFrom('auto' as const, 'after-system' as const, 'first' as const),
      blockBytes: fc.constantFrom(undefined, 64, 256, 320, 1024, 4096),
      windowBytes: fc.constantFrom(0, 0, 1000),
    });
    const reasons = new Set<string | null>();
    let keysSum = 0;
    fc.assert(
      fc.property(
        path,
        request,
        fc.nat(),
        settings,
        fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 12 }),
        (at, value, seed, set, shares) => {
          const text = spell(value, seed);
          const body = bytesOf(text);
          const cuts = shares.map((share) => Math.floor(share * body.length)).sort((a, b) => a - b);
          const read = reader.read(at, body, set, cuts);
          const { keys, ends, promptBytes, stream, model, reason } = oracleKeys(localSecret, at, text, set);
          reasons.add(reason);
          keysSum += keys.length;
          expect({ ...read, api: '' }).toEqual({
            api: '',
            keys,
            ends,
            stream,
            model,
            reason,
            promptBytes: reason === 'no-prompt' ? 0 : promptBytes,
          });
        },
      ),
      { numRuns: runs },
    );
    // The generator must reach what it is there for.
    expect(keysSum).toBeGreaterThan(runs);
    expect([...reasons].sort()).toEqual([null, 'no-prompt', 'too-short'].sort());
  });

  test('cut short yield no keys', () => {
    fc.assert(
      fc.property(path, request, fc.nat(), fc.double({ min: 0, max: 1, noNaN: true }), (at, value, seed, share) => {
        const text = spell(value, seed).trimEnd();
        const body = bytesOf(text);
        const read = reader.read(at, body.subarray(0, Math.floor(share * (body.length - 1))));
        expect(read.keys).toEqual([]);
        expect(read.reason).toBe('truncated');
      }),
      { numRuns: 500 },
    );
  });
});
