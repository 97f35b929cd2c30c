// What the control plane makes of gateways' outcomes, and what it forgets when an engine did: over loopback, as in server.test.ts.
import { afterEach, beforeAll, expect, test } from 'vitest';
import type { Frames } from '../../control-plane/engine/frames.ts';
import { startControlPlane } from '../../control-plane/server.ts';
import type { ControlPlane, ControlPlaneOptions } from '../../control-plane/server.ts';
import {
  FakeGateway,
  kindOutcome,
  loadFrames,
  metricsText,
  outcomes,
  podOutcome,
  startFakeEngine,
  touch,
  until,
} from './fakes.ts';

let frames: Frames;
const closing: (() => Promise<void>)[] = [];

beforeAll(async () => {
  frames = await loadFrames();
});

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function start(
  options: Partial<ControlPlaneOptions> & Pick<ControlPlaneOptions, 'pools'>,
): Promise<ControlPlane> {
  const controlPlane = await startControlPlane({ scrapeIntervalMs: 60_000, ...options });
  closing.push(() => controlPlane.close());
  return controlPlane;
}

async function page(controlPlane: ControlPlane, path: string): Promise<{ text: string }> {
  return { text: await (await fetch(controlPlane.url + path)).text() };
}

interface PoolState {
  endpoints: {
    capacityTokens: number;
    table: { blocks: number };
    usage: { predictedCachedTokens: number; actualCachedTokens: number; contradicted: number };
  }[];
  usage: { api: string; language: string; requests: number; errors: { le: number | null; requests: number }[] }[];
}

const poolState = (controlPlane: ControlPlane): PoolState =>
  (controlPlane.state() as { pools: PoolState[] }).pools[0] as PoolState;

test('an engine that dropped its cache is forgotten here and by each gateway, also when only its counters show it', async () => {
  const text = metricsText().replace(/^process_start_time_seconds.*\n/m, '');
  const fake = await startFakeEngine(text);
  closing.push(() => fake.close());
  const pools = [{ name: 'chat', endpoints: [fake.endpoint] }];
  const controlPlane = await start({ pools, scrapeIntervalMs: 20 });
  const [one, two] = [new FakeGateway(frames, 'gw-1', 'chat'), new FakeGateway(frames, 'gw-2', 'chat')];
  const podId = (await one.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  await two.sync(controlPlane.url);
  const beforeMs = Date.now() - 50;
  await one.sync(controlPlane.url, { touches: [touch(podId, beforeMs, [1n, 2n])] });
  await two.sync(controlPlane.url);
  expect(poolState(controlPlane).endpoints[0]?.table.blocks).toBe(2);

  fake.answer.text = text.replace('prefix_cache_queries_total{engine="0",model_name="m"} 100', (line) =>
    line.replace(' 100', ' 7'),
  );
  await until(() => poolState(controlPlane).endpoints[0]?.table.blocks === 0, 'the table to be cleared');
  for (const gateway of [one, two]) {
    const told = (await gateway.sync(controlPlane.url)).flatMap((frame) => frame.touches ?? []);
    expect(told).toMatchObject([{ podId, clear: true }]);
  }
  // What was touched before and comes late does not bring it back; what comes after counts.
  await two.sync(controlPlane.url, { touches: [touch(podId, beforeMs, [1n, 2n])] });
  expect(poolState(controlPlane).endpoints[0]?.table.blocks).toBe(0);
  await two.sync(controlPlane.url, { touches: [touch(podId, Date.now() + 5, [3n])] });
  expect(poolState(controlPlane).endpoints[0]?.table.blocks).toBe(1);
  expect((await page(controlPlane, '/metrics')).text).toContain('warmpath_pod_clears_total{pool="chat"} 1');
});

test('outcomes and counters become metrics: totals once, whatever is sent again', async () => {
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  const podId = (await gateway.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  const outcome = podOutcome({
    podId,
    resets: 1,
    ok: 10,
    clientErrors: 2,
    serverErrors: 3,
    elsewhere: 4,
    ttftMsSum: 1500,
    ttftCount: 6,
    promptBytes: 8_000,
    promptTokens: 2_000,
    predictedCachedTokens: 900,
    actualCachedTokens: 800,
    completionTokens: 77,
    confirmed: 5,
    contradicted: 2,
    exceeded: 1,
  });
  const errors = [0, 0, 0, 0, 1, 5, 2, 0, 0, 0, 1];
  const kind = kindOutcome({
    requests: 9,
    promptBytes: 8_000,
    promptTokens: 2_000,
    estimatedTokens: 2_100,
    predictedCachedTokens: 900,
    actualCachedTokens: 800,
    close: 6,
    errors,
  });
  const other = kindOutcome({ api: 'messages', language: 'cyrillic', requests: 3 });
  const told = { outcomes: outcomes([outcome], [kind, other]) };
  await gateway.sync(controlPlane.url, told);
  await gateway.sync(controlPlane.url, told);
  const { text } = await page(controlPlane, '/metrics');
  expect(text).toContain('warmpath_requests_total{pool="chat",outcome="ok"} 10');
  const chats = 'pool="chat",api="chat",language="latin"';
  for (const line of [
    `warmpath_usage_requests_total{${chats}} 9`,
    `warmpath_usage_prompt_bytes_total{${chats}} 8000`,
    `warmpath_usage_prompt_tokens_total{${chats},kind="estimated"} 2100`,
    `warmpath_usage_prompt_tokens_total{${chats},kind="actual"} 2000`,
    `warmpath_usage_cached_tokens_total{${chats},kind="predicted"} 900`,
    `warmpath_usage_cached_tokens_total{${chats},kind="actual"} 800`,
    `warmpath_predictions_close_total{${chats}} 6`,
    `warmpath_cached_tokens_error_bucket{${chats},le="-64"} 0`,
    `warmpath_cached_tokens_error_bucket{${chats},le="-16"} 1`,
    `warmpath_cached_tokens_error_bucket{${chats},le="16"} 6`,
    `warmpath_cached_tokens_error_bucket{${chats},le="4096"} 8`,
    `warmpath_cached_tokens_error_bucket{${chats},le="+Inf"} 9`,
    'warmpath_usage_requests_total{pool="chat",api="messages",language="cyrillic"} 3',
    'warmpath_usage_completion_tokens_total{pool="chat"} 77',
    'warmpath_pod_cached_tokens_total{pool="chat",endpoint="127.0.0.1:9",kind="predicted"} 900',
    'warmpath_pod_cached_tokens_total{pool="chat",endpoint="127.0.0.1:9",kind="actual"} 800',
    'warmpath_pod_matches_total{pool="chat",endpoint="127.0.0.1:9",result="contradicted"} 2',
    'warmpath_bytes_per_token{pool="chat"} 4',
  ]) {
    expect(text.split('\n')).toContain(line);
  }
  const { usage, endpoints } = poolState(controlPlane);
  expect(usage).toMatchObject([
    { api: 'chat', language: 'latin', requests: 9, predictedCachedTokens: 900, close: 6 },
    { api: 'messages', language: 'cyrillic', requests: 3 },
  ]);
  expect(usage[0]?.errors.slice(4, 7)).toEqual([
    { le: -16, requests: 1 },
    { le: 16, requests: 5 },
    { le: 64, requests: 2 },
  ]);
  expect(endpoints[0]?.usage).toMatchObject({ actualCachedTokens: 800, contradicted: 2 });
  expect(text).toContain('warmpath_ttft_seconds_sum{pool="chat"} 1.5');
  expect(text).toContain('warmpath_gateways{pool="chat"} 1');
  const joined = await new FakeGateway(frames, 'gw-2', 'chat').sync(controlPlane.url);
  expect(joined[0]?.pool?.bytesPerToken).toBe(4);
});

test('what is learned of bytes per token and of capacity is handed out, and comes back to a control plane that starts anew', async () => {
  const pools = [{ name: 'chat', endpoints: ['127.0.0.1:9', '127.0.0.1:10'], bytesPerToken: 6 }];
  const first = await start({ pools, scrapeTimeoutMs: 100 });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  const settings = (await gateway.sync(first.url))[0];
  // The configured ratio is a beginning only.
  expect([settings?.pool?.bytesPerToken, settings?.endpoints?.[0]?.capacityTokens]).toEqual([6, 0]);
  const podId = settings?.endpoints?.[0]?.podId as number;
  const pod = podOutcome({ podId, promptBytes: 30_000, promptTokens: 10_000, confirmed: 5, contradicted: 20 });
  const learned = (await gateway.sync(first.url, { outcomes: outcomes([pod]) }))[0];
  const capacityTokens = Math.round(400_000 * 0.98 ** 20);
  expect(learned?.pool?.bytesPerToken).toBe(3);
  expect(learned?.endpoints?.map((e) => e.capacityTokens)).toEqual([capacityTokens, 0]);
  expect(poolState(first).endpoints[0]).toMatchObject({ capacityTokens, learnedCapacityTokens: capacityTokens });
  const { text } = await page(first, '/metrics');
  const labels = 'pool="chat",endpoint="127.0.0.1:9"';
  expect(text).toContain(`warmpath_pod_capacity_tokens{${labels},kind="learned"} ${capacityTokens}`);
  await first.close();

  const second = await start({ pools, scrapeTimeoutMs: 100 });
  const ratio = { bytesPerToken: 3, ratioTokens: 10_000 };
  const { endpoints } = learned as { endpoints: NonNullable<typeof learned>['endpoints'] };
  await gateway.sync(second.url, { endpoints: endpoints ?? [] });
  await gateway.sync(second.url, { outcomes: outcomes([pod], [], ratio) });
  const joined = (await new FakeGateway(frames, 'gw-2', 'chat').sync(second.url))[0];
  expect(joined?.pool?.bytesPerToken).toBe(3);
  expect(joined?.endpoints?.map((e) => e.capacityTokens)).toEqual([capacityTokens, 0]);
  // Its totals are from before, and were counted then.
  expect((await page(second, '/metrics')).text).toContain('warmpath_usage_completion_tokens_total{pool="chat"} 0\n');
});

test('a capacity that is known is not replaced by a guess, which is told all the same', async () => {
  const endpoints = [{ endpoint: '127.0.0.1:9', capacityTokens: 50_000 }];
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints }], scrapeTimeoutMs: 100 });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  const podId = (await gateway.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  await gateway.sync(controlPlane.url, { outcomes: outcomes([podOutcome({ podId, contradicted: 50 })]) });
  expect(poolState(controlPlane).endpoints[0]).toMatchObject({
    capacityTokens: 50_000,
    learnedCapacityTokens: Math.round(50_000 * 0.98 ** 50),
  });
  expect((await gateway.sync(controlPlane.url))[0]?.endpoints).toBeUndefined();
});

test('a gateway that joins while others still tell their tables gets another snapshot when they have', async () => {
  const pools = [{ name: 'chat', endpoints: ['127.0.0.1:9'] }];
  const first = await start({ pools, scrapeTimeoutMs: 100 });
  const old = new FakeGateway(frames, 'old', 'chat');
  const podId = (await old.sync(first.url))[0]?.endpoints?.[0]?.podId as number;
  await first.close();
  const second = await start({ pools, scrapeTimeoutMs: 100 });
  expect((await old.sync(second.url))[0]?.flags).toEqual(['wantTable']);
  const young = new FakeGateway(frames, 'young', 'chat');
  const keysOf = (answer: Awaited<ReturnType<typeof young.sync>>): bigint[] =>
    answer.flatMap((frame) => (frame.touches ?? []).flatMap(({ keys }) => [...keys]));
  expect(keysOf(await young.sync(second.url))).toEqual([]);
  const table = [touch(podId, Date.now() - 100, [1n, 2n, 3n])];
  await old.sync(second.url, { flags: ['table'], touches: table });
  expect(keysOf(await young.sync(second.url))).toEqual([]);
  await old.sync(second.url);
  expect(keysOf(await young.sync(second.url))).toEqual([1n, 2n, 3n]);
  expect(keysOf(await young.sync(second.url))).toEqual([]);
});
