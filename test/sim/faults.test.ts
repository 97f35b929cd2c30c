// The faults that outages are tried with: each shows what it is meant to show, and leaves the rest of the replica as it was.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { readMetrics } from '../../control-plane/metrics-text.ts';
import { startReplica, type Replica } from '../../sim/server.ts';

let replica: Replica;
beforeAll(async () => {
  replica = await startReplica({ engine: 'H100-8B' });
});
afterAll(() => replica.close());

const page = (): Promise<Response> => fetch(`${replica.url}/metrics`);
const ask = (): Promise<Response> =>
  fetch(`${replica.url}/v1/completions`, { method: 'POST', body: JSON.stringify({ prompt: 'a b', max_tokens: 1 }) });
const read = async () => readMetrics(await (await page()).text());

test('metrics go missing, change their names, stand still and become no numbers', async () => {
  expect((await read()).missing).toEqual([]);
  replica.setMetricsFault('missing');
  expect((await page()).status).toBe(404);
  replica.setMetricsFault('renamed');
  expect((await read()).running).toBeNull();
  replica.setMetricsFault('nan');
  const { running, waiting, kvUsage, startedSeconds } = await read();
  expect([running, waiting, kvUsage]).toEqual([null, null, null]);
  expect(startedSeconds).toBeGreaterThan(0);
  replica.setMetricsFault('stale');
  const before = await (await page()).text();
  expect((await ask()).status).toBe(200);
  expect(await (await page()).text()).toBe(before);
  replica.setMetricsFault('none');
  expect(await (await page()).text()).not.toBe(before);
});

test('completions fail at once, and health stays green', async () => {
  for (const [fault, status] of [
    ['error', 500],
    ['busy', 503],
  ] as const) {
    replica.setFault(fault);
    expect((await ask()).status).toBe(status);
    expect((await fetch(`${replica.url}/health`)).status).toBe(200);
  }
  replica.setFault('none');
  expect((await ask()).status).toBe(200);
});
