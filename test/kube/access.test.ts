// What the control plane may do and what it does are the same: the API server's audit log of its service account shows no verb that was refused, and
// every verb that its roles grant is in it. The log is of a whole life: start, election, take-over, a changed pool, a wrong annotation.

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { AuditEvent } from './lab/apiserver.ts';
import type { KubeData } from './lab/client.ts';
import { Cluster, llm } from './lab/cluster.ts';
import { until } from './lab/process.ts';
import { parametersOf, World } from './lab/world.ts';

interface RoleObject extends KubeData {
  rules: { apiGroups: string[]; resources: string[]; resourceNames?: string[]; verbs: string[] }[];
}

const account = 'system:serviceaccount:warmpath-system:warmpath';
const poolObjects: Record<'service' | 'inference-pool', KubeData[]> = {
  service: [],
  'inference-pool': [
    {
      apiVersion: 'inference.networking.k8s.io/v1',
      kind: 'InferencePool',
      metadata: { name: 'vllm', namespace: llm },
      spec: { selector: { matchLabels: { app: 'vllm' } }, targetPorts: [{ number: 8000 }] },
    },
  ],
};

let world: World;
afterEach(async () => world.stop());

/** A life of two replicas, without a mesh: nobody has to sync for this. */
async function live(attach: 'service' | 'inference-pool', change: (role: RoleObject) => void): Promise<AuditEvent[]> {
  const cluster = await Cluster.start(mkdtempSync(join(tmpdir(), 'warmpath-kube-')));
  world = new World(cluster, parametersOf({ attach, ...(attach === 'service' ? {} : { selector: null }) }));
  for (const object of world.manifests) if (object.kind === 'Role') change(object as RoleObject);
  await cluster.kube.apply(poolObjects[attach]);
  await world.apply();
  await Promise.all([world.startReplica(), world.startReplica()]);
  await cluster.addPod({
    name: 'vllm-1',
    ip: '10.244.2.1',
    labels: { app: 'vllm' },
    annotations: { 'warmpath.dev/weight': 'heavy' },
  });
  await until('the pod is known', async () => (await world.pool()).endpoints.length === 1);
  const first = await world.active();
  await first.process.kill();
  await world.active();
  // The Event is written by whoever is active.
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  return cluster.api.audit().filter(({ user }) => user.username === account);
}

const refused = (events: AuditEvent[]): string[] =>
  events
    .filter(({ responseStatus }) => responseStatus?.code === 403)
    .map(({ verb, objectRef }) => `${verb} ${objectRef?.resource}`);

/** Each verb on each resource that a role grants, as the audit log would show it. */
function granted(): { text: string; isUsedBy: (event: AuditEvent) => boolean }[] {
  return world.manifests
    .filter((object): object is RoleObject => object.kind === 'Role')
    .flatMap(({ metadata, rules }) =>
      rules.flatMap(({ apiGroups, resources, resourceNames, verbs }) =>
        apiGroups.flatMap((group) =>
          resources.flatMap((resource) =>
            verbs.map((verb) => ({
              text: `${metadata.namespace}: ${verb} ${resource}.${group}${resourceNames ? ` ${resourceNames.join()}` : ''}`,
              isUsedBy: ({ verb: used, objectRef, responseStatus }: AuditEvent) =>
                used === verb &&
                objectRef?.namespace === metadata.namespace &&
                objectRef?.resource === resource &&
                (objectRef?.apiGroup ?? '') === group &&
                (resourceNames === undefined || resourceNames.includes(objectRef?.name ?? '')) &&
                (responseStatus?.code ?? 500) !== 403,
            })),
          ),
        ),
      ),
    );
}

describe.each(['service', 'inference-pool'] as const)('attached by %s', (attach) => {
  it('nothing is asked for that is not granted, and nothing is granted that is not used', async () => {
    const events = await live(attach, () => undefined);
    expect(refused(events)).toEqual([]);
    expect(
      granted()
        .filter(({ isUsedBy }) => !events.some(isUsedBy))
        .map(({ text }) => text),
    ).toEqual([]);
    expect(granted().length).toBeGreaterThan(10);
  });
});

it('a verb that is missing shows as refused, and one too many as unused', async () => {
  const events = await live('service', (role) => {
    role.rules = role.rules.filter(({ resources }) => !resources.includes('events'));
    if (role.metadata.namespace === llm) role.rules.push({ apiGroups: [''], resources: ['pods'], verbs: ['delete'] });
  });
  expect(refused(events)).toContain('create events');
  expect(
    granted()
      .filter(({ isUsedBy }) => !events.some(isUsedBy))
      .map(({ text }) => text),
  ).toEqual([`${llm}: delete pods.`]);
});
