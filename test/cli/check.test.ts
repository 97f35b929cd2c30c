// `warmpath check` against an API server of a few lines that has what istio/ renders, as it should be or with one thing wrong. test/kube asks a real
// API server.

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { assess, type Verdict } from '../../cli/check/findings.ts';
import { needed, readSnapshot, type Found, type Target } from '../../cli/check/snapshot.ts';
import { attachModes, defaults, type AttachMode } from '../../cli/manifests/parameters.ts';
import { builtFiles } from '../../cli/manifests/tree.ts';
import { KubeApi } from '../../control-plane/kube/api.ts';

const root = join(import.meta.dirname, '..', '..');
const scratch = mkdtempSync(join(tmpdir(), 'warmpath-check-'));
const kubeconfig = join(scratch, 'config');

/** Objects by the path of their list, then by name. */
let objects: Map<string, Map<string, Found>>;
let forbidden: string[] = [];
let groups: string[] = [];
let server: Server;

const plurals: Record<string, string> = {
  NetworkPolicy: 'networkpolicies',
  AuthorizationPolicy: 'authorizationpolicies',
  GatewayClass: 'gatewayclasses',
};
const pathOf = ({ apiVersion, kind, metadata }: Found): string => {
  const namespace = metadata.namespace === undefined ? '' : `/namespaces/${metadata.namespace}`;
  const plural = plurals[kind] ?? `${kind.toLowerCase()}s`;
  return `${apiVersion === 'v1' ? '/api' : '/apis'}/${apiVersion}${namespace}/${plural}`;
};
const add = (object: object): void => {
  const found = structuredClone(object) as Found;
  const path = pathOf(found);
  objects.set(path, (objects.get(path) ?? new Map<string, Found>()).set(found.metadata.name, found));
};
const find = (kind: string, name: string): Found => {
  for (const list of objects.values()) {
    const found = list.get(name);
    if (found?.kind === kind) return found;
  }
  throw new Error(`there is no ${kind} ${name}`);
};
const remove = (kind: string, name: string): void => void objects.get(pathOf(find(kind, name)))?.delete(name);
const specOf = (kind: string, name: string): Record<string, unknown> =>
  find(kind, name).spec as Record<string, unknown>;

const pod = (namespace: string, name: string, labels: object, container: string, isReady = true): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace, labels },
  spec: { containers: [{ name: container }] },
  status: { conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False' }] },
});

/** A cluster before anything of ours is in it. */
function bare(): void {
  objects = new Map();
  forbidden = [];
  groups = [...needed];
  const gatewayApi = 'gateway.networking.k8s.io/v1';
  const controllerName = 'istio.io/gateway-controller';
  add({ apiVersion: gatewayApi, kind: 'GatewayClass', metadata: { name: 'istio' }, spec: { controllerName } });
  add({
    apiVersion: gatewayApi,
    kind: 'Gateway',
    metadata: { name: 'inference-gateway', namespace: 'llm' },
    spec: { gatewayClassName: 'istio', listeners: [{ name: 'http', port: 80, protocol: 'HTTP' }] },
    status: { conditions: [{ type: 'Programmed', status: 'True' }] },
  });
  for (const i of [1, 2]) add(pod('llm', `vllm-${i}`, { app: 'vllm' }, 'vllm'));
}

/** The same with Warmpath in it, and everything running. */
function installed(attach: AttachMode): void {
  bare();
  const files = builtFiles({ ...defaults, attach, moduleSha256: 'a'.repeat(64) });
  for (const object of files.flatMap((file) => file.objects)) add(object);
  if (attach === 'inference-pool')
    add({
      apiVersion: 'inference.networking.k8s.io/v1',
      kind: 'InferencePool',
      metadata: { name: 'vllm', namespace: 'llm' },
      spec: { selector: { matchLabels: { app: 'vllm' } }, targetPorts: [{ number: 8000 }] },
    });
  find('Deployment', 'warmpath').status = { readyReplicas: 2 };
  find('HTTPRoute', 'vllm').status = { parents: [{ conditions: [{ type: 'Accepted', status: 'True' }] }] };
  const namespace = 'warmpath-system';
  const renewTime = new Date().toISOString();
  add({
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name: 'warmpath', namespace },
    spec: { holderIdentity: 'warmpath-a', renewTime },
  });
  add({ apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', metadata: { name: 'warmpath-active', namespace } });
  add(pod(namespace, 'warmpath-a', {}, 'istio-proxy'));
}

beforeAll(async () => {
  server = createServer((request, response) => {
    const path = new URL(request.url ?? '', 'http://x').pathname;
    const [, folder = '', name = ''] = /^(.*)\/([^/]+)$/.exec(path) ?? [];
    const answer = (status: number, body: object): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    if (forbidden.some((part) => path.includes(part))) return answer(403, { message: 'forbidden' });
    if (path.startsWith('/apis/') && path.split('/').length === 4)
      return groups.includes(path.slice('/apis/'.length)) ? answer(200, {}) : answer(404, {});
    const one = objects.get(folder)?.get(name);
    if (one !== undefined) return answer(200, one);
    const list = objects.get(path);
    return list === undefined ? answer(404, {}) : answer(200, { items: [...list.values()] });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'c',
    clusters: [{ name: 'c', cluster: { server: url, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'u', user: { token: 't' } }],
    contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
  };
  writeFileSync(kubeconfig, JSON.stringify(config));
});
afterAll(() => {
  server.close();
  rmSync(scratch, { recursive: true, force: true });
});

const target: Target = {
  gateway: defaults.gateway,
  pool: defaults.pool,
  route: 'vllm',
  name: 'warmpath',
  systemNamespace: 'warmpath-system',
};
interface Result {
  verdict: Verdict;
  /** What needs something done, and warnings, as one text a finding. */
  complaints: string[];
}
async function check(): Promise<Result> {
  const verdict = assess(await readSnapshot(KubeApi.load(kubeconfig), target), target);
  const complaints = verdict.findings
    .filter(({ status }) => status !== 'ok')
    .map(({ status, what, message }) => `${status} ${what}: ${message}`);
  return { verdict, complaints };
}

/** The command itself. */
const run = (...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> =>
  new Promise((resolve) => {
    const given = ['--gateway', 'llm/inference-gateway', '--pool', 'llm/vllm', '--kubeconfig', kubeconfig];
    execFile(
      process.execPath,
      ['images/start.mjs', 'check', ...given, ...args],
      { cwd: root },
      (error, stdout, stderr) => resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr }),
    );
  });

describe.each(attachModes)('with everything as it should be, attached by %s', (attach) => {
  it('has nothing to say against it', async () => {
    installed(attach);
    const { verdict, complaints } = await check();
    expect(complaints).toEqual([]);
    expect(verdict.isInstalled).toBe(true);
    expect(verdict.fallback).toContain(attach === 'service' ? 'by least request' : 'by round robin');
    const patches = verdict.findings.filter(({ what }) => what.startsWith('EnvoyFilter'));
    expect(patches.map(({ message }) => message)).toEqual(patches.map(() => 'is as this version has it'));
    expect(patches).toHaveLength(attach === 'service' ? 4 : 6);
  });
});

describe('before installing', () => {
  beforeEach(bare);

  it('says what it would meet', async () => {
    add({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'vllm', namespace: 'llm', annotations: { 'warmpath.dev/mode': 'on' } },
      spec: { selector: { app: 'vllm' }, ports: [{ port: 8000 }] },
    });
    const { verdict, complaints } = await check();
    expect([verdict.isInstalled, complaints]).toEqual([
      false,
      [expect.stringContaining('"on" is not one of off, shadow, active')],
    ]);
  });

  it('misses Istio, the Gateway, the pool', async () => {
    objects.clear();
    groups = ['gateway.networking.k8s.io/v1'];
    const { complaints } = await check();
    expect(complaints).toEqual([
      expect.stringContaining('missing extensions.istio.io/v1alpha1'),
      expect.stringContaining('missing networking.istio.io/v1alpha3'),
      expect.stringContaining('missing security.istio.io/v1'),
      'missing Gateway llm/inference-gateway: there is no such Gateway',
      'missing InferencePool llm/vllm: there is no such InferencePool',
    ]);
  });
});

describe('with one thing wrong', () => {
  beforeEach(() => installed('service'));

  const cases: [string, () => void, string][] = [
    ['a patch is gone', () => remove('EnvoyFilter', 'warmpath-hold'), 'missing EnvoyFilter llm/warmpath-hold'],
    [
      'a patch is changed',
      () => (specOf('EnvoyFilter', 'warmpath-steer')['priority'] = 1),
      'warning EnvoyFilter llm/warmpath-steer: differs',
    ],
    ['the filter is gone', () => remove('WasmPlugin', 'warmpath-vllm'), 'missing WasmPlugin llm/warmpath-vllm'],
    [
      'the filter has no digest',
      () => (specOf('WasmPlugin', 'warmpath-vllm')['sha256'] = ''),
      'wrong WasmPlugin llm/warmpath-vllm: it has no digest',
    ],
    [
      'the filter fails closed',
      () => (specOf('WasmPlugin', 'warmpath-vllm')['failStrategy'] = 'FAIL_CLOSE'),
      'answer 403 to everything',
    ],
    [
      'the filter is for another gateway',
      () => (specOf('WasmPlugin', 'warmpath-vllm')['targetRefs'] = [{ name: 'other' }]),
      'not for the Gateway',
    ],
    ['the route is gone', () => remove('HTTPRoute', 'vllm'), 'missing HTTPRoute llm/vllm'],
    [
      "the route's rules are in another order",
      () => (specOf('HTTPRoute', 'vllm')['rules'] as object[]).reverse(),
      'its first rule, whose requests are held',
    ],
    [
      'the control plane is gone',
      () => remove('Deployment', 'warmpath'),
      'missing Deployment warmpath-system/warmpath',
    ],
    [
      'a replica is not ready',
      () => (find('Deployment', 'warmpath').status = { readyReplicas: 1 }),
      'warning Deployment warmpath-system/warmpath: 1 of 2',
    ],
    [
      'nobody is active',
      () => (specOf('Lease', 'warmpath')['holderIdentity'] = ''),
      'wrong Lease warmpath-system/warmpath: no replica is active',
    ],
    [
      'the active one is long gone',
      () => (specOf('Lease', 'warmpath')['renewTime'] = '2020-01-01T00:00:00Z'),
      'has not renewed it lately',
    ],
    ['the Service leads nowhere', () => remove('EndpointSlice', 'warmpath-active'), 'it leads nowhere'],
    ['nothing guards the sync port', () => remove('AuthorizationPolicy', 'warmpath'), 'warning who may sync: neither'],
    [
      'a token is shown that nobody wants',
      () => (specOf('WasmPlugin', 'warmpath-vllm')['vmConfig'] = { env: [{ name: 'WARMPATH_SYNC_TOKEN' }] }),
      'wrong who may sync',
    ],
    ['no pod is ready', () => [1, 2].forEach((i) => (find('Pod', `vllm-${i}`).status = {})), 'none of 2 pods'],
    [
      "a pod's annotation is wrong",
      () => (find('Pod', 'vllm-1').metadata.annotations = { 'warmpath.dev/weight': '0' }),
      'wrong Pod llm/vllm-1',
    ],
    [
      'the pool selects nothing',
      () => delete specOf('Service', 'vllm')['selector'],
      'wrong Service llm/vllm: it selects no pods',
    ],
    [
      'the gateway is of another kind',
      () => (specOf('GatewayClass', 'istio')['controllerName'] = 'x.example/y'),
      'belongs to x.example/y, not to Istio',
    ],
    [
      'a DestinationRule that Envoy refuses',
      () =>
        add({
          apiVersion: 'networking.istio.io/v1',
          kind: 'DestinationRule',
          metadata: { name: 'd', namespace: 'llm' },
          spec: { host: 'vllm.llm.svc.cluster.local', trafficPolicy: { loadBalancer: { simple: 'PASSTHROUGH' } } },
        }),
      'wrong DestinationRule llm/d: PASSTHROUGH',
    ],
    ['something may not be read', () => (forbidden = ['/leases/']), 'warning access: may not be read'],
  ];
  it.each(cases)('%s', async (_name, change, complaint) => {
    change();
    const { complaints } = await check();
    expect(complaints).toContainEqual(expect.stringContaining(complaint));
  });
});

describe('the command', () => {
  it('ends with 0 when all is well, with warnings too', async () => {
    installed('service');
    const { code, stdout } = await run('--json');
    expect([code, (JSON.parse(stdout) as Verdict).isInstalled]).toEqual([0, true]);
    specOf('EnvoyFilter', 'warmpath-steer')['priority'] = 1;
    const warned = await run();
    expect([warned.code, warned.stdout]).toEqual([0, expect.stringMatching(/^Warmpath is installed\n.* {2}warning /s)]);
  });

  it('ends with 1 when something is missing, or nobody answers', async () => {
    bare();
    const { code, stdout, stderr } = await run();
    expect([code, stdout]).toEqual([1, expect.stringContaining('Warmpath is not installed')]);
    expect(stderr).toContain('need something done');
    const nobody = await run('--kubeconfig', join(scratch, 'absent'));
    expect([nobody.code, nobody.stderr]).toEqual([1, expect.stringContaining('cannot be asked')]);
  });
});
