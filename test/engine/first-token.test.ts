// The first token of streams that begin before their engine does: recorded ones, cut anywhere, and texts that look like it.

import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';

interface Exports {
  memory: { buffer: ArrayBuffer };
  keysInput(): number;
  deltaFeed(state: number, pointer: number, lengthBytes: number): number;
  deltaFound(state: number): number;
}

let engine: Exports;
beforeAll(async () => {
  engine = (await loadEngine<Exports>()).exports;
});

function feed(state: number, bytes: Uint8Array): number {
  new Uint8Array(engine.memory.buffer).set(bytes, engine.keysInput());
  return engine.deltaFeed(state, engine.keysInput(), bytes.length);
}

/** How many bytes pass until the first token is seen; -1: it never is. */
function foundAfter(text: string): number {
  const bytes = new TextEncoder().encode(text);
  let state = 0;
  for (let i = 0; i < bytes.length; i++) {
    state = feed(state, bytes.subarray(i, i + 1));
    if (engine.deltaFound(state)) return i + 1;
  }
  return -1;
}

/** The events of a recorded answer, which stand behind its headers. */
function recorded(name: string): string[] {
  const file = new URL(`../vectors/vllm/http/${name}.http`, import.meta.url);
  const body = readFileSync(file, 'utf8').replaceAll('\r\n', '\n').split('\n\n').slice(1);
  return body.filter((event) => event.trim() !== '');
}

describe('recorded streams', () => {
  test.each([
    ['responses_stream', 4],
    ['messages_stream', 2],
  ])('%s: in the event with the first piece of the answer', (name, at) => {
    const events = recorded(name);
    const before = events
      .slice(0, at)
      .map((event) => `${event}\n\n`)
      .join('');
    expect(foundAfter(before)).toBe(-1);
    const found = foundAfter(`${before}${events[at]}\n\n`);
    expect(found).toBeGreaterThan(before.length);
    expect(found).toBeLessThan(before.length + events[at]!.length);
  });
});

test('text that is repeated in a stream does not look like a piece of an answer', () => {
  const echo = 'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"} a.delta\r\n_delta"';
  expect(foundAfter(`data: {"instructions":${JSON.stringify(echo)}}\n\n`)).toBe(-1);
  expect(foundAfter('data: {"a.deltas":1,"b":".delta.","delta":"x","x_delt":0}\n\n')).toBe(-1);
  for (const end of ['"', '\n', '\r']) expect(foundAfter(`..delt_.delta${end}`)).toBe(14);
});

test('any bytes, cut anywhere: as one pattern finds it', () => {
  const word = fc.constantFrom('.delta', '_delta', 'delta', '"', '\n', '.', '_', 'd', 'del', 'ta', '\\', ' ');
  fc.assert(
    fc.property(fc.array(word, { maxLength: 20 }), fc.nat(60), (words, cut) => {
      const text = words.join('');
      const bytes = new TextEncoder().encode(text);
      const state = feed(feed(0, bytes.subarray(0, cut)), bytes.subarray(cut));
      expect(Boolean(engine.deltaFound(state))).toBe(/[._]delta["\r\n]/.test(text));
    }),
    { numRuns: 2000 },
  );
});
