// The names of engines' models: read as a real engine tells them, asked once in a life of it, and told to gateways when they change.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Pages } from '../../control-plane/fetch-page.ts';
import { LIMITS } from '../../control-plane/limits.ts';
import { silentLog } from '../../control-plane/log.ts';
import { mergeGroups, ModelNames, readModels } from '../../control-plane/models.ts';
import { adapterHash } from '../../control-plane/scrape.ts';
import { until } from './fakes.ts';

const recorded = readFileSync(new URL('../vectors/vllm/http/models_lora.json', import.meta.url), 'utf8');
const body = (names: Record<string, string>): string =>
  JSON.stringify({ data: Object.entries(names).map(([id, root]) => ({ id, root, parent: null })) });

test('a real engine with two names and two adapters has one group', () => {
  expect(readModels(recorded)).toEqual([['tiny', 'tiny-alias']]);
});

test.each([
  '',
  'null',
  '7',
  '{}',
  '{"data":7}',
  '{"data":[null,7,{"id":1,"root":"a"},{"id":"a","root":null}]}',
  '<html>',
])('what is no list of models has none: %s', (text) => expect(readModels(text)).toEqual([]));

test('of an engine that tells very many names some are taken, at once', () => {
  const many = (root: (i: number) => string): string =>
    JSON.stringify({ data: Array.from({ length: 40_000 }, (_, i) => ({ id: `n${i}`, root: root(i), parent: null })) });
  const startedMs = performance.now();
  expect(readModels(many(() => 'm'))).toHaveLength(1);
  expect(readModels(many((i) => `m${i >> 1}`))).toHaveLength(LIMITS.aliasesPerPool);
  expect(performance.now() - startedMs).toBeLessThan(2_000);
  expect(readModels(body({ a: 'm' }).replace('[', '[{"id":"a","root":"m","parent":null},'))).toEqual([]);
});

test('groups that share a name are one, whatever their order', () => {
  expect(
    mergeGroups([
      ['c', 'd'],
      ['a', 'b'],
      ['b', 'c'],
      ['x', 'y'],
    ]),
  ).toEqual([
    ['a', 'b', 'c', 'd'],
    ['x', 'y'],
  ]);
});

let answer: string | number;
let asked: number;
let server: Server;
let endpoint: string;
let names: ModelNames;
let changes: number;
let outcomes: string[];
let closing: () => void;
beforeEach(async () => {
  asked = 0;
  changes = 0;
  outcomes = [];
  server = createServer((_request, response) => {
    if (typeof answer === 'number') response.writeHead(answer).end();
    else response.end(answer);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  endpoint = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const pages = new Pages();
  closing = () => pages.close();
  names = new ModelNames('pool', silentLog, {
    fetch: (origin, path) => {
      asked++;
      return pages.get(origin, path, 1_000, String);
    },
    changed: () => changes++,
    asked: (outcome) => outcomes.push(outcome),
  });
});
afterEach(async () => {
  closing();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});
const lookedAt = async (count: number): Promise<void> => until(() => outcomes.length === count, `${count} answers`);

test('an engine is asked once in a life, and a new life may have other names', async () => {
  answer = body({ a: '/m', b: '/m', c: '/other' });
  expect(names.records).toBeNull();
  for (let i = 0; i < 5; i++) names.look(endpoint, 100);
  await lookedAt(1);
  expect(names.records).toEqual(['a', 'b'].map((name) => ({ name: adapterHash(name), group: adapterHash('a') })));
  for (let i = 0; i < 5; i++) names.look(endpoint, 100);
  expect([asked, changes]).toEqual([1, 1]);
  answer = body({ a: '/m', c: '/other' });
  names.look(endpoint, 200);
  await lookedAt(2);
  expect([names.records, changes]).toEqual([[], 2]);
});

test('one name each is no news; engines that are gone are forgotten, unless all are', async () => {
  answer = body({ a: '/m' });
  names.look(endpoint, 1);
  await lookedAt(1);
  expect([names.records, changes]).toEqual([[], 1]);
  answer = body({ a: '/m', b: '/m' });
  names.look(endpoint, 2);
  await lookedAt(2);
  names.set([]);
  expect(names.groups).toEqual([['a', 'b']]);
});

test('one that refuses is asked three times, then seldom, and nothing is told of it', async () => {
  answer = 401;
  for (let i = 1; i <= 3; i++) {
    names.look(endpoint, 1);
    await lookedAt(i);
  }
  for (let i = 4; i < LIMITS.modelsAgainLooks; i++) names.look(endpoint, 1);
  expect([asked, names.records, outcomes]).toEqual([3, null, ['failed', 'failed', 'failed']]);
  answer = body({ a: '/m', b: '/m' });
  names.look(endpoint, 1);
  await lookedAt(4);
  expect([asked, names.groups]).toEqual([4, [['a', 'b']]]);
});

test('nothing is told before all have answered, but one that is away is not waited for forever', async () => {
  answer = body({ a: '/m' });
  names.set([endpoint, '127.0.0.1:1']);
  names.look(endpoint, 1);
  await lookedAt(1);
  for (let i = 2; i < LIMITS.modelsLooks; i++) names.look(endpoint, 1);
  expect(names.records).toBeNull();
  names.look(endpoint, 1);
  expect(names.records).toEqual([]);
});
