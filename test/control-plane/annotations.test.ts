// Annotations: every row of the table takes what it says it takes and refuses the rest, and a fault changes nothing but what is told of it.
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  ANNOTATION_PREFIX,
  POD_ANNOTATIONS,
  PodAnnotations,
  POOL_ANNOTATIONS,
  PoolAnnotations,
  settingsOf,
} from '../../control-plane/annotations.ts';
import type { PoolSettings } from '../../control-plane/annotations.ts';
import { readConfig } from '../../control-plane/config.ts';
import { annotationsPage, annotationsPagePath } from '../../scripts/annotations-page.ts';

const defaults = (): PoolSettings => {
  const [pool] = readConfig({ pools: [{ name: 'p', endpoints: [] }] }).pools;
  if (pool === undefined) throw new Error('no pool');
  return settingsOf(pool);
};
const prefixed = (annotations: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(annotations).map(([key, value]) => [ANNOTATION_PREFIX + key, value]));

/** For each key: texts that are taken with what they mean, and texts that are not. */
const values: Record<string, { good: [string, unknown][]; bad: string[] }> = {
  mode: {
    good: [
      ['off', 'off'],
      ['shadow', 'shadow'],
      ['active', 'active'],
    ],
    bad: ['', 'Active', 'on', ' off'],
  },
  policy: {
    good: [
      ['least-request', 'least-request'],
      ['round-robin', 'round-robin'],
    ],
    bad: ['', 'prefill_cost', 'prefill-cost '],
  },
  weights: {
    good: [
      ['3:5:2', { prefix: 3, queue: 5, kv: 2 }],
      ['1:0:0.5', { prefix: 1, queue: 0, kv: 0.5 }],
    ],
    bad: ['3:5', '3:5:2:1', '0:0:0', '-1:1:1', '3:5:1001', 'a:b:c', ''],
  },
  'session-header': {
    good: [
      ['X-User', 'X-User'],
      ['cookie:sid', 'cookie:sid'],
    ],
    bad: ['cookie:', 'a b', ':path', '-a', 'x'.repeat(65), ''],
  },
  'prefix-hash-header': {
    good: [['x-hash', 'x-hash']],
    bad: ['cookie:sid', 'a:b', ''],
  },
  'tools-position': {
    good: [
      ['first', 'first'],
      ['after-system', 'after-system'],
    ],
    bad: ['last', ''],
  },
  'block-bytes': {
    good: [
      ['64', 64],
      ['4096', 4096],
    ],
    bad: ['63', '65', '0', '4160', '256.0', '0x100', '1e3', ''],
  },
  'window-bytes': {
    good: [
      ['0', 0],
      ['16384', 16384],
    ],
    bad: ['-1', '4294967296', '16k', ''],
  },
  'bytes-per-token': {
    good: [
      ['3.5', 3.5],
      ['0', 0],
      ['64', 64],
    ],
    bad: ['64.1', '.5', '-1', 'NaN', 'Infinity', ''],
  },
  'capacity-tokens': {
    good: [
      ['400000', 400_000],
      ['0', 0],
    ],
    bad: ['-5', '1.5', '400_000', ''],
  },
  'sync-interval': {
    good: [
      ['50ms', 50],
      ['1s', 1000],
      ['60s', 60_000],
      ['1m', 60_000],
    ],
    bad: ['50', '0ms', '61s', '1.5s', '50 ms', '1h', ''],
  },
  'scrape-interval': {
    good: [
      ['10ms', 10],
      ['10m', 600_000],
    ],
    bad: ['9ms', '11m', '1000', ''],
  },
  'kv-events': {
    good: [
      ['off', 'off'],
      ['on', 'on'],
      ['5557', '5557'],
      ['5557/5558', '5557/5558'],
    ],
    bad: ['true', 'ON', '0', '65536', '5557/', '5557/0', '5557,5558', ''],
  },
  weight: {
    good: [
      ['2', 2],
      ['0.5', 0.5],
    ],
    bad: ['0', '-1', '1001', 'heavy', ''],
  },
  drain: {
    good: [
      ['true', true],
      ['false', false],
    ],
    bad: ['True', 'yes', '1', ''],
  },
};

describe.each([
  ['pool', POOL_ANNOTATIONS, () => new PoolAnnotations(defaults())],
  ['pod', POD_ANNOTATIONS, () => new PodAnnotations()],
] as const)('on a %s', (_on, rows, create) => {
  test.each(rows.map((row) => [row.key, row] as const))('%s takes good values and refuses others', (key, row) => {
    const reading = create();
    const settings = (): unknown => (reading.settings as unknown as Record<string, unknown>)[row.field];
    const cases = values[key];
    if (cases === undefined) throw new Error(`no values are written here for ${key}`);
    for (const [text, value] of cases.good) {
      reading.take(prefixed({ [key]: text }));
      expect(settings(), text).toEqual(value);
      expect(reading.faults).toEqual([]);
      const status = reading.status.find((entry) => entry.key === ANNOTATION_PREFIX + key);
      expect(status).toMatchObject({ value: text, source: 'annotation', fault: null });
      // What is shown can be set again.
      expect(row.parse(status?.inForce ?? '')).toEqual(value);
    }
    const last = settings();
    for (const text of cases.bad) {
      reading.take(prefixed({ [key]: text }));
      expect(settings(), text).toEqual(last);
      expect(reading.faults, text).toHaveLength(1);
      expect(reading.faults[0]).toMatchObject({ key: ANNOTATION_PREFIX + key, value: text, fault: 'bad-value' });
      expect(reading.faults[0]?.message).toContain(row.type);
    }
    reading.take({});
    expect(reading.status.find((entry) => entry.key === ANNOTATION_PREFIX + key)?.inForce).toBe(row.default);
  });

  test('an unknown key is a fault and changes nothing', () => {
    const reading = create();
    reading.take({ ...prefixed({ steer: '5' }), 'example.com/mode': 'x' });
    expect(reading.faults.map(({ key, fault }) => [key, fault])).toEqual([['warmpath.dev/steer', 'unknown-key']]);
    expect(reading.settings).toEqual(create().settings);
    expect(reading.status.at(-1)).toMatchObject({ key: 'warmpath.dev/steer', value: '5', fault: 'unknown-key' });
  });
});

test('a fault in one key leaves the others in force, and the last good value of its own', () => {
  const reading = new PoolAnnotations(defaults());
  reading.take(prefixed({ mode: 'shadow', policy: 'round-robin' }));
  reading.take(prefixed({ mode: 'shdow', policy: 'least-request' }));
  expect(reading.settings).toMatchObject({ mode: 'shadow', policy: 'least-request' });
  expect(reading.status.slice(0, 2)).toMatchObject([
    { key: 'warmpath.dev/mode', value: 'shdow', inForce: 'shadow', source: 'last-good', fault: 'bad-value' },
    { key: 'warmpath.dev/policy', inForce: 'least-request', source: 'annotation', fault: null },
  ]);
});

test('without any good value before, the default stays, and is called so', () => {
  const reading = new PoolAnnotations({ ...defaults(), policy: 'round-robin' });
  reading.take(prefixed({ policy: 'best' }));
  expect(reading.settings.policy).toBe('round-robin');
  expect(reading.status[1]).toMatchObject({ inForce: 'round-robin', source: 'default', fault: 'bad-value' });
});

test('a window of less than one block contradicts it', () => {
  const reading = new PoolAnnotations(defaults());
  reading.take(prefixed({ 'window-bytes': '4096' }));
  reading.take(prefixed({ 'window-bytes': '256', 'block-bytes': '512' }));
  expect(reading.faults).toMatchObject([{ key: 'warmpath.dev/window-bytes', fault: 'conflict' }]);
  expect(reading.settings).toMatchObject({ windowBytes: 4096, blockBytes: 512 });
});

test('however many unknown keys and however long values there are, what is told stays short', () => {
  const reading = new PodAnnotations();
  const many = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`k${i}`, 'x'.repeat(10_000)]));
  reading.take(prefixed({ ...many, weight: 'y'.repeat(100_000) }));
  expect(JSON.stringify(reading.status).length).toBeLessThan(20_000);
  expect(JSON.stringify(reading.faults).length).toBeLessThan(20_000);
});

test('docs/ANNOTATIONS.md is what scripts/annotations-page.ts writes', async () => {
  expect(readFileSync(annotationsPagePath, 'utf8')).toBe(await annotationsPage());
});
