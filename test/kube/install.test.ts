// The documents' own commands on a real API server: docs/INSTALL.md puts everything in, `warmpath check` says so, docs/UNINSTALL.md takes all of it out, and
// the cluster has what it had before. Only what names a registry is put in place of what people have.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Verdict } from '../../cli/check/findings.ts';
import { commandsOf } from '../istio/commands.ts';
import type { KubeData } from './lab/client.ts';
import { Cluster, gatewayName, llm } from './lab/cluster.ts';
import { writeKubeconfig } from './lab/istiod.ts';

const root = join(import.meta.dirname, '..', '..');
const folder = mkdtempSync(join(tmpdir(), 'warmpath-install-'));
const file = join(folder, 'warmpath.yaml');
let cluster: Cluster;
let kubeconfig: string;

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}
/** Runs a line of a document as it stands there; npx is this checkout's command, without its set-up. */
function sh(line: string): Ended {
  const own = line
    .replace(/^npx warmpath/, `${process.execPath} images/start.mjs`)
    .replaceAll('warmpath.yaml', file)
    .replace('MANIFEST_SHA256', 'a'.repeat(64));
  const { status, stdout, stderr } = spawnSync('sh', ['-c', own], {
    cwd: root,
    encoding: 'utf8',
    env: { ...process.env, KUBECONFIG: kubeconfig },
  });
  return { code: status, stdout, stderr };
}
const good = (line: string): Ended => {
  const ended = sh(line);
  expect([line, ended.code, ended.stderr]).toEqual([line, 0, expect.any(String)]);
  return ended;
};

/** Everything in the two namespaces that could be ours. */
function present(): string[] {
  const kinds =
    'wasmplugin,envoyfilter,httproute,service,configmap,role,rolebinding,deployment,lease,secret,endpointslice';
  const { stdout } = good(`kubectl get ${kinds},authorizationpolicy,networkpolicy,poddisruptionbudget -A -o name`);
  return stdout
    .split('\n')
    .filter((name) => name !== '')
    .toSorted();
}

const check = (): { verdict: Verdict; code: number | null } => {
  const { code, stdout } = sh(`npx warmpath check --gateway ${llm}/${gatewayName} --pool ${llm}/vllm --json`);
  return { verdict: JSON.parse(stdout) as Verdict, code };
};

beforeAll(async () => {
  cluster = await Cluster.start(join(folder, 'cluster'));
  kubeconfig = writeKubeconfig(join(folder, 'kubeconfig'), cluster.api, 'admin-token-of-the-lab');
  await cluster.kube.apply([
    {
      apiVersion: 'gateway.networking.k8s.io/v1',
      kind: 'GatewayClass',
      metadata: { name: 'istio' },
      spec: { controllerName: 'istio.io/gateway-controller' },
    },
    {
      apiVersion: 'gateway.networking.k8s.io/v1',
      kind: 'Gateway',
      metadata: { name: gatewayName, namespace: llm },
      spec: { gatewayClassName: 'istio', listeners: [{ name: 'http', port: 80, protocol: 'HTTP' }] },
    },
  ]);
  await cluster.addPod({ name: 'vllm-1', ip: '10.244.2.1', labels: { app: 'vllm' } });
});
afterAll(async () => cluster.stop());

const install = commandsOf('docs/INSTALL.md');
const printing = install.filter((line) => line.startsWith('npx warmpath manifests'));
const applying = install.filter((line) => line.startsWith('kubectl apply'));

const hasKubectl = spawnSync('kubectl', ['version', '--client']).status === 0;

describe.skipIf(!hasKubectl).each([
  ['service', 0],
  ['inference-pool', 1],
] as const)('as docs/INSTALL.md says, attached by %s', (attach, at) => {
  let before: string[];

  it('what is missing before is named', () => {
    before = present();
    const { verdict, code } = check();
    expect([verdict.isInstalled, code]).toEqual([false, 1]);
    expect(verdict.findings.filter(({ status }) => status !== 'ok').map(({ what }) => what)).toEqual([
      `InferencePool ${llm}/vllm`,
    ]);
  });

  it('every command ends well, the strict dry run among them', async () => {
    if (attach === 'inference-pool')
      await cluster.kube.apply([
        {
          apiVersion: 'inference.networking.k8s.io/v1',
          kind: 'InferencePool',
          metadata: { name: 'vllm', namespace: llm },
          spec: {
            selector: { matchLabels: { app: 'vllm' } },
            targetPorts: [{ number: 8000 }],
            endpointPickerRef: { name: 'nobody', port: { number: 9002 } },
          },
        },
      ]);
    good(printing[at]!);
    expect(applying).toHaveLength(3);
    for (const line of applying) good(line);
    expect(present().length).toBeGreaterThan(before.length + 10);
  });

  it('a field that no API knows is found by the dry run', () => {
    const wrong = readFileSync(file, 'utf8').replace('failStrategy:', 'failStrategie:');
    const other = join(folder, 'wrong.yaml');
    writeFileSync(other, wrong);
    const line = applying.find((one) => one.includes('--dry-run'))!.replace('warmpath.yaml', other);
    expect(sh(line)).toMatchObject({ code: 1, stderr: expect.stringContaining('failStrategie') });
  });

  it('afterwards only what nobody runs here is missing: the replicas of the control plane', () => {
    const { verdict } = check();
    expect(verdict.isInstalled).toBe(true);
    const bad = verdict.findings.filter(({ status }) => status === 'wrong' || status === 'missing');
    expect(bad.map(({ what }) => what)).toEqual([
      'Deployment warmpath-system/warmpath',
      'Lease warmpath-system/warmpath',
      'Service warmpath-system/warmpath',
    ]);
    const patches = verdict.findings.filter(({ what }) => what.startsWith('EnvoyFilter'));
    expect(patches.map(({ message }) => message)).toEqual(patches.map(() => 'is as this version has it'));
  });

  it('docs/UNINSTALL.md takes all of it out', async () => {
    // A namespace ends by a controller, which is not here: what is in it is removed as that would.
    for (const line of commandsOf('docs/UNINSTALL.md').filter((one) => !one.includes(' label ')))
      good(line.includes('delete namespace') ? `${line} --wait=false` : line);
    const namespace = await cluster.kube.request<KubeData>('GET', '/api/v1/namespaces/warmpath-system');
    expect(namespace.metadata.deletionTimestamp).toBeDefined();
    const rest =
      'deployment,service,role,rolebinding,networkpolicy,authorizationpolicy,poddisruptionbudget,serviceaccount';
    good(`kubectl -n warmpath-system delete ${rest} --all`);
    expect(present()).toEqual(before);
    await cluster.kube.request('PUT', '/api/v1/namespaces/warmpath-system/finalize', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: 'warmpath-system' },
      spec: { finalizers: [] },
    });
    await expect.poll(() => sh('kubectl get namespace warmpath-system').code, { timeout: 20_000 }).not.toBe(0);
    if (attach === 'inference-pool') good(`kubectl -n ${llm} delete inferencepool vllm`);
  });
});
