// Two pools behind one gateway and one control plane: each has a plugin of its own that looks at its own cluster, and neither picks from the other's
// pods or hears of its settings.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startReplica, type Replica as Engine } from '../../sim/server.ts';
import { Cluster, llm } from './lab/cluster.ts';
import { until } from './lab/process.ts';
import { parametersOf, promptOf, World } from './lab/world.ts';

const chat = parametersOf({
  pool: { namespace: llm, name: 'chat' },
  selector: { app: 'chat' },
  route: 'chat',
  hostnames: ['chat.example'],
});
const addresses = ['10.244.2.51', '10.244.2.52'];

let world: World;
const engines: Engine[] = [];

beforeAll(async () => {
  const cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
  world = new World(cluster, parametersOf());
  const second = new World(cluster, chat);
  for (const { kind, spec } of world.manifests) {
    if (kind !== 'Deployment') continue;
    const { template } = spec as { template: { spec: { containers: { args: string[] }[] } } };
    template.spec.containers[0]?.args.push('--service=llm/chat');
  }
  await cluster.startMesh();
  await world.apply();
  await cluster.kube.apply(second.manifests.filter(({ kind }) => kind !== 'Deployment'));
  await world.startReplica();
  for (const n of [1, 2]) await world.addEngine(`vllm-${n}`, `10.244.2.${n}`);
  for (const [n, ip] of addresses.entries()) {
    engines.push(await startReplica({ engine: 'H100-8B', host: ip, port: 8000 }));
    await cluster.addPod({ name: `chat-${n}`, ip, labels: { app: 'chat' } });
  }
  await cluster.writeSlices('chat');
  await world.gatewayKnows(2);
  await until('both pools are synchronised', async () => {
    const { pools } = await (await world.active()).state();
    return (
      pools.length === 2 &&
      pools.every(({ gateways, endpoints }) => endpoints.length === 2 && gateways.some(({ live }) => live))
    );
  });
  await until(
    'the second route serves',
    async () => (await world.ask('hello', { host: 'chat.example' })).status === 200,
  );
});
afterAll(async () => {
  await world.stop();
  for (const engine of engines) await engine.close();
});

it('each route has the pods of its own pool, and one prefix stays on one of them', async () => {
  const homes: Record<string, Set<string>> = { 'llm.example': new Set(), 'chat.example': new Set() };
  for (let turn = 0; turn < 8; turn++) {
    for (const [host, pods] of Object.entries(homes)) {
      const { status, pod } = await world.ask(promptOf(1), { host, turn: `turn ${turn}` });
      expect(status).toBe(200);
      pods.add(pod);
    }
  }
  const [ours = [], others = []] = Object.values(homes).map((pods) => [...pods]);
  expect([ours.length, others.length]).toEqual([1, 1]);
  expect(ours[0]).toMatch(/^10\.244\.2\.[12]:/);
  expect(others[0]).toMatch(/^10\.244\.2\.5[12]:/);
});

it('picks are counted by pool, and the settings of one do not reach the other', async () => {
  const picks = async (pool: string): Promise<number> => {
    const stats = (await world.cluster.gateway?.stats(`warmpath_picks_total.*${pool}`)) ?? {};
    return Object.values(stats).reduce((sum, value) => sum + value, 0);
  };
  expect(await picks('vllm')).toBeGreaterThanOrEqual(8);
  expect(await picks('chat')).toBeGreaterThanOrEqual(8);
  await world.cluster.kube.annotate(
    { apiVersion: 'v1', kind: 'Service', metadata: { name: 'chat', namespace: llm } },
    { 'warmpath.dev/mode': 'off' },
  );
  const active = await world.active();
  await until('the gateway has it', async () => {
    const { settings, settingsVersion, gateways } = await active.pool('llm/chat');
    return settings['mode'] === 'off' && gateways.some((gateway) => gateway.settingsVersion === settingsVersion);
  });
  expect((await active.pool('llm/vllm')).settings['mode']).toBe('active');
  await new Promise((resolve) => setTimeout(resolve, 200));
  const before = { vllm: await picks('vllm'), chat: await picks('chat') };
  for (const host of ['llm.example', 'chat.example']) {
    for (let n = 0; n < 5; n++) expect((await world.ask(promptOf(2), { host })).status).toBe(200);
  }
  expect({ vllm: (await picks('vllm')) - before.vllm, chat: (await picks('chat')) - before.chat }).toEqual({
    vllm: 5,
    chat: 0,
  });
});
