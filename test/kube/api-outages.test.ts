// The API server goes away, comes back, refuses, hangs and forgets: the control plane is not restarted, removes nothing that was not removed, and is
// right again without help. Requests go on all the while.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { KubeClient } from './lab/client.ts';
import { Cluster } from './lab/cluster.ts';
import type { Replica } from './lab/control-plane.ts';
import { Load } from './lab/load.ts';
import { until } from './lab/process.ts';
import { parametersOf, World } from './lab/world.ts';

const outageMs = 60_000;
const host = 'llm.example';

let world: World;
let load: Load;
let replicas: Replica[];

beforeAll(async () => {
  const cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
  world = new World(cluster, parametersOf());
  await cluster.startMesh();
  await world.apply();
  replicas = await Promise.all([world.startReplica(), world.startReplica()]);
  for (const n of [1, 2, 3]) await world.addEngine(`vllm-${n}`, `10.244.2.${n}`);
  await world.gatewayKnows(3);
});
afterAll(async () => world.stop());

beforeEach(() => {
  load = new Load(world, [host]);
});
afterEach(async () => {
  await load.stop();
  expect(load.failed(host)).toEqual([]);
  // Nobody was restarted.
  expect(replicas.map(({ process }) => process.isRunning)).toEqual([true, true]);
});

/** Endpoints that the replicas know, each for itself. */
async function known(): Promise<string[][]> {
  return Promise.all(
    replicas.map(async (replica) => {
      const { endpoints } = await replica.pool('llm/vllm');
      return endpoints.filter(({ ready }) => ready).map(({ endpoint }) => endpoint.replace(':8000', ''));
    }),
  );
}

async function knowEventually(expected: string[], waitMs: number): Promise<number> {
  const startedMs = Date.now();
  const sorted = JSON.stringify([expected, expected]);
  await until(
    `all know ${expected.join()}`,
    async () => JSON.stringify((await known()).map((k) => k.toSorted())) === sorted,
    waitMs,
  );
  return Date.now() - startedMs;
}

const addresses = (...numbers: number[]): string[] => numbers.map((n) => `10.244.2.${n}`);

it('killed for 60 s: the endpoints stay, picks go on, one replica stays active, and the change that was missed arrives', async () => {
  const active = await world.active();
  await world.cluster.api.killServer();
  const picks = await world.picks();
  const endMs = Date.now() + outageMs;
  while (Date.now() < endMs) {
    expect(await known()).toEqual([addresses(1, 2, 3), addresses(1, 2, 3)]);
    expect((await world.active()).name).toBe(active.name);
    await sleep(2_000);
  }
  expect((await world.picks()) - picks).toBeGreaterThan(500);
  await world.cluster.api.startServer();
  await world.addEngine('vllm-4', '10.244.2.4');
  expect(await knowEventually(addresses(1, 2, 3, 4), 30_000)).toBeLessThan(15_000);
});

it('compacted while a watch was away: listed again, without a wrong removal', async () => {
  const before = await world.active();
  await world.cluster.api.killServer();
  await world.cluster.api.compactEtcd();
  await world.cluster.api.startServer();
  await world.removeEngine('vllm-4');
  await world.cluster.api.compactEtcd();
  await knowEventually(addresses(1, 2, 3), 30_000);
  expect((await world.active()).name).toBe(before.name);
});

it('silent: connections are open and nothing comes, until it goes on', async () => {
  world.cluster.api.pauseServer();
  await sleep(30_000);
  expect(await known()).toEqual([addresses(1, 2, 3), addresses(1, 2, 3)]);
  world.cluster.api.resumeServer();
  await world.addEngine('vllm-4', '10.244.2.4');
  await knowEventually(addresses(1, 2, 3, 4), 30_000);
  await world.removeEngine('vllm-4');
  await knowEventually(addresses(1, 2, 3), 30_000);
});

it('throttled: 429 until it has room again', async () => {
  const token = await world.cluster.api.serviceAccountToken('warmpath-system', 'warmpath');
  await world.cluster.api.killServer();
  // One request at a time: most of a crowd is told to come back later.
  const one = ['--max-requests-inflight=1', '--max-mutating-requests-inflight=1'];
  await world.cluster.api.startServer(['--enable-priority-and-fairness=false', ...one]);
  // The administrator is never refused; the control plane's account is like any other.
  const client = new KubeClient(world.cluster.api.url, token);
  let refused = 0;
  let isOn = true;
  const flood = Array.from({ length: 60 }, async () => {
    while (isOn) await client.list('v1', 'Pod', 'llm').catch(() => refused++);
  });
  // Each watch is begun anew every 20 s, and meets the crowd then at the latest.
  await until(
    'the control plane is told to come back later',
    async () => {
      const seen = await Promise.all(replicas.map(async (replica) => replica.metrics()));
      return /warmpath_kube_watch_failures_total\{resource="\w+",reason="429"\}/.test(seen.join());
    },
    90_000,
  ).finally(() => (isOn = false));
  await Promise.all(flood);
  expect(refused).toBeGreaterThan(0);
  expect(await known()).toEqual([addresses(1, 2, 3), addresses(1, 2, 3)]);
  await world.addEngine('vllm-4', '10.244.2.4');
  await knowEventually(addresses(1, 2, 3, 4), 30_000);
  await world.active();
});
