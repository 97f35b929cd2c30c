// The golden vectors of block keys. They are the format: gateways, control planes and stored traces of different versions
// compare keys with each other, so these never change. A new format gets a new version in the chain's seed and vectors beside these.
import { readFileSync } from 'node:fs';
import { beforeAll, expect, test } from 'vitest';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import { keyHex, KeyReader } from '../../control-plane/engine/keys.ts';
import type { KeySettings } from '../../control-plane/engine/keys.ts';
import { oracleKeys } from '../oracle/keys.ts';

interface KeyVector {
  name: string;
  secret: string;
  path: string;
  settings: KeySettings;
  body: string;
  promptBytes: number;
  keys: string[];
  ends: number[];
}

const vectors = JSON.parse(readFileSync(new URL('../vectors/keys.json', import.meta.url), 'utf8')) as KeyVector[];

let reader: KeyReader;
beforeAll(async () => {
  reader = await KeyReader.create();
});

test('there are vectors, and each has keys', () => {
  expect(vectors.length).toBeGreaterThanOrEqual(18);
  expect(vectors.filter((vector) => vector.keys.length === 0)).toEqual([]);
});

test.each(vectors)('engine.wasm: $name', ({ secret, path, settings, body, promptBytes, keys, ends }) => {
  reader.setSecret(Buffer.from(secret, 'hex'));
  const read = reader.read(path, new TextEncoder().encode(body), settings);
  expect({ ...read, keys: read.keys.map(keyHex) }).toMatchObject({ promptBytes, keys, ends, reason: null });
});

test.each(vectors)('oracle: $name', ({ secret, path, settings, body, promptBytes, keys, ends }) => {
  const read = oracleKeys(Buffer.from(secret, 'hex'), path, body, settings);
  expect({ ...read, keys: read.keys.map(keyHex) }).toMatchObject({ promptBytes, keys, ends, reason: null });
});

test('docs/KEYS.md names every reason of the engine', async () => {
  const { exports } = await loadEngine<{
    reasonNameLength(code: number): number;
    reasonNameByte(code: number, at: number): number;
  }>();
  const nameOf = (code: number): string =>
    String.fromCharCode(
      ...Array.from({ length: exports.reasonNameLength(code) }, (_, at) => exports.reasonNameByte(code, at)),
    );
  const names: string[] = [];
  for (let code = 1; nameOf(code) !== 'other'; code++) names.push(nameOf(code));
  const document = readFileSync(new URL('../../docs/KEYS.md', import.meta.url), 'utf8');
  const documented = [...document.matchAll(/^\| `([a-z-]+)` +\| /gm)].map((match) => match[1]);
  expect(documented.toSorted()).toEqual(names.toSorted());
});
