// What an answer leaves out because the gateway has been told it.
import { expect, onTestFinished, test } from 'vitest';
import { startControlPlane } from '../../control-plane/server.ts';
import { FakeGateway, loadFrames, startFakeEngine, until } from './fakes.ts';

const frames = await loadFrames();

test('metrics are told once a scrape, and all of them beside new settings', async () => {
  const engines = [await startFakeEngine(), await startFakeEngine()];
  const pool = { name: 'chat', endpoints: engines.map(({ endpoint }) => endpoint), scrapeIntervalMs: 600_000 };
  const controlPlane = await startControlPlane({ port: 0, pools: [pool] });
  onTestFinished(async () => {
    await controlPlane.close();
    await Promise.all(engines.map((engine) => engine.close()));
  });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  const told = async (): Promise<number> => {
    const answer = await gateway.sync(controlPlane.url);
    return answer.flatMap((frame) => frame.metrics ?? []).length;
  };
  expect(await told()).toBe(2);
  // The first turn of the rhythm may still be under way; after it nothing is scraped for minutes.
  await until(async () => (await told()) === 0, 'an answer without metrics');
  controlPlane.setPolicy('chat', 'round-robin');
  expect(await told()).toBe(2);
  expect(await told()).toBe(0);
});

test('syncs are answered while the metrics of many endpoints are being written, and two who ask at once read the same', async () => {
  const endpoints = Array.from({ length: 1000 }, (_, i) => `127.1.${i >> 8}.${i & 255}:9`);
  const pool = { name: 'chat', endpoints, scrapeIntervalMs: 600_000 };
  const controlPlane = await startControlPlane({ port: 0, pools: [pool], scrapeTimeoutMs: 50 });
  onTestFinished(() => controlPlane.close());
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  await gateway.sync(controlPlane.url);
  let isWritten = false;
  const page = async (): Promise<string> => (await fetch(`${controlPlane.url}/metrics`)).text();
  const pages = Promise.all([page(), page()]).finally(() => (isWritten = true));
  let syncs = 0;
  for (; !isWritten; syncs++) await gateway.sync(controlPlane.url);
  const [one, two] = await pages;
  expect(one.match(/^warmpath_table_blocks\{/gm)).toHaveLength(1000);
  expect(one).toBe(two);
  // One turn of the loop is one page at least; in one go there would be room for a sync before it and one after.
  expect(syncs).toBeGreaterThan(4);
});
