// Two replicas of the control plane, and what becomes of gateways when one is killed, frozen or replaced, or the filter's module is: the other
// serves within five seconds, never more than one is active for longer than it takes to notice, and no request fails.

import { copyFileSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { ANNOTATION_PREFIX } from '../../control-plane/annotations.ts';
import { Cluster, llm } from './lab/cluster.ts';
import type { KubeData } from './lab/client.ts';
import { Load } from './lab/load.ts';
import { until } from './lab/process.ts';
import { filterPath, parametersOf, poolName, World } from './lab/world.ts';

const host = 'llm.example';
const service: KubeData = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'vllm', namespace: llm } };
const takeOverMsMax = 5_000;

let world: World;
let load: Load;

beforeAll(async () => {
  const cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
  world = new World(cluster, parametersOf());
  await cluster.startMesh();
  await world.apply();
  await Promise.all([world.startReplica(), world.startReplica()]);
  for (const n of [1, 2, 3]) await world.addEngine(`vllm-${n}`, `10.244.2.${n}`);
  await world.gatewayKnows(3);
});
afterAll(async () => world.stop());
beforeEach(async () => {
  load = new Load(world, [host]);
  await load.more(40);
});
afterEach(async () => {
  await load.stop();
  expect(load.failed(host)).toEqual([]);
});

const running = (): typeof world.replicas => world.replicas.filter(({ process }) => process.isRunning);

/** How long it takes until a replica other than `name` is active and has taken a report of the gateway in. */
async function servedByAnother(name: string): Promise<number> {
  const startedMs = Date.now();
  await until(
    'another replica serves',
    async () => {
      for (const replica of running().filter((one) => one.name !== name)) {
        const state = await replica.state();
        const gateways = state.pools.flatMap((pool) => pool.gateways);
        if (state.active && gateways.some(({ reports, live }) => live && reports > 0)) return true;
      }
      return false;
    },
    20_000,
  );
  return Date.now() - startedMs;
}

it('both alive: one is active, both know all endpoints, and both would make the same keys', async () => {
  for (let n = 0; n < 20; n++) {
    const states = await Promise.all(running().map(async (replica) => replica.state()));
    expect(states.map(({ active }) => active).toSorted()).toEqual([false, true]);
    const ids = states.map(({ pools }) =>
      pools.flatMap((pool) => pool.endpoints.map(({ endpoint, podId }) => [endpoint, podId])),
    );
    expect(ids[0]).toHaveLength(3);
    expect(ids[0]).toEqual(ids[1]);
    await sleep(100);
  }
  const active = await world.active();
  const standby = running().find(({ name }) => name !== active.name);
  const answer = await fetch(`http://${standby?.ip}:8090/v1/sync`, { method: 'POST', body: 'x' });
  expect([answer.status, (await answer.json()) as object]).toMatchObject([503, { code: 'WARMPATH_STANDBY' }]);
});

it('the active one killed: the other serves within 5 s, and has what the gateway knew', async () => {
  const active = await world.active();
  const before = (await active.pool(poolName)).endpoints.reduce((sum, { table }) => sum + table.blocks, 0);
  expect(before).toBeGreaterThan(100);
  await active.process.kill();
  expect(await servedByAnother(active.name)).toBeLessThan(takeOverMsMax);
  await until('the table came back', async () => {
    const { endpoints } = await (await world.active()).pool(poolName);
    return endpoints.reduce((sum, { table }) => sum + table.blocks, 0) >= before / 2;
  });
  await world.cluster.removePod(active.name, 0, active.namespace);
  await world.startReplica();
});

it('the active one frozen: it is replaced, and steps down when it goes on', async () => {
  const active = await world.active();
  active.process.signal('SIGSTOP');
  const others = running().filter(({ name }) => name !== active.name);
  const startedMs = Date.now();
  await until('the other is active', async () => (await others[0]?.state())?.active === true, 20_000);
  expect(Date.now() - startedMs).toBeLessThan(takeOverMsMax);
  active.process.signal('SIGCONT');
  await until('one is active', async () => {
    const states = await Promise.all(running().map(async (replica) => replica.state()));
    return states.filter((state) => state.active).length === 1 && !(await active.state()).active;
  });
});

it('a rolling update: each replica is replaced by a new one, and nothing fails', async () => {
  const key = `${ANNOTATION_PREFIX}sync-interval`;
  const inForce = async (): Promise<object | undefined> =>
    (await world.pool()).object?.annotations.find((row) => row.key === key);
  const { kube } = world.cluster;
  await kube.annotate(service, { [key]: '70ms' });
  await until('it is in force', async () => JSON.stringify(await inForce()).includes('70ms'));
  await kube.annotate(service, { [key]: '70 apples' });
  for (const old of running()) {
    await world.startReplica();
    await old.stop(world.cluster);
    await load.more(40);
  }
  // Neither of the two that run now has ever seen it say 70ms.
  await until('a new one is active', async () => (await inForce()) !== undefined);
  expect(await inForce()).toMatchObject({ value: '70 apples', inForce: '70ms', source: 'last-good' });
  await kube.annotate(service, { [key]: null });
  const active = await world.active();
  await until('the gateway reports to a new one', async () =>
    (await active.pool(poolName)).gateways.some(({ live }) => live),
  );
});

it('a new module of the filter: picks go on with it, and nothing fails', async () => {
  const next = join(world.cluster.folder, 'filter-next.wasm');
  copyFileSync(filterPath, next);
  const plugin = world.manifests.find(({ kind }) => kind === 'WasmPlugin') as KubeData & { spec: object };
  await load.more(40);
  await world.cluster.kube.apply([{ ...plugin, spec: { ...plugin.spec, url: `file://${next}` } }]);
  await until(
    'Envoy has the new module',
    async () => (await world.cluster.gateway?.configuration())?.includes('filter-next.wasm') === true,
  );
  await sleep(1_000);
  const before = await world.picks();
  await load.more(100);
  expect((await world.picks()) - before).toBeGreaterThan(50);
});
