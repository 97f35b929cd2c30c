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
