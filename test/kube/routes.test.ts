// What else the gateway serves is the same before, with and after Warmpath, for both ways of attaching: uploads, answers that begin before the request
// has ended, websockets, gRPC. And when everything is removed, as docs/UNINSTALL.md says, Envoy's configuration is what it was.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KubeData } from './lab/client.ts';
import { Cluster, gatewayName, llm } from './lab/cluster.ts';
import { Others, type Seen } from './lab/others.ts';
import { until } from './lab/process.ts';
import { parametersOf, promptOf, World } from './lab/world.ts';

const plain = 'plain.example';
const expected: Seen = {
  upload: [80 << 20, true],
  duplex: true,
  websocket: 'echo',
  grpc: { status: '0', messages: 3 },
  destination: '10.244.2.1:8000',
};

const inferencePool: KubeData = {
  apiVersion: 'inference.networking.k8s.io/v1',
  kind: 'InferencePool',
  metadata: { name: 'vllm', namespace: llm },
  spec: {
    selector: { matchLabels: { app: 'vllm' } },
    targetPorts: [{ number: 8000 }],
    endpointPickerRef: { name: 'nobody', port: { number: 9002 }, failureMode: 'FailOpen' },
  },
};

/** A route to the pool that was there before: it keeps its endpoint picker, which is absent here and let pass. */
const existing = 'existing.example';
const existingRoute: KubeData = {
  apiVersion: 'gateway.networking.k8s.io/v1',
  kind: 'HTTPRoute',
  metadata: { name: 'existing', namespace: llm },
  spec: {
    parentRefs: [{ name: gatewayName }],
    hostnames: [existing],
    rules: [{ backendRefs: [{ group: 'inference.networking.k8s.io', kind: 'InferencePool', name: 'vllm' }] }],
  },
};

describe.each(['service', 'inference-pool'] as const)('attached by %s', (attach) => {
  let world: World;
  const others = new Others();
  let before: string[];

  /** Envoy's listeners, routes and clusters without what only says when they came. */
  async function configuration(): Promise<string[]> {
    const dump = JSON.parse((await world.cluster.gateway?.configuration()) ?? '{}') as {
      configs: Record<string, unknown>[];
    };
    const parts = Object.fromEntries(dump.configs.map((part) => [String(part['@type']).split('.').at(-1), part]));
    const dropped = ['version_info', 'last_updated', 'error_state', 'warming_state'];
    // Neither the order of keys nor that of the lists says anything.
    const strip = (value: unknown): string =>
      JSON.stringify(value, (_key, inner: unknown) =>
        inner === null || typeof inner !== 'object' || Array.isArray(inner)
          ? inner
          : Object.fromEntries(
              Object.entries(inner)
                .filter(([key]) => !dropped.includes(key))
                .toSorted(([a], [b]) => (a < b ? -1 : 1)),
            ),
      );
    // One text for each listener, route configuration and cluster.
    return ['ListenersConfigDump', 'RoutesConfigDump', 'ClustersConfigDump'].flatMap((name) =>
      Object.values(parts[name] ?? {})
        .filter((value) => Array.isArray(value))
        .flatMap((list) => (list as unknown[]).map(strip).toSorted()),
    );
  }

  /** The same, when nothing has changed in it for two seconds. */
  async function settledConfiguration(): Promise<string[]> {
    let last = await configuration();
    await until(
      'nothing changes any more',
      async () => {
        await sleep(2_000);
        const now = await configuration();
        const isSame = JSON.stringify(now) === JSON.stringify(last);
        last = now;
        return isSame;
      },
      30_000,
    );
    return last;
  }

  beforeAll(async () => {
    const cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
    world = new World(cluster, parametersOf({ attach, ...(attach === 'service' ? {} : { selector: null }) }));
    await cluster.startMesh();
    if (attach === 'inference-pool') await cluster.kube.apply([inferencePool, existingRoute]);
    await world.applyPlainRoute(plain);
    await others.start(cluster);
    await until('the other routes serve', async () => (await others.see()).upload[1], 60_000);
    if (attach === 'inference-pool')
      await until('the pool has a cluster', async () => (await configuration()).join().includes('vllm-ip-'));
  });
  afterAll(async () => {
    others.stop();
    await world.stop();
  });

  it('before', async () => {
    expect(await others.see()).toEqual(expected);
    before = await settledConfiguration();
    expect(before.join()).not.toContain('wasm');
  });

  it('with it: other routes are as before, but for the header that only the filter may set', async () => {
    await world.apply();
    await world.startReplica();
    for (const n of [1, 2, 3]) await world.addEngine(`vllm-${n}`, `10.244.2.${n}`);
    await world.gatewayKnows(3);
    expect(await others.see()).toEqual({ ...expected, destination: '' });
  });

  it("with it: a client's own destination header steers nothing", async () => {
    const home = (await world.ask(promptOf(1))).pod;
    for (const address of ['10.244.2.1:8000', '10.244.2.2:8000', '10.244.2.3:8000']) {
      const headers = { 'x-gateway-destination-endpoint': address };
      expect(await world.ask(promptOf(1), { headers })).toMatchObject({ status: 200, pod: home });
    }
  });

  it.runIf(attach === 'inference-pool')(
    'with it: a route to the same pool that was there before keeps its endpoint picker',
    async () => {
      expect((await world.ask(promptOf(1), { host: existing })).status).toBe(200);
      const routes = (await configuration()).join();
      const picker = 'envoy.filters.http.ext_proc';
      const hosts = routes.split('domains').filter((part) => part.includes(picker));
      expect(hosts.filter((part) => part.includes(existing) && !/disabled[^,]{0,6}true/.test(part))).toHaveLength(1);
    },
  );

  it('with it: requests of the pool that are not LLM calls pass as they are', async () => {
    const { statusCode, text } = await world.get('/v1/models');
    expect(statusCode).toBe(200);
    expect(text).toContain('sim-8b');
  });

  it('removed, as the page says: routes serve, and Envoy is configured as it was', async () => {
    const { kube } = world.cluster;
    const ours = (kinds: string[]): KubeData[] => world.manifests.filter(({ kind }) => kinds.includes(kind));
    for (const kinds of [['WasmPlugin'], ['EnvoyFilter']]) {
      for (const object of ours(kinds)) await kube.remove(object);
    }
    if (attach === 'service') {
      await until('there is no filter', async () => !(await configuration()).join().includes('wasm'));
      expect((await world.ask(promptOf(1))).status).toBe(200);
    }
    for (const object of ours(['Role', 'RoleBinding', 'HTTPRoute', 'Service', 'Namespace'])) await kube.remove(object);
    // No garbage collector runs here: a Service takes its EndpointSlices along.
    await until(
      'Envoy is configured as before',
      async () => {
        const now = await configuration();
        const lost = before.filter((one) => !now.includes(one)).map((one) => `lost ${one}`);
        const left = now.filter((one) => !before.includes(one)).map((one) => `left ${one}`);
        if (lost.length + left.length > 0) throw new Error([...lost, ...left].join('\n'));
        return true;
      },
      30_000,
    );
    expect(await others.see()).toEqual(expected);
    expect((await world.ask(promptOf(1), { host: plain })).status).toBe(200);
    if (attach === 'inference-pool') expect((await world.ask(promptOf(1), { host: existing })).status).toBe(200);
  });
});
