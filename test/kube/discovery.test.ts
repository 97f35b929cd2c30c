// How pools are found, on a real API server: InferencePools of both groups, Services with named ports, up to eight ports a pod, IPv4 and IPv6, several
// pools in one control plane, and objects that come, change and go while it runs.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { KubeData } from './lab/client.ts';
import { Cluster, llm } from './lab/cluster.ts';
import type { StateBody } from './lab/control-plane.ts';
import { until } from './lab/process.ts';
import { parametersOf, World } from './lab/world.ts';

const group = 'inference.networking.k8s.io';
const oldGroup = 'inference.networking.x-k8s.io';
const eightPorts = [8000, 8001, 8002, 8003, 8004, 8005, 8006, 8007];

const poolObject = (name: string, app: string, ports: number[]): KubeData => ({
  apiVersion: `${group}/v1`,
  kind: 'InferencePool',
  metadata: { name, namespace: llm },
  spec: { selector: { matchLabels: { app } }, targetPorts: ports.map((number) => ({ number })) },
});
const oldPoolObject = (name: string, app: string, port: number): KubeData => ({
  apiVersion: `${oldGroup}/v1alpha2`,
  kind: 'InferencePool',
  metadata: { name, namespace: llm },
  spec: { selector: { app }, targetPortNumber: port },
});

let world: World;
let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
  world = new World(cluster, parametersOf({ attach: 'inference-pool', selector: null }));
  for (const { kind, metadata, spec, rules } of world.manifests) {
    if (kind === 'Deployment') {
      const { template } = spec as { template: { spec: { containers: { args: string[] }[] } } };
      template.spec.containers[0]?.args.push(
        '--inference-pool=llm/old',
        '--inference-pool=llm/late',
        '--service=llm/named',
      );
    } else if (kind === 'Role' && metadata.namespace === llm) {
      (rules as object[]).push({ apiGroups: [''], resources: ['services'], verbs: ['list', 'watch'] });
    }
  }

  await cluster.kube.apply([
    poolObject('vllm', 'many', eightPorts),
    oldPoolObject('old', 'old', 8000),
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'named', namespace: llm },
      spec: { clusterIP: 'None', selector: { app: 'named' }, ports: [{ name: 'http', port: 80, targetPort: 'api' }] },
    },
  ]);
  await world.apply();
  await world.startReplica();
});
afterAll(async () => world.stop());

async function pool(name: string): Promise<StateBody['pools'][number]> {
  return (await world.active()).pool(`${llm}/${name}`);
}
async function has(name: string, expected: string[]): Promise<void> {
  await until(`${name} has ${expected.join()}`, async () => {
    const endpoints = (await pool(name)).endpoints.map(({ endpoint }) => endpoint).toSorted();
    return JSON.stringify(endpoints) === JSON.stringify(expected.toSorted());
  });
}

it('every port of a pod is an endpoint of its own, over IPv4 and over IPv6, with ids of their own', async () => {
  await cluster.addPod({ name: 'four', ip: '10.244.2.1', labels: { app: 'many' }, ports: eightPorts });
  await cluster.addPod({ name: 'six', ip: 'fd00:10:244::2', labels: { app: 'many' }, ports: eightPorts });
  await has('vllm', [
    ...eightPorts.map((port) => `10.244.2.1:${port}`),
    ...eightPorts.map((port) => `[fd00:10:244::2]:${port}`),
  ]);
  const { endpoints } = await pool('vllm');
  expect(new Set(endpoints.map(({ podId }) => podId)).size).toBe(16);
  expect(endpoints.every(({ ready }) => ready)).toBe(true);
});

it('fewer ports: their endpoints go, the others stay who they are', async () => {
  const before = new Map((await pool('vllm')).endpoints.map(({ endpoint, podId }) => [endpoint, podId]));
  await cluster.kube.apply([poolObject('vllm', 'many', [8000, 8007])]);
  await has('vllm', ['10.244.2.1:8000', '10.244.2.1:8007', '[fd00:10:244::2]:8000', '[fd00:10:244::2]:8007']);
  for (const { endpoint, podId } of (await pool('vllm')).endpoints) expect(podId).toBe(before.get(endpoint));
});

it('another selector: other pods', async () => {
  await cluster.addPod({ name: 'other', ip: '10.244.2.9', labels: { app: 'other' } });
  await cluster.kube.apply([poolObject('vllm', 'other', [8000])]);
  await has('vllm', ['10.244.2.9:8000']);
});

it('an InferencePool of the older group', async () => {
  await cluster.addPod({ name: 'old', ip: '10.244.2.3', labels: { app: 'old' } });
  await has('old', ['10.244.2.3:8000']);
  expect((await pool('old')).object?.apiVersion).toBe(`${oldGroup}/v1alpha2`);
});

it('in both groups: the newer one holds, and the older one again when the newer is gone', async () => {
  await cluster.addPod({ name: 'new', ip: '10.244.2.4', labels: { app: 'new' } });
  await cluster.kube.apply([poolObject('old', 'new', [8000])]);
  await has('old', ['10.244.2.4:8000']);
  expect((await pool('old')).object?.apiVersion).toBe(`${group}/v1`);
  await cluster.kube.remove(poolObject('old', 'new', [8000]));
  await has('old', ['10.244.2.3:8000']);
});

it('a Service whose target port has a name: each pod says which number that is', async () => {
  for (const [n, port] of [8000, 9000].entries()) {
    const name = `named-${n}`;
    await cluster.kube.create({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace: llm, labels: { app: 'named' } },
      spec: {
        nodeName: 'node',
        containers: [{ name: 'engine', image: 'engine', ports: [{ name: 'api', containerPort: port }] }],
      },
    });
    await cluster.setStatus(name, { ip: `10.244.2.${30 + n}`, isReady: true });
  }
  await has('named', ['10.244.2.30:8000', '10.244.2.31:9000']);
});

it('an object that is not there yet: the pool is empty and says why, until it comes; removed, it is empty again', async () => {
  expect(await pool('late')).toMatchObject({ endpoints: [], object: { unusable: 'there is no such object' } });
  await cluster.kube.apply([poolObject('late', 'other', [8000])]);
  await has('late', ['10.244.2.9:8000']);
  await cluster.kube.remove(poolObject('late', 'other', [8000]));
  await has('late', []);
});

it('a kind that is taken out of the cluster and put back: the pool goes and comes with it', async () => {
  const name = `inferencepools.${oldGroup}`;
  const definition = await cluster.kube.get('apiextensions.k8s.io/v1', 'CustomResourceDefinition', '', name);
  const { metadata, spec } = definition;
  await cluster.kube.remove(definition);
  // Its objects go with it.
  await has('old', []);
  const { annotations } = metadata;
  const again = {
    apiVersion: definition.apiVersion,
    kind: definition.kind,
    metadata: { name, annotations: annotations ?? {} },
    spec,
  };
  await until('the kind is gone', async () => {
    await cluster.kube.apply([again]);
    return true;
  });
  await until('its objects can be made again', async () => {
    await cluster.kube.apply([oldPoolObject('old', 'old', 8000)]);
    return true;
  });
  await until('the pool is there again', async () => (await pool('old')).endpoints.length === 1, 30_000);
});
