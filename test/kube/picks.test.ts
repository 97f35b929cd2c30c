// From an empty API server to picks by the body, for both ways of attaching: what `warmpath manifests` renders is applied to a real API server, a real
// istiod hands it to a real Envoy, the control plane runs under its own service account, and requests arrive where their prefix is.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Cluster, llm } from './lab/cluster.ts';
import { parametersOf, promptOf, World } from './lab/world.ts';

const inferencePool = {
  apiVersion: 'inference.networking.k8s.io/v1',
  kind: 'InferencePool',
  metadata: { name: 'vllm', namespace: llm },
  spec: {
    selector: { matchLabels: { app: 'vllm' } },
    targetPorts: [{ number: 8000 }],
    endpointPickerRef: { name: 'nobody', port: { number: 9002 }, failureMode: 'FailOpen' },
  },
};

describe.each(['service', 'inference-pool'] as const)('attached by %s', (attach) => {
  let world: World;

  beforeAll(async () => {
    const cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
    world = new World(cluster, parametersOf({ attach, ...(attach === 'service' ? {} : { selector: null }) }));
    await cluster.startMesh();
    if (attach === 'inference-pool') await cluster.kube.apply([inferencePool]);
    await world.apply();
    await Promise.all([world.startReplica(), world.startReplica()]);
    for (const n of [1, 2, 3]) await world.addEngine(`vllm-${n}`, `10.244.2.${n}`);
    await world.gatewayKnows(3);
  });
  afterAll(async () => world.stop());

  it('the manifests pass the strict validation of the API server once more', async () => {
    await expect(world.cluster.kube.apply(world.manifests, { dryRun: true })).resolves.toBeUndefined();
  });

  it('one replica is active, and the Service leads to it', async () => {
    const active = await world.active();
    expect(active.process.isRunning).toBe(true);
    const slices = await world.cluster.kube.list('discovery.k8s.io/v1', 'EndpointSlice', 'warmpath-system');
    expect(slices.map(({ endpoints }) => (endpoints as { addresses: string[] }[]).flatMap((e) => e.addresses))).toEqual(
      [[active.ip]],
    );
  });

  it('requests with one prefix go to one pod, and the prefixes are spread', async () => {
    const before = await world.picks();
    const homes = new Map<number, Set<string>>();
    for (let turn = 0; turn < 5; turn++) {
      for (let group = 0; group < 9; group++) {
        const { status, pod } = await world.ask(promptOf(group), { turn: `turn ${turn}` });
        expect(status).toBe(200);
        homes.set(group, (homes.get(group) ?? new Set()).add(pod));
      }
    }
    // By chance a group of five would stay on one of three pods once in 81 times.
    expect([...homes.values()].filter((pods) => pods.size === 1).length).toBeGreaterThanOrEqual(8);
    expect(new Set([...homes.values()].flatMap((pods) => [...pods])).size).toBe(3);
    expect((await world.picks()) - before).toBe(45);
  });
});
