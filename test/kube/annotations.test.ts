// Every annotation on real objects: changed live it is in force with the next sync, and a wrong value changes nothing and shows in four places. The rows
// come from the table in control-plane/annotations.ts, so a new one without a value here fails.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ANNOTATION_PREFIX, POD_ANNOTATIONS, POOL_ANNOTATIONS } from '../../control-plane/annotations.ts';
import type { KubeData } from './lab/client.ts';
import { Cluster, llm, podObject } from './lab/cluster.ts';
import type { StateBody } from './lab/control-plane.ts';
import { until } from './lab/process.ts';
import { parametersOf, poolName, promptOf, World } from './lab/world.ts';

const service: KubeData = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'vllm', namespace: llm } };
const pod = podObject('vllm-1');

/** A value for each key that is not its default. */
const values: Record<string, string> = {
  mode: 'shadow',
  policy: 'round-robin',
  weights: '1:2:3',
  'session-header': 'x-other-session',
  'prefix-hash-header': 'x-other-hash',
  'tools-position': 'first',
  'block-bytes': '512',
  'window-bytes': '65536',
  'bytes-per-token': '3.5',
  'capacity-tokens': '123456',
  'sync-interval': '100ms',
  'scrape-interval': '250ms',
  'kv-events': 'on',
  weight: '2.5',
  drain: 'true',
};

let world: World;
type Pool = StateBody['pools'][number];

beforeAll(async () => {
  const cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
  world = new World(cluster, parametersOf());
  await cluster.startMesh();
  await world.apply();
  await world.startReplica();
  for (const n of [1, 2, 3]) await world.addEngine(`vllm-${n}`, `10.244.2.${n}`);
  await world.gatewayKnows(3);
});
afterAll(async () => world.stop());

interface EventObject extends KubeData {
  involvedObject: { kind: string; name: string; uid: string };
  message: string;
  type: string;
}

const statusOf = (pool: Pool, on: 'pool' | 'pod', key: string) => {
  const rows =
    on === 'pool' ? pool.object?.annotations : pool.object?.pods.find((one) => one.name === 'vllm-1')?.annotations;
  return rows?.find((row) => row.key === ANNOTATION_PREFIX + key);
};

/** Resolves when the gateway holds the settings that the control plane has. */
async function gatewayIsCurrent(): Promise<void> {
  await until(
    'the gateway holds the settings in force',
    async () => {
      const { gateways, settingsVersion } = await world.pool();
      return gateways.some((gateway) => gateway.live && gateway.settingsVersion === settingsVersion);
    },
    5_000,
  );
}

/** The same, and every worker of the gateway has taken them over: they do at their next tick. */
async function settled(): Promise<void> {
  await gatewayIsCurrent();
  await sleep(200);
}

describe.each([
  ['pool', POOL_ANNOTATIONS, service],
  ['pod', POD_ANNOTATIONS, pod],
] as const)('on the %s', (on, rows, object) => {
  it.each(rows.map((row) => [row.key, row] as const))('%s: changed, refused, removed', async (key, row) => {
    const { kube } = world.cluster;
    const full = ANNOTATION_PREFIX + key;
    const text = values[key];
    if (text === undefined) throw new Error(`no value is written here for ${key}`);
    const versionBefore = (await world.pool()).settingsVersion;

    await kube.annotate(object, { [full]: text });
    const startedMs = Date.now();
    await until('it is in force', async () => statusOf(await world.pool(), on, key)?.inForce === text, 5_000);
    await gatewayIsCurrent();
    // One sync takes 50 to 100 ms; the rest is for a machine that does other things as well.
    expect(Date.now() - startedMs).toBeLessThan(1_500);
    expect((await world.pool()).settingsVersion).toBeGreaterThan(versionBefore);
    expect(statusOf(await world.pool(), on, key)).toMatchObject({ value: text, source: 'annotation', fault: null });

    await kube.annotate(object, { [full]: 'no such value' });
    await until('it is refused', async () => statusOf(await world.pool(), on, key)?.fault === 'bad-value', 5_000);
    expect(statusOf(await world.pool(), on, key)).toMatchObject({ inForce: text, source: 'last-good' });
    const replica = await world.active();
    expect(await replica.metrics()).toContain(`warmpath_annotation_faults{pool="${poolName}",fault="bad-value"} 1`);
    expect(replica.process.log()).toContain(`${full}: \\"no such value\\" is not ${row.type}`);
    const { uid } = (await kube.get(object.apiVersion, object.kind, llm, object.metadata.name)).metadata;
    await until('there is an Event', async () => {
      const events = await kube.list<EventObject>('v1', 'Event', llm);
      return events.some(
        ({ involvedObject, message, type }) =>
          involvedObject.uid === uid && type === 'Warning' && message.includes(`${full}: "no such value" is not`),
      );
    });

    await kube.annotate(object, { [full]: null });
    await until(
      'the default is back',
      async () => (statusOf(await world.pool(), on, key)?.value ?? null) === null,
      5_000,
    );
    expect(await replica.metrics()).toContain(`warmpath_annotation_faults{pool="${poolName}",fault="bad-value"} 0`);
    await gatewayIsCurrent();
  });

  it('a key that does not exist, or belongs elsewhere, is refused in the same four places', async () => {
    const { kube } = world.cluster;
    const key = on === 'pool' ? 'drain' : 'mode';
    await kube.annotate(object, { [ANNOTATION_PREFIX + key]: 'true' });
    await until('it is refused', async () => statusOf(await world.pool(), on, key)?.fault === 'unknown-key', 5_000);
    const replica = await world.active();
    expect(await replica.metrics()).toContain(`warmpath_annotation_faults{pool="${poolName}",fault="unknown-key"} 1`);
    expect(replica.process.log()).toContain(`${ANNOTATION_PREFIX}${key}: there is no such annotation here`);
    await until('there is an Event', async () => {
      const events = await kube.list<EventObject>('v1', 'Event', llm);
      return events.some(({ message }) => message.includes(`${ANNOTATION_PREFIX}${key}: there is no such annotation`));
    });
    await kube.annotate(object, { [ANNOTATION_PREFIX + key]: null });
  });
});

describe('what they do to requests', () => {
  it('mode off: nothing is looked at; shadow: prompts are matched and nothing is steered; active again: picks', async () => {
    const { kube, gateway } = world.cluster;
    const matched = async (): Promise<number> =>
      Object.values((await gateway?.stats('warmpath_prompt_bytes_total')) ?? {}).reduce((sum, value) => sum + value, 0);
    const ask = async (mode: string): Promise<{ picks: number; isMatched: boolean; pods: number }> => {
      await until(`${mode} is in force`, async () => (await world.pool()).settings['mode'] === mode);
      await settled();
      const before = { picks: await world.picks(), matched: await matched() };
      const pods = new Set<string>();
      // A prefix of its own for each mode: what shadow lets Envoy spread is then cached on every pod.
      const prompt = promptOf(500 + ['off', 'shadow', 'active'].indexOf(mode));
      for (let n = 0; n < 12; n++) pods.add((await world.ask(prompt, { turn: `turn ${n}` })).pod);
      const picks = (await world.picks()) - before.picks;
      return { picks, isMatched: (await matched()) > before.matched, pods: pods.size };
    };
    await kube.annotate(service, { 'warmpath.dev/mode': 'off' });
    expect(await ask('off')).toMatchObject({ picks: 0, isMatched: false });
    await kube.annotate(service, { 'warmpath.dev/mode': 'shadow' });
    expect(await ask('shadow')).toMatchObject({ picks: 0, isMatched: true });
    await kube.annotate(service, { 'warmpath.dev/mode': null });
    expect(await ask('active')).toEqual({ picks: 12, isMatched: true, pods: 1 });
  });

  it('policy: requests with one prefix are spread by round robin, and counted under its name', async () => {
    const { kube, gateway } = world.cluster;
    await kube.annotate(service, { 'warmpath.dev/policy': 'round-robin' });
    await until(
      'it is in force',
      async () => (await world.pool()).object?.annotations.some((row) => row.inForce === 'round-robin') === true,
    );
    await settled();
    const pods = new Set<string>();
    for (let n = 0; n < 12; n++) pods.add((await world.ask(promptOf(700), { turn: `turn ${n}` })).pod);
    expect(pods.size).toBe(3);
    const stats = (await gateway?.stats('warmpath_picks_total.*round')) ?? {};
    expect(Object.values(stats).reduce((sum, value) => sum + value, 0)).toBeGreaterThanOrEqual(12);
    await kube.annotate(service, { 'warmpath.dev/policy': null });
    await until('the default is back', async () => (await world.pool()).settings['policy'] === 'prefill-cost');
  });

  it('drain: no new picks on that pod', async () => {
    await world.cluster.kube.annotate(pod, { 'warmpath.dev/drain': 'true' });
    await until('it is in force', async () => (await world.pool()).endpoints.some(({ drain }) => drain));
    await settled();
    const pods = new Set<string>();
    for (let n = 0; n < 40; n++) pods.add((await world.ask(promptOf(600 + n))).pod);
    expect([...pods].toSorted()).toEqual(['10.244.2.2:8000', '10.244.2.3:8000']);
    await world.cluster.kube.annotate(pod, { 'warmpath.dev/drain': null });
  });
});
