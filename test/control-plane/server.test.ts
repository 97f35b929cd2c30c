// The control plane over loopback, with gateways that speak real frames and engines that serve metrics text.
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, expect, test } from 'vitest';
import type { Frames } from '../../control-plane/engine/frames.ts';
import { startControlPlane } from '../../control-plane/server.ts';
import type { ControlPlane, ControlPlaneOptions } from '../../control-plane/server.ts';
import { FakeGateway, loadFrames, metricsText, outcomes, podOutcome, startFakeEngine, touch, until } from './fakes.ts';
import type { FakeEngine } from './fakes.ts';

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

async function engine(text?: string): Promise<FakeEngine> {
  const fake = await startFakeEngine(text);
  closing.push(() => fake.close());
  return fake;
}

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'warmpath-'));
  closing.push(async () => rmSync(path, { recursive: true }));
  return path;
}

async function page(controlPlane: ControlPlane, path: string): Promise<{ status: number; text: string }> {
  const response = await fetch(controlPlane.url + path);
  return { status: response.status, text: await response.text() };
}

interface PoolState {
  settingsVersion: number;
  sequence: number;
  settings: { policy: string };
  endpoints: {
    endpoint: string;
    podId: number;
    capacityTokens: number;
    table: { blocks: number; bytes: number };
    load: { inFlight: number };
    metrics: { running: number | null; stale: boolean; failuresInRow: number; ttftMs: number; missing: string[] };
  }[];
  gateways: { name: string; live: boolean; reports: number }[];
}

const poolState = (controlPlane: ControlPlane, index = 0): PoolState =>
  (controlPlane.state() as { pools: PoolState[] }).pools[index] as PoolState;

test('a new gateway gets settings, secret, endpoints, metrics and an empty snapshot; the next sync brings no settings', async () => {
  const [a, b] = [await engine(), await engine(metricsText({ blocks: 200, running: 7 }))];
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints: [a.endpoint, b.endpoint], blockBytes: 512 }] });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');

  const answer = await gateway.sync(controlPlane.url);
  expect(answer.map((frame) => frame.kind)).toEqual(['delta', 'delta', 'snapshot']);
  const [settings, news, snapshot] = answer;
  expect(settings?.pool).toMatchObject({ mode: 'active', policy: 0, blockBytes: 512, syncIntervalMs: 50 });
  expect(settings?.secret).toHaveLength(32);
  expect(settings?.endpoints?.map((e) => e.capacityTokens)).toEqual([1600, 3200]);
  expect(settings?.endpoints?.map((e) => e.port)).toEqual([a, b].map((e) => Number(e.endpoint.split(':')[1])));
  expect([...(settings?.endpoints?.[0]?.address ?? [])].slice(10)).toEqual([255, 255, 127, 0, 0, 1]);
  expect(news?.metrics?.map((m) => [m.running, m.waiting, m.kvUsage, m.stale])).toEqual([
    [1, 2, 0.5, false],
    [7, 2, 0.5, false],
  ]);
  expect(news?.load).toEqual([]);
  expect(snapshot?.touches).toEqual([]);
  expect(gateway.epoch).not.toBe(0n);

  const second = await gateway.sync(controlPlane.url);
  expect(second).toHaveLength(1);
  expect(second[0]?.pool).toBeUndefined();
  expect(second[0]?.secret).toBeUndefined();

  controlPlane.setPolicy('chat', 'round-robin');
  const third = await gateway.sync(controlPlane.url);
  expect(third[0]?.pool?.policy).toBe(2);
  expect(third[0]?.secret).toEqual(settings?.secret);
  expect(await gateway.sync(controlPlane.url)).toHaveLength(1);
});

test('touches reach the other gateways once, in order, and never their own sender', async () => {
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 });
  const [one, two] = [new FakeGateway(frames, 'gw-1', 'chat'), new FakeGateway(frames, 'gw-2', 'chat')];
  const first = await one.sync(controlPlane.url);
  await two.sync(controlPlane.url);
  const podId = first[0]?.endpoints?.[0]?.podId as number;
  const now = Date.now();
  const touches = [touch(podId, now, [11n, 12n, 13n]), touch(podId, now + 1, [14n], 13n)];

  const own = await one.sync(controlPlane.url, { touches });
  expect(one.touchesNext).toBe(2n);
  expect(own.every((frame) => (frame.touches ?? []).length === 0)).toBe(true);

  const news = (await two.sync(controlPlane.url)).flatMap((frame) => frame.touches ?? []);
  expect(news).toEqual(touches);
  const again = (await two.sync(controlPlane.url)).flatMap((frame) => frame.touches ?? []);
  expect(again).toEqual([]);
  expect(poolState(controlPlane).endpoints[0]?.table).toEqual({ blocks: 4, bytes: 1024 });

  // The same report again, as when its answer was lost: taken in once.
  one.touchesNext = 0n;
  await one.sync(controlPlane.url, { touches });
  expect(one.touchesNext).toBe(2n);
  expect((await two.sync(controlPlane.url)).flatMap((frame) => frame.touches ?? [])).toEqual([]);
});

test('a gateway that joins or asks gets the table, newest first', async () => {
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 });
  const one = new FakeGateway(frames, 'gw-1', 'chat');
  const podId = (await one.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  const now = Date.now();
  await one.sync(controlPlane.url, { touches: [touch(podId, now - 10, [1n, 2n]), touch(podId, now, [3n, 4n, 5n])] });

  const joined = await new FakeGateway(frames, 'gw-2', 'chat').sync(controlPlane.url);
  const snapshot = joined.filter((frame) => frame.kind === 'snapshot');
  expect(snapshot).toHaveLength(1);
  expect(snapshot[0]?.sequence).toBe(1n);
  expect(snapshot[0]?.touches?.map((t) => [...t.keys])).toEqual([
    [3n, 4n, 5n],
    [1n, 2n],
  ]);

  const asked = await one.sync(controlPlane.url, { flags: ['wantSnapshot'] });
  expect(asked.at(-1)?.kind).toBe('snapshot');
  expect(asked.at(-1)?.touches).toHaveLength(2);
});

test('a snapshot larger than a frame comes in several, all but the last marked', async () => {
  const controlPlane = await start({
    pools: [{ name: 'chat', endpoints: [{ endpoint: '127.0.0.1:9', capacityTokens: 100_000_000 }] }],
    scrapeTimeoutMs: 100,
  });
  const one = new FakeGateway(frames, 'gw-1', 'chat');
  const podId = (await one.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  const now = Date.now();
  let key = 1n;
  for (let report = 0; report < 3; report++) {
    const touches = Array.from({ length: 10 }, (_, i) =>
      touch(
        podId,
        now - 1000 + report * 10 + i,
        Array.from({ length: 6_000 }, () => key++),
      ),
    );
    await one.sync(controlPlane.url, { touches });
  }
  const two = new FakeGateway(frames, 'gw-2', 'chat');
  const snapshot = (await two.sync(controlPlane.url)).filter((frame) => frame.kind === 'snapshot');
  expect(snapshot.length).toBeGreaterThan(2);
  expect(snapshot.map((frame) => frame.flags.includes('more'))).toEqual(
    snapshot.map((_, i) => i < snapshot.length - 1),
  );
  expect(snapshot.map((frame) => frame.sequence)).toEqual(snapshot.map((_, i) => (i < snapshot.length - 1 ? 0n : 3n)));
  const keys = new Set(snapshot.flatMap((frame) => (frame.touches ?? []).flatMap((t) => [...t.keys])));
  expect(keys.size).toBe(180_000);
});

test('each gateway is told the load of the others, not its own', async () => {
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 });
  const gateways = ['a', 'b', 'c'].map((name) => new FakeGateway(frames, name, 'chat'));
  const [a, b, c] = gateways as [FakeGateway, FakeGateway, FakeGateway];
  const podId = (await a.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  const load = (inFlight: number, slowness: number): object => ({
    load: [{ podId, inFlight, prefillTokens: inFlight * 100, usedTokens: inFlight * 1000, ageMs: 5, slowness }],
  });
  const others = async (gateway: FakeGateway, own: object): Promise<unknown> => {
    const answer = await gateway.sync(controlPlane.url, own);
    return answer.find((frame) => frame.load)?.load;
  };
  expect(await others(a, load(3, 0.5))).toEqual([]);
  expect(await others(b, load(5, 0))).toMatchObject([{ podId, inFlight: 3, prefillTokens: 300, slowness: 0.5 }]);
  expect(await others(c, {})).toMatchObject([{ podId, inFlight: 8, usedTokens: 8000, slowness: 0.5 }]);
  expect(await others(a, load(1, 0.5))).toMatchObject([{ podId, inFlight: 5, slowness: 0 }]);
  expect(await others(c, {})).toMatchObject([{ podId, inFlight: 6 }]);
  expect(poolState(controlPlane).endpoints[0]?.load.inFlight).toBe(6);
  // An empty list says that nothing is in flight; no list leaves things as they were.
  await a.sync(controlPlane.url, { load: [] });
  await b.sync(controlPlane.url);
  expect(await others(c, {})).toMatchObject([{ podId, inFlight: 5 }]);
});

test('a frame that is not sound is refused with its code and changes nothing', async () => {
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  await gateway.sync(controlPlane.url);
  const before = JSON.stringify(poolState(controlPlane).gateways.map((g) => g.reports));
  const podId = poolState(controlPlane).endpoints[0]?.podId as number;
  const good = gateway.report({ touches: [touch(podId, Date.now(), [5n])] });
  const flipped = good.slice();
  flipped[60] = (flipped[60] ?? 0) ^ 1;
  const other = new FakeGateway(frames, 'gw-1', 'nobody').report();
  const twin = new FakeGateway(frames, 'gw-2', 'chat').report();
  const delta = frames.encode({ kind: 'delta', epoch: 1n, sequence: 1n, poolHash: 1n, settingsVersion: 1, flags: [] });
  const cases: [string, Uint8Array, number, string][] = [
    ['empty', new Uint8Array(0), 400, 'WARMPATH_FRAME_SHORT'],
    ['text', Buffer.from('x'.repeat(64)), 400, 'WARMPATH_FRAME_MAGIC'],
    ['truncated', good.subarray(0, good.length - 8), 400, 'WARMPATH_FRAME_LENGTH'],
    ['flipped', flipped, 400, 'WARMPATH_FRAME_CHECK'],
    ['good, then rubbish', Buffer.concat([good, Buffer.from('rubbish!')]), 400, 'WARMPATH_FRAME_SHORT'],
    ['good, then another pool', Buffer.concat([good, other]), 404, 'WARMPATH_POOL_UNKNOWN'],
    ['good, then another gateway', Buffer.concat([good, twin]), 400, 'WARMPATH_REPORT_REPEATED'],
    ['a delta', delta, 400, 'WARMPATH_REPORT_EXPECTED'],
    ['too long', new Uint8Array(5 << 20), 413, 'WARMPATH_BODY_TOO_LARGE'],
  ];
  for (const [name, body, status, code] of cases) {
    const answer = await gateway.post(controlPlane.url, body);
    expect([name, answer.status, JSON.parse(Buffer.from(answer.body).toString()).code]).toEqual([name, status, code]);
  }
  expect(JSON.stringify(poolState(controlPlane).gateways.map((g) => g.reports))).toBe(before);
  expect(poolState(controlPlane)).toMatchObject({ sequence: 0, endpoints: [{ table: { blocks: 0 } }] });
  const { text } = await page(controlPlane, '/metrics');
  expect(text).toContain('warmpath_sync_refused_total{code="WARMPATH_FRAME_CHECK"} 1');
});

test('a token is asked for on sync only, before the body is read', async () => {
  const token = 'a-token-of-some-length';
  const options = { pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 };
  const controlPlane = await start({ ...options, token });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  for (const headers of [{}, { authorization: 'Bearer wrong-token-of-length' }, { authorization: token }]) {
    const answer = await gateway.post(controlPlane.url, gateway.report(), headers as Record<string, string>);
    expect(answer.status).toBe(401);
    expect(JSON.parse(Buffer.from(answer.body).toString()).code).toBe('WARMPATH_TOKEN_INVALID');
  }
  await expect(gateway.sync(controlPlane.url, {}, { authorization: `Bearer ${token}` })).resolves.toHaveLength(3);
  expect((await page(controlPlane, '/metrics')).text).toContain('{code="WARMPATH_TOKEN_INVALID"} 3');
  expect((await page(controlPlane, '/healthz')).status).toBe(200);
});

test('a new control plane has a new epoch, the same pod ids, and asks for what the gateway holds', async () => {
  const a = await engine();
  const secretFile = join(folder(), 'secret');
  const options = { secretFile, pools: [{ name: 'chat', endpoints: [a.endpoint] }] };
  const first = await start(options);
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  const before = await gateway.sync(first.url);
  const podId = before[0]?.endpoints?.[0]?.podId as number;
  await gateway.sync(first.url, { touches: [touch(podId, Date.now(), [1n, 2n])] });
  const epoch = gateway.epoch;
  await first.close();

  const second = await start(options);
  const after = await gateway.sync(second.url);
  expect(gateway.epoch > epoch).toBe(true);
  expect(after[0]?.endpoints?.[0]?.podId).toBe(podId);
  expect(after[0]?.secret).toEqual(before[0]?.secret);
  expect(after.some((frame) => frame.flags.includes('wantTable'))).toBe(true);
  expect(gateway.sequence).toBe(0n);

  const held = [touch(podId, Date.now(), [1n, 2n])];
  await gateway.sync(second.url, { flags: ['table'], touches: held });
  expect(poolState(second).endpoints[0]?.table.blocks).toBe(2);
  expect(poolState(second).sequence).toBe(0);
  const joined = await new FakeGateway(frames, 'gw-2', 'chat').sync(second.url);
  expect(joined.at(-1)?.touches?.map((t) => [...t.keys])).toEqual([[1n, 2n]]);
});

test('ids that a gateway brings along are taken over when nothing is known of the engine', async () => {
  const options = { pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 };
  const controlPlane = await start(options);
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  gateway.epoch = 77n;
  const address = new Uint8Array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1]);
  const known = {
    podId: 4242,
    address,
    port: 9,
    ready: true,
    drain: false,
    weight: 1,
    capacityTokens: 0,
    startedSeconds: 0,
  };
  const answer = await gateway.sync(controlPlane.url, { endpoints: [known] });
  expect(answer[0]?.endpoints?.map((e) => e.podId)).toEqual([4242]);
  // Only before ids are given out: the next gateway has to take what there is.
  const late = new FakeGateway(frames, 'gw-2', 'chat');
  late.epoch = 77n;
  const second = await late.sync(controlPlane.url, { endpoints: [{ ...known, podId: 999 }] });
  expect(second[0]?.endpoints?.map((e) => e.podId)).toEqual([4242]);
});

test('an engine that started anew gets a new id and an empty table', async () => {
  const a = await engine();
  const controlPlane = await start({ scrapeIntervalMs: 20, pools: [{ name: 'chat', endpoints: [a.endpoint] }] });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  const podId = (await gateway.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  await gateway.sync(controlPlane.url, { touches: [touch(podId, Date.now(), [1n])] });
  a.answer.text = metricsText({ started: 2000 });
  await until(() => poolState(controlPlane).endpoints[0]?.podId !== podId, 'a new pod id');
  expect(poolState(controlPlane).endpoints[0]?.table.blocks).toBe(0);
  const answer = await gateway.sync(controlPlane.url);
  expect(answer[0]?.endpoints?.[0]).toMatchObject({ startedSeconds: 2000 });
  expect(answer[0]?.endpoints?.[0]?.podId).not.toBe(podId);
  expect((await page(controlPlane, '/metrics')).text).toContain('warmpath_pod_restarts_total{pool="chat"} 1');
});

test('scraping keeps one connection, learns times to first token, and calls old numbers stale', async () => {
  const a = await engine(metricsText({ ttftSum: 10, ttftCount: 20 }));
  const pools = [{ name: 'chat', endpoints: [a.endpoint] }];
  const controlPlane = await start({ scrapeIntervalMs: 15, scrapeTimeoutMs: 400, pools });
  await until(() => a.scrapes > 5, 'several scrapes');
  expect(a.connections).toBe(1);
  expect(poolState(controlPlane).endpoints[0]?.metrics).toMatchObject({ running: 1, stale: false, ttftMs: 0 });
  a.answer.text = metricsText({ ttftSum: 12, ttftCount: 24, running: 3 });
  await until(() => poolState(controlPlane).endpoints[0]?.metrics.ttftMs === 500, 'a mean time to first token');

  a.answer.status = 500;
  await until(() => poolState(controlPlane).endpoints[0]?.metrics.stale === true, 'stale metrics');
  expect(poolState(controlPlane).endpoints[0]?.metrics).toMatchObject({ running: 3 });
  const answer = await new FakeGateway(frames, 'gw-1', 'chat').sync(controlPlane.url);
  expect(answer[0]?.endpoints?.[0]?.ready).toBe(true);
  expect(answer[1]?.metrics?.[0]).toMatchObject({ stale: true, running: 3 });
  a.answer.status = 200;
  a.answer.delayMs = 500;
  await until(async () => (await page(controlPlane, '/metrics')).text.includes('outcome="timeout"'), 'a timeout');
});

test('a missing or renamed family is counted, named once in the log, and not read as zero', async () => {
  const a = await engine(metricsText().replace('vllm:num_requests_waiting', 'vllm:requests_waiting_now'));
  const lines: string[] = [];
  const log = {
    info: () => undefined,
    warn: (message: string, fields: object = {}) => void lines.push(message + JSON.stringify(fields)),
  };
  const controlPlane = await startControlPlane(
    { scrapeIntervalMs: 15, pools: [{ name: 'chat', endpoints: [a.endpoint] }] },
    { log },
  );
  closing.push(() => controlPlane.close());
  await until(() => a.scrapes > 4, 'several scrapes');
  expect(lines.filter((line) => line.includes('waiting'))).toHaveLength(1);
  const answer = await new FakeGateway(frames, 'gw-1', 'chat').sync(controlPlane.url);
  expect(answer[1]?.metrics?.[0]).toMatchObject({ running: 1, waiting: null });
  const { text } = await page(controlPlane, '/metrics');
  const counted = /warmpath_scrape_missing_family_total\{pool="chat",family="waiting"\} (\d+)/.exec(text)?.[1];
  expect(Number(counted)).toBeGreaterThan(3);
});

test('endpoints come from a watched file; a bad version keeps the last good one', async () => {
  const path = folder();
  const file = join(path, 'endpoints.yaml');
  writeFileSync(file, 'chat:\n  - 127.0.0.1:9\n  - {endpoint: "127.0.0.1:10", weight: 2}\n');
  const controlPlane = await start({ scrapeTimeoutMs: 100, pools: [{ name: 'chat', endpointsFile: file }] });
  const names = (): string[] => poolState(controlPlane).endpoints.map((e) => e.endpoint);
  expect(names()).toEqual(['127.0.0.1:9', '127.0.0.1:10']);
  const before = poolState(controlPlane).endpoints.map((e) => e.podId);

  writeFileSync(join(path, 'next'), JSON.stringify({ chat: ['127.0.0.1:10'] }));
  renameSync(join(path, 'next'), file);
  await until(() => names().length === 1, 'one endpoint');
  expect(poolState(controlPlane).endpoints[0]?.podId).toBe(before[1]);

  writeFileSync(file, 'chat: [nonsense]\n');
  await until(
    async () => (await page(controlPlane, '/metrics')).text.includes('endpoints_file_refused_total{pool="chat"} 1'),
    'a refused file',
  );
  expect(names()).toEqual(['127.0.0.1:10']);

  writeFileSync(file, 'chat: ["127.0.0.1:9", "127.0.0.1:10"]\n');
  await until(() => names().length === 2, 'two endpoints again');
  const after = poolState(controlPlane).endpoints.map((e) => e.podId);
  expect(after[0]).not.toBe(before[0]);
  expect(after[1]).toBe(before[1]);
});

test('two leaders of one gateway that report in turn are one load, and each counts for itself', async () => {
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 });
  const [old, young] = [1n, 2n].map((life) => new FakeGateway(frames, 'gw-1', 'chat', life)) as [
    FakeGateway,
    FakeGateway,
  ];
  const other = new FakeGateway(frames, 'gw-2', 'chat');
  const podId = (await old.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  await young.sync(controlPlane.url);
  const load = [{ podId, inFlight: 3, prefillTokens: 1, usedTokens: 1, ageMs: 0, slowness: 0 }];
  for (let turn = 0; turn < 3; turn++) {
    await old.sync(controlPlane.url, { load, outcomes: outcomes([podOutcome({ podId, ok: 10 })]) });
    await young.sync(controlPlane.url, { load, outcomes: outcomes([podOutcome({ podId, ok: 4 })]) });
  }
  expect((await other.sync(controlPlane.url)).find((f) => f.load)?.load).toMatchObject([{ inFlight: 3 }]);
  expect(poolState(controlPlane).gateways.map((g) => g.name)).toEqual(['gw-1', 'gw-2']);
  const { text } = await page(controlPlane, '/metrics');
  expect(text).toContain('warmpath_requests_total{pool="chat",outcome="ok"} 14');
});

test('a silent gateway loses its load and is no longer counted', async () => {
  let nowMs = 1_000_000;
  const controlPlane = await startControlPlane(
    { pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100, scrapeIntervalMs: 60_000 },
    { clock: { nowMs: () => nowMs } },
  );
  closing.push(() => controlPlane.close());
  const [a, b] = [new FakeGateway(frames, 'a', 'chat'), new FakeGateway(frames, 'b', 'chat')];
  const podId = (await a.sync(controlPlane.url))[0]?.endpoints?.[0]?.podId as number;
  const load = [{ podId, inFlight: 3, prefillTokens: 1, usedTokens: 1, ageMs: 0, slowness: 0 }];
  await a.sync(controlPlane.url, { load });
  nowMs += 1_000;
  expect((await b.sync(controlPlane.url)).find((f) => f.load)?.load).toMatchObject([{ inFlight: 3, ageMs: 1_000 }]);
  nowMs += 5_000;
  await b.sync(controlPlane.url);
  await until(() => poolState(controlPlane).endpoints[0]?.load.inFlight === 0, 'the load to go');
  expect(poolState(controlPlane).gateways.map((g) => g.live)).toEqual([false, true]);
});

test('the state names everything but the secret, and unknown routes answer 404', async () => {
  const controlPlane = await start({ pools: [{ name: 'chat', endpoints: ['127.0.0.1:9'] }], scrapeTimeoutMs: 100 });
  const gateway = new FakeGateway(frames, 'gw-1', 'chat');
  const secret = (await gateway.sync(controlPlane.url))[0]?.secret as Uint8Array;
  const { text } = await page(controlPlane, '/v1/state');
  expect(JSON.parse(text)).toMatchObject({ ready: true, pools: [{ name: 'chat', gateways: [{ name: 'gw-1' }] }] });
  expect(text).not.toContain(Buffer.from(secret).toString('hex'));
  expect(await page(controlPlane, '/readyz')).toEqual({ status: 200, text: 'ready\n' });
  const missing = await page(controlPlane, '/nothing');
  expect([missing.status, JSON.parse(missing.text).code]).toEqual([404, 'WARMPATH_ROUTE_UNKNOWN']);
});

test('a secret file is made once, readable by its owner only, and each pool has a secret of its own', async () => {
  const secretFile = join(folder(), 'secret');
  const pools = ['one', 'two'].map((name) => ({ name, endpoints: ['127.0.0.1:9'] }));
  const controlPlane = await start({ secretFile, pools, scrapeTimeoutMs: 100 });
  const secrets = await Promise.all(
    ['one', 'two'].map(async (pool) => (await new FakeGateway(frames, 'g', pool).sync(controlPlane.url))[0]?.secret),
  );
  expect(secrets[0]).not.toEqual(secrets[1]);
  expect(readFileSync(secretFile, 'latin1')).toMatch(/^[0-9a-f]{64}\n$/);
  await expect(startControlPlane({ secretFile: '/proc/nowhere/secret', pools })).rejects.toMatchObject({
    code: 'WARMPATH_SECRET_FILE_UNREADABLE',
  });
});
