// What is built on the lists: the election of a replica, the pools' secret, the active replica's endpoint, and a pool with its annotations, over an API
// server that refuses and breaks at will.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { settingsOf } from '../../control-plane/annotations.ts';
import type { PoolSettings } from '../../control-plane/annotations.ts';
import { readConfig } from '../../control-plane/config.ts';
import type { EndpointConfig, ReplicaConfig } from '../../control-plane/config.ts';
import { ActiveSlice } from '../../control-plane/kube/active-slice.ts';
import { FaultEvents } from '../../control-plane/kube/fault-events.ts';
import { Lease } from '../../control-plane/kube/lease.ts';
import { keepAnnotations, readKept } from '../../control-plane/kube/pool-secret.ts';
import { PoolSource } from '../../control-plane/kube/pool-source.ts';
import type { ObjectFaults } from '../../control-plane/kube/pool-source.ts';
import { silentLog } from '../../control-plane/log.ts';
import { FakeApi } from './fake-api.ts';
import { until } from './fakes.ts';

const LEASES = '/apis/coordination.k8s.io/v1/namespaces/sys/leases';
const SLICES = '/apis/discovery.k8s.io/v1/namespaces/sys/endpointslices';
const SECRETS = '/api/v1/namespaces/sys/secrets';
const EVENTS = '/api/v1/namespaces/llm/events';
const PODS = '/api/v1/namespaces/llm/pods';
const SERVICES = '/api/v1/namespaces/llm/services';

const replica = (podName: string): ReplicaConfig => ({
  name: 'warmpath',
  namespace: 'sys',
  podName,
  podUid: `uid-${podName}`,
  podIp: '10.0.0.9',
  leaseSeconds: 2,
});

let fake: FakeApi;
const closing: (() => Promise<void> | void)[] = [];
beforeEach(async () => {
  fake = await new FakeApi().start();
});
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
  await fake.close();
});

describe('the Lease', () => {
  function stand(podName: string): { lease: Lease; story: string[] } {
    const story: string[] = [];
    const events = { activated: () => story.push('active'), steppedDown: (by: string) => story.push(`down for ${by}`) };
    const lease = new Lease(fake.api(500), replica(podName), events, silentLog);
    closing.push(async () => lease.close());
    lease.start();
    return { lease, story };
  }
  const holder = (): unknown => (fake.get(LEASES, 'warmpath')?.['spec'] as { holderIdentity?: string })?.holderIdentity;

  test('one of two gets it; let go, the other has it soon', async () => {
    const a = stand('a');
    await until(() => a.lease.isActive, 'a is active');
    const b = stand('b');
    await until(() => b.lease.holder === 'a', 'b has seen a');
    expect(b.story).toEqual([]);
    await a.lease.close();
    const startedMs = Date.now();
    await until(() => b.lease.isActive, 'b is active');
    expect(Date.now() - startedMs).toBeLessThan(1_500);
    expect(holder()).toBe('b');
  });

  test('not renewed for its whole time by the own clock: taken over, however its times look', async () => {
    const spec = { holderIdentity: 'gone', leaseDurationSeconds: 1, renewTime: '2099-01-01T00:00:00.000000Z' };
    fake.put(LEASES, { metadata: { name: 'warmpath' }, spec });
    const { lease } = stand('a');
    await until(() => lease.isActive, 'a is active');
    expect(holder()).toBe('a');
  });

  test('renewed by another one: never taken', async () => {
    const spec = { holderIdentity: 'other', leaseDurationSeconds: 1 };
    fake.put(LEASES, { metadata: { name: 'warmpath' }, spec });
    const renewal = setInterval(() => fake.put(LEASES, { metadata: { name: 'warmpath' }, spec }), 200);
    closing.push(() => clearInterval(renewal));
    const { lease } = stand('a');
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    expect(lease.isActive).toBe(false);
  });

  test('the API server away: the active one stays so; another name in the Lease: it steps down', async () => {
    const { lease, story } = stand('a');
    await until(() => lease.isActive, 'a is active');
    fake.refusals.push({ path: /leases/, status: 503, times: 6 });
    await until(() => fake.refusals.every(({ times }) => times === 0), 'some refusals');
    expect(story).toEqual(['active']);
    fake.put(LEASES, { metadata: { name: 'warmpath' }, spec: { holderIdentity: 'b', leaseDurationSeconds: 60 } });
    await until(() => !lease.isActive, 'a has stepped down');
    expect(story).toEqual(['active', 'down for b']);
  });

  test('removed by somebody: made again', async () => {
    const { lease } = stand('a');
    await until(() => lease.isActive, 'a is active');
    fake.remove(LEASES, 'warmpath');
    await until(() => holder() === 'a', 'the Lease is there again');
    expect(lease.isActive).toBe(true);
  });
});

test('the secret is made once, and both replicas read the same, however often they are refused', async () => {
  fake.refusals.push({ path: /secrets/, status: 503, times: 2 });
  const { signal } = new AbortController();
  const both = await Promise.all(
    ['a', 'b'].map(async (name) => readKept(fake.api(), replica(name), silentLog, signal)),
  );
  expect(both[0]!.secret).toHaveLength(32);
  expect(both[0]!.annotations).toEqual({});
  expect(both[0]).toEqual(both[1]);
  expect(fake.list(SECRETS)).toHaveLength(1);
});

test('annotations in force are kept beside the secret, and read by the next one; what is no such thing is nothing', async () => {
  const { signal } = new AbortController();
  const read = async (): ReturnType<typeof readKept> => readKept(fake.api(), replica('a'), silentLog, signal);
  const { secret } = await read();
  const annotations = { 'llm/vllm': { 'warmpath.dev/mode': 'shadow' } };
  await keepAnnotations(fake.api(), replica('a'), annotations);
  expect(await read()).toEqual({ secret, annotations });
  const odd = '{"llm/vllm":{"warmpath.dev/weights":7,"warmpath.dev/mode":null},"x":3}';
  for (const text of ['{"a', '7', 'null', odd]) {
    const data = { secret: secret.toString('base64'), annotations: Buffer.from(text).toString('base64') };
    fake.put(SECRETS, { metadata: { name: 'warmpath-pools' }, data });
    const kept = await read();
    expect(Object.values(kept.annotations).flatMap((texts) => Object.keys(texts))).toEqual([]);
  }
});

test("the active replica's endpoint is made, written again by the next one, and named for its pod", async () => {
  const written = (): { endpoints: { targetRef: { name: string } }[] } | undefined =>
    fake.get(SLICES, 'warmpath-active') as never;
  for (const name of ['a', 'b']) {
    const slice = new ActiveSlice(fake.api(), replica(name), 8090, silentLog);
    closing.push(() => slice.letGo());
    slice.hold();
    await until(() => written()?.endpoints[0]?.targetRef.name === name, `${name} is the endpoint`);
    slice.letGo();
  }
  expect(fake.list(SLICES)).toHaveLength(1);
  expect(written()).toMatchObject({ metadata: { ownerReferences: [{ name: 'b', uid: 'uid-b' }] } });
});

test('an Event is written once for a fault, again when it came back, and in spite of refusals', async () => {
  fake.refusals.push({ path: /events/, status: 503, times: 1 });
  const events = new FaultEvents(fake.api(), replica('a'), silentLog);
  closing.push(() => events.close());
  const fault = { key: 'warmpath.dev/mode', value: 'x', fault: 'bad-value', message: 'x is not a mode' } as const;
  const object = { apiVersion: 'v1', kind: 'Service', namespace: 'llm', name: 'vllm', uid: 'u' };
  const tell = (isThere: boolean): void => events.tell([{ ...object, faults: isThere ? [fault] : [] }]);
  for (let n = 0; n < 5; n++) tell(true);
  await until(() => fake.list(EVENTS).length === 1, 'the Event');
  tell(true);
  tell(false);
  tell(true);
  await until(() => fake.list(EVENTS).length === 2, 'the second Event');
  expect(fake.list(EVENTS)[0]).toMatchObject({ type: 'Warning', involvedObject: { kind: 'Service', uid: 'u' } });
});

describe('a pool', () => {
  const labels = { app: 'vllm' };
  const service = (annotations: Record<string, string> = {}) => ({
    metadata: { name: 'vllm', namespace: 'llm', uid: 'service', annotations },
    spec: { selector: labels, ports: [{ port: 80, targetPort: 8000 }] },
  });
  const pod = (
    name: string,
    ip: string,
    more: { ready?: string; going?: boolean; restarts?: number; uid?: string } = {},
  ) => ({
    metadata: {
      name,
      namespace: 'llm',
      uid: more.uid ?? name,
      labels,
      annotations: {},
      ...(more.going === true ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}),
    },
    spec: { containers: [{ name: 'engine', ports: [{ containerPort: 8000 }] }, { name: 'sidecar' }] },
    status: {
      podIP: ip,
      conditions: [{ type: 'Ready', status: more.ready ?? 'True' }],
      containerStatuses: [
        { name: 'engine', restartCount: more.restarts ?? 0 },
        { name: 'sidecar', restartCount: 99 },
      ],
    },
  });
  let endpoints: EndpointConfig[] | undefined;
  let settings: PoolSettings | undefined;
  let faults: ObjectFaults[];

  function follow(lastGood: Record<string, string> = {}): PoolSource {
    const [config] = readConfig({ pools: [{ name: 'llm/vllm', endpoints: [] }] }).pools;
    const source = new PoolSource(
      fake.api(),
      { kind: 'Service', namespace: 'llm', name: 'vllm' },
      settingsOf(config as PoolSettings),
      lastGood,
      {
        endpoints: (list) => (endpoints = list),
        settings: (now) => (settings = now),
        faults: (list) => (faults = list),
        failed: () => undefined,
      },
      silentLog,
    );
    closing.push(async () => source.close());
    source.start();
    return source;
  }
  const shown = (): (string | boolean | number)[][] | undefined =>
    endpoints?.map(({ address, ready, life }) => [address.text, ready, life?.restarts ?? -1]);
  beforeEach(() => {
    endpoints = undefined;
    settings = undefined;
    faults = [];
  });

  test('a wrong annotation at the start is what it was before the start, and one that is gone is not', async () => {
    fake.put(SERVICES, service({ 'warmpath.dev/mode': 'shadw' }));
    const source = follow({ 'warmpath.dev/mode': 'shadow', 'warmpath.dev/policy': 'round-robin' });
    await source.synced;
    expect(settings).toMatchObject({ mode: 'shadow', policy: 'prefill-cost' });
    expect(source.state().annotations.find(({ key }) => key === 'warmpath.dev/mode')).toMatchObject({
      inForce: 'shadow',
      source: 'last-good',
    });
  });

  test('what was good last outlasts a start before the kind is served', async () => {
    fake.absent.add(SERVICES);
    const source = follow({ 'warmpath.dev/mode': 'shadow' });
    await source.synced;
    fake.absent.delete(SERVICES);
    fake.put(SERVICES, service({ 'warmpath.dev/mode': 'shadw' }));
    await until(() => source.state().apiVersion !== null, 'the object');
    expect(settings).toMatchObject({ mode: 'shadow' });
  });

  test('readiness, deletion and restarts of the own container are seen; pods without an address are left out', async () => {
    fake.put(SERVICES, service());
    fake.put(PODS, pod('a', '10.0.0.1'));
    fake.put(PODS, pod('b', '10.0.0.2', { ready: 'False' }));
    fake.put(PODS, pod('c', '10.0.0.3', { going: true, restarts: 4 }));
    fake.put(PODS, pod('d', ''));
    const source = follow();
    await source.synced;
    expect(shown()).toEqual([
      ['10.0.0.1:8000', true, 0],
      ['10.0.0.2:8000', false, 0],
      ['10.0.0.3:8000', false, 4],
    ]);
    expect(source.state()).toMatchObject({ apiVersion: 'v1', unusable: null, selector: 'app=vllm', ports: [8000] });
  });

  test('two pods with one address for a while: the one that is not going counts', async () => {
    fake.put(SERVICES, service());
    fake.put(PODS, pod('new', '10.0.0.1', { ready: 'False' }));
    fake.put(PODS, pod('old', '10.0.0.1', { going: true }));
    await follow().synced;
    expect(endpoints).toHaveLength(1);
    expect(endpoints?.[0]?.life?.uid).toBe('new');
  });

  test('annotations take effect, and a wrong one is told of while the last good one stays', async () => {
    fake.put(SERVICES, service({ 'warmpath.dev/policy': 'round-robin' }));
    const source = follow();
    await source.synced;
    expect(settings?.policy).toBe('round-robin');
    fake.put(SERVICES, service({ 'warmpath.dev/policy': 'best' }));
    await until(() => faults.some((object) => object.faults.length > 0), 'the fault');
    expect(settings?.policy).toBe('round-robin');
    expect(faults[0]).toMatchObject({ kind: 'Service', uid: 'service', faults: [{ fault: 'bad-value' }] });
  });

  test('an object that is removed leaves no endpoints, and one without a selector makes none', async () => {
    fake.put(SERVICES, service());
    fake.put(PODS, pod('a', '10.0.0.1'));
    const source = follow();
    await source.synced;
    fake.put(SERVICES, { ...service(), spec: { selector: {}, ports: [{ port: 80, targetPort: 8000 }] } });
    await until(() => endpoints?.length === 0, 'no endpoints');
    expect(source.state().unusable).toBe('it has no selector');
    fake.put(SERVICES, service());
    await until(() => endpoints?.length === 1, 'the endpoint again');
    fake.remove(SERVICES, 'vllm');
    await until(() => endpoints?.length === 0, 'no endpoints');
    expect(source.state().unusable).toBe('there is no such object');
  });
});
