// Predicted against actual: 500 requests as different as clients send them, through the gateway, each compared with the cached tokens
// that a real engine reports. What the filter believes is a number of bytes; the prompt's own ratio makes tokens of it.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { KeyReader } from '../../control-plane/engine/keys.ts';
import { Random } from '../../sim/random.ts';
import { paths, startRig } from './gateway.ts';
import type { Rig, Told } from './gateway.ts';
import { isClose, predictedTokens } from './judge.ts';
import { Mix } from './mixed.ts';
import type { MixedRequest } from './mixed.ts';

const requests = 500;
const withinWanted = 0.95;
const biasMax = 0.01;

interface Row {
  request: MixedRequest;
  predictedTokens: number;
  cachedTokens: number;
  isClose: boolean;
}

let rig: Rig;
let reader: KeyReader;

beforeAll(async () => {
  const engine = { models: ['tiny', 'tiny-alias'], lora: true, blocks: 4096 };
  [rig, reader] = await Promise.all([startRig({ engines: [engine, engine] }), KeyReader.create()]);
});
afterAll(() => rig?.[Symbol.asyncDispose]());

/** The size in bytes of the block behind the match, the last one when all of the prompt matched. */
function edgeBytes({ api, body }: MixedRequest, matchedBytes: number): number {
  const { ends } = reader.read(paths[api], Buffer.from(JSON.stringify(body)));
  const next = ends.findIndex((end) => end > matchedBytes);
  const index = next < 0 ? ends.length - 1 : next;
  return (ends[index] ?? 0) - (ends[index - 1] ?? 0);
}

function rowOf(request: MixedRequest, told: Told): Row {
  const { cachedTokens } = told.usage!;
  const close = isClose(told, edgeBytes(request, told.matchedBytes));
  return { request, predictedTokens: predictedTokens(told), cachedTokens, isClose: close };
}

/** How much too much was believed in, as a share of the larger number; requests without any match say nothing of it. */
function biases(rows: Row[]): number[] {
  const matched = rows.filter((row) => Math.max(row.predictedTokens, row.cachedTokens) > 0);
  return matched.map(
    ({ predictedTokens, cachedTokens }) => (predictedTokens - cachedTokens) / Math.max(predictedTokens, cachedTokens),
  );
}

function median(values: number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const [low, high] = [sorted[Math.floor((sorted.length - 1) / 2)], sorted[Math.floor(sorted.length / 2)]];
  return ((low ?? 0) + (high ?? 0)) / 2;
}

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;

function report(rows: Row[]): string {
  const groups = new Map<string, Row[]>([['all', rows]]);
  for (const row of rows) {
    const { api, language, kind, isStreamed, hasTools, body } = row.request;
    const names = [api, language, kind, isStreamed ? 'streamed' : 'not streamed', `model ${String(body['model'])}`];
    if (hasTools) names.push('with tools');
    if (body['cache_salt'] !== undefined) names.push('with a salt');
    for (const name of names) groups.set(name, [...(groups.get(name) ?? []), row]);
  }
  const lines = [...groups].map(([name, group]) => {
    const sum = (of: (row: Row) => number): string => String(Math.round(group.reduce((all, row) => all + of(row), 0)));
    const close = percent(group.filter((row) => row.isClose).length / group.length).padStart(8);
    const bias = percent(median(biases(group))).padStart(8);
    const tokens = `${sum((row) => row.predictedTokens).padStart(9)} ${sum((row) => row.cachedTokens).padStart(9)}`;
    return `${name.padEnd(18)}${String(group.length).padStart(5)} ${close} ${bias} ${tokens}`;
  });
  return [`${'requests'.padStart(23)}    close     bias predicted    actual`, ...lines].join('\n');
}

test(`${requests} mixed requests: what was predicted is what the engine found`, { timeout: 400_000 }, async () => {
  // Names of one model are one cache to the engine and several to the filter, so that each name costs the first hits of the others.
  const models = ['tiny', 'tiny', 'tiny', 'tiny', 'tiny', 'tiny', 'adapter-a', 'adapter-a', 'tiny-alias'];
  const mix = new Mix(new Random(7), models);
  const rows: Row[] = [];
  while (rows.length < requests) {
    const request = mix.next();
    const told = await rig.ask(request.api, request.body);
    request.answered(told.text);
    expect(told.usage, request.api).toBeDefined();
    expect(told.promptBytes).toBeGreaterThan(0);
    rows.push(rowOf(request, told));
  }
  console.log(report(rows));
  const far = rows.filter((row) => !row.isClose);
  for (const { request, predictedTokens: predicted, cachedTokens } of far) {
    const { api, language, kind, body } = request;
    const tokens = `${Math.round(predicted)} predicted, ${cachedTokens} found`;
    console.log(`far: ${api} ${language} ${kind} ${String(body['model'])} ${tokens}`);
  }
  // The run must be about hits: most requests share something, and not all of them everything.
  expect(biases(rows).length).toBeGreaterThan(requests / 2);
  expect(1 - far.length / rows.length).toBeGreaterThanOrEqual(withinWanted);
  expect(Math.abs(median(biases(rows)))).toBeLessThan(biasMax);
});
