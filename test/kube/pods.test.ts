// What happens to pods under load: added, made unready, terminating, removed, recreated at the same address, restarted in place, rolled one by one. No
// request fails that a route without Warmpath would not fail, and nothing is picked that is gone.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { Cluster } from './lab/cluster.ts';
import type { StateBody } from './lab/control-plane.ts';
import { Load } from './lab/load.ts';
import { until } from './lab/process.ts';
import { parametersOf, World } from './lab/world.ts';

const ours = 'llm.example';
const plain = 'plain.example';
/** A pick takes what the control plane knows after the gateway's next sync, which is 50 ms away at most; the rest is for a busy machine. */
const afterSyncMs = 300;

let world: World;
let load: Load;

const addressOf = (number: number): string => `10.244.2.${number}:8000`;
type Endpoint = StateBody['pools'][number]['endpoints'][number];

async function endpoint(number: number): Promise<Endpoint | undefined> {
  return (await world.pool()).endpoints.find((one) => one.endpoint === addressOf(number));
}

/** Resolves when the control plane and then the gateways have heard of a change. */
async function heard(what: string, holds: (found: Endpoint | undefined) => boolean, number: number): Promise<number> {
  await until(what, async () => holds(await endpoint(number)), 5_000);
  await sleep(afterSyncMs);
  return Date.now();
}

beforeAll(async () => {
  const cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
  world = new World(cluster, parametersOf());
  await cluster.startMesh();
  await world.apply();
  await world.applyPlainRoute(plain);
  await world.startReplica();
  for (const n of [1, 2, 3]) await world.addEngine(`vllm-${n}`, `10.244.2.${n}`);
  await world.gatewayKnows(3);
});
afterAll(async () => world.stop());

beforeEach(async () => {
  load = new Load(world, [ours, plain]);
  await load.more(60);
});
afterEach(async () => {
  await load.stop();
  expect(load.failed(ours)).toEqual([]);
  expect(load.since(0, ours).length).toBeGreaterThan(25);
});

it('a pod that is added gets picks', async () => {
  await world.addEngine('vllm-4', '10.244.2.4');
  const sinceMs = await heard('the new pod is known', (found) => found?.ready === true, 4);
  await until('it gets requests', () => load.since(sinceMs, ours).some(({ pod }) => pod === addressOf(4)), 20_000);
});

it('a pod that is not ready gets none within one sync, although Envoy still knows it, and some again when it is', async () => {
  const before = await endpoint(4);
  // The EndpointSlices stay as they are: it is the pick that leaves the pod out.
  await world.cluster.setStatus('vllm-4', { ip: '10.244.2.4', isReady: false });
  const sinceMs = await heard('the pod is known as unready', (found) => found?.ready === false, 4);
  await load.more(150);
  expect(load.since(sinceMs, ours).filter(({ pod }) => pod === addressOf(4))).toEqual([]);
  expect(load.since(sinceMs, plain).some(({ pod }) => pod === addressOf(4))).toBe(true);
  await world.cluster.setStatus('vllm-4', { ip: '10.244.2.4', isReady: true });
  const againMs = await heard('the pod is ready again', (found) => found?.ready === true, 4);
  await until('it gets requests', () => load.since(againMs, ours).some(({ pod }) => pod === addressOf(4)), 20_000);
  // What it holds has not been forgotten meanwhile.
  expect((await endpoint(4))?.podId).toBe(before?.podId);
});

it('a pod that terminates gets none, and ends without a failure', async () => {
  await world.cluster.removePod('vllm-4', 600);
  const sinceMs = await heard('the pod is known as terminating', (found) => found?.ready === false, 4);
  await load.more(150);
  expect(load.since(sinceMs, ours).filter(({ pod }) => pod === addressOf(4))).toEqual([]);
  await world.writeSlices();
  await load.more(60);
  await world.cluster.removePod('vllm-4');
  await heard('the pod is gone', (found) => found === undefined, 4);
  await world.engines.get('vllm-4')?.close();
  world.engines.delete('vllm-4');
});

it('a pod that is recreated at the same address is another one, and begins empty', async () => {
  const before = await endpoint(3);
  expect(before?.table.blocks).toBeGreaterThan(0);
  // A request that was under way would be answered by the successor here, which would then truly hold its blocks.
  await load.stop();
  world.engines.get('vllm-3')?.clearCache();
  // The successor is there before the control plane can have seen the address free.
  await Promise.all([
    world.cluster.removePod('vllm-3'),
    world.cluster.addPod({ name: 'vllm-3b', ip: '10.244.2.3', labels: { app: 'vllm' }, isReady: false }),
  ]);
  await heard('the successor is known', (found) => found !== undefined && found.podId !== before?.podId, 3);
  const after = await endpoint(3);
  expect(after).toMatchObject({ ready: false, table: { blocks: 0 } });
  await world.cluster.setStatus('vllm-3b', { ip: '10.244.2.3', isReady: true });
  load = new Load(world, [ours, plain]);
  await load.more(60);
  const sinceMs = await heard('it is ready', (found) => found?.ready === true, 3);
  await until('it gets requests', () => load.since(sinceMs, ours).some(({ pod }) => pod === addressOf(3)), 20_000);
});

it('a container that is started again in its pod is another one', async () => {
  const before = await endpoint(2);
  await world.cluster.setStatus('vllm-2', { ip: '10.244.2.2', isReady: true, restarts: 1 });
  await heard('the restart is known', (found) => found !== undefined && found.podId !== before?.podId, 2);
  await until('it gets requests again', async () => ((await endpoint(2))?.table.blocks ?? 0) > 0, 20_000);
});

it('all pods replaced one by one: nothing fails', async () => {
  for (const [n, old] of ['vllm-1', 'vllm-2', 'vllm-3b'].entries()) {
    await world.addEngine(`next-${n}`, `10.244.2.${20 + n}`);
    await heard('the new pod is known', (found) => found?.ready === true, 20 + n);
    await world.cluster.removePod(old, 600);
    await world.writeSlices();
    await heard('the old pod is known as terminating', (found) => found?.ready !== true, n + 1);
    await load.more(40);
    await world.cluster.removePod(old);
    const engine = old === 'vllm-3b' ? 'vllm-3' : old;
    await world.engines.get(engine)?.close();
    world.engines.delete(engine);
  }
  await until('three pods are left', async () => (await world.pool()).endpoints.length === 3);
});
