// A pool's policy, weights and key on their way to the gateways, and the adapters that engines have in use.
import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { PoolAnnotations, settingsOf } from '../../control-plane/annotations.ts';
import { readConfig } from '../../control-plane/config.ts';
import type { PoolOptions } from '../../control-plane/config.ts';
import { readMetrics } from '../../control-plane/metrics-text.ts';
import { adapterHash } from '../../control-plane/scrape.ts';
import { startControlPlane } from '../../control-plane/server.ts';
import type { ControlPlane } from '../../control-plane/server.ts';
import { FakeGateway, loadFrames, metricsText, startFakeEngine } from './fakes.ts';

const frames = await loadFrames();

async function start(pool: Partial<PoolOptions> = {}): Promise<{ controlPlane: ControlPlane; gateway: FakeGateway }> {
  const endpoints = ['127.0.0.1:9'];
  const controlPlane = await startControlPlane({
    port: 0,
    scrapeTimeoutMs: 2_000,
    pools: [{ name: 'chat', endpoints, ...pool }],
  });
  onTestFinished(() => controlPlane.close());
  return { controlPlane, gateway: new FakeGateway(frames, 'gw-1', 'chat') };
}

test('policy, weights and key reach a gateway with its next sync, and what is wrong changes nothing', async () => {
  const { controlPlane, gateway } = await start({ policy: 'weighted', weights: { prefix: 3, queue: 5, kv: 2 } });
  const told = async () => (await gateway.sync(controlPlane.url)).find((frame) => frame.pool !== undefined)?.pool;
  expect(await told()).toMatchObject({ policy: 5, weights: { prefix: 3, queue: 5, kv: 2 } });
  controlPlane.setPolicy('chat', 'weighted', { weights: { prefix: 1, queue: 0, kv: 0.5 } });
  expect(await told()).toMatchObject({ policy: 5, weights: { prefix: 1, queue: 0, kv: 0.5 } });
  controlPlane.setPolicy('chat', 'session', { sessionKey: 'cookie:SID' });
  expect(await told()).toMatchObject({ policy: 6, policyKey: { source: 'cookie', name: 'SID' } });
  controlPlane.setPolicy('chat', 'prefix-header');
  expect(await told()).toMatchObject({ policy: 7, policyKey: { source: 'header', name: 'x-prefix-hash' } });
  controlPlane.setPolicy('chat', 'session', { sessionKey: 'X-User' });
  expect(await told()).toMatchObject({ policy: 6, policyKey: { source: 'header', name: 'x-user' } });
  expect(() => controlPlane.setPolicy('chat', 'session', { sessionKey: 'a b' })).toThrow('options.sessionKey');
  expect(() => controlPlane.setPolicy('chat', 'weighted', { weights: { prefix: -1, queue: 0, kv: 0 } })).toThrow(
    'prefix',
  );
  expect(() => controlPlane.setPolicy('chat', 'prefill-cost-first' as 'session')).toThrow('policy');
  expect(await told()).toBeUndefined();
  controlPlane.setPolicy('chat', 'prefill-cost');
  const last = await told();
  expect(last?.policy).toBe(0);
  expect(last?.policyKey).toBeUndefined();
});

test.each([
  ['sessionKey', 'cookie:'],
  ['sessionKey', 'with space'],
  ['sessionKey', 7],
  ['prefixHeader', 'cookie:a'],
  ['prefixHeader', ''],
  ['prefixHeader', 'x'.repeat(65)],
  ['policy', 'prefill-cost-first'],
])('%s %j is refused', (key, value) => {
  const pool = { name: 'chat', endpoints: ['127.0.0.1:9'], [key]: value };
  expect(() => readConfig({ pools: [pool] })).toThrow(`pools[0].${key}`);
});

test('annotations set all three', () => {
  const config = readConfig({ pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }] }).pools[0]!;
  const reading = new PoolAnnotations(settingsOf(config));
  reading.take({
    'warmpath.dev/policy': 'weighted',
    'warmpath.dev/weights': '3:5:2',
    'warmpath.dev/session-header': 'cookie:sid',
    'warmpath.dev/prefix-hash-header': 'X-Hash',
  });
  expect(reading.settings).toMatchObject({
    policy: 'weighted',
    weights: { prefix: 3, queue: 5, kv: 2 },
    sessionKey: 'cookie:sid',
    prefixHeader: 'X-Hash',
  });
});

const lora = (running: string, waiting: string, time: number): string =>
  `vllm:lora_requests_info{max_lora="4",running_lora_adapters="${running}",waiting_lora_adapters="${waiting}"} ${time}\n`;

test('of the adapters that an engine tells, the newest series holds', () => {
  expect(readMetrics(metricsText()).adapters).toEqual([]);
  const text = metricsText() + lora('old', '', 100.5) + lora('sql,chat', 'chat,de', 1.7e9) + lora('', '', 99);
  expect(readMetrics(text).adapters).toEqual(['sql', 'chat', 'de']);
  expect(readMetrics(metricsText() + lora('a', '', 5) + lora('', '', 6)).adapters).toEqual([]);
});

test('adapters are read as a real engine tells them', () => {
  const text = readFileSync(new URL('../vectors/vllm/metrics/lora.prom', import.meta.url), 'utf8');
  const rows = text.split('\n').filter((line) => line.startsWith('vllm:lora_requests_info'));
  const newest = rows.reduce((a, b) => (Number(b.split(' ').at(-1)) > Number(a.split(' ').at(-1)) ? b : a));
  const { adapters } = readMetrics(text);
  expect(rows.length).toBeGreaterThan(0);
  for (const name of adapters) expect(newest).toContain(name);
  expect(adapters.length > 0).toBe(/(running|waiting)_lora_adapters="[^"]/.test(newest));
});

test('gateways are told the adapters with the metrics they came with, so many and no more', async () => {
  const engine = await startFakeEngine(
    metricsText() + lora(Array.from({ length: 40 }, (_, i) => `a${i}`).join(','), '', 1),
  );
  onTestFinished(() => engine.close());
  const { controlPlane, gateway } = await start({ endpoints: [engine.endpoint], scrapeIntervalMs: 600_000 });
  const answer = await gateway.sync(controlPlane.url);
  const podId = answer.find((frame) => frame.endpoints !== undefined)?.endpoints?.[0]?.podId;
  const adapters = answer.flatMap((frame) => frame.adapters ?? []);
  expect(adapters).toEqual(Array.from({ length: 16 }, (_, i) => ({ podId, hash: adapterHash(`a${i}`) })));
});
