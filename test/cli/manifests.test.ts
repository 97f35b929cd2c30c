// `warmpath manifests` as it is called: what is refused with which exit code, and what comes out in its three forms.

import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { KubeObject } from '../../cli/manifests/files.ts';
import { defaults, shadowService } from '../../cli/manifests/parameters.ts';
import { builtFiles } from '../../cli/manifests/tree.ts';
import { build, documentsOf, sorted } from '../istio/kustomize.ts';

const root = join(import.meta.dirname, '..', '..');
const scratch = mkdtempSync(join(tmpdir(), 'warmpath-manifests-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

interface Result {
  code: number;
  stdout: string;
  stderr: string;
}
const manifests = (...args: string[]): Promise<Result> =>
  new Promise((resolve) => {
    execFile(process.execPath, ['images/start.mjs', 'manifests', ...args], { cwd: root }, (error, stdout, stderr) =>
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr }),
    );
  });

const digest = 'a'.repeat(64);
const needed = ['--gateway', 'llm/inference-gateway', '--pool', 'llm/vllm'];
const module = ['--module', 'oci://registry.example/warmpath/filter:0.1.0', '--sha256', digest];
const whole = [...needed, ...module, '--selector', 'app=vllm', '--hostname', 'llm.example'];
const expected = sorted(builtFiles({ ...defaults, moduleSha256: digest }).flatMap(({ objects }) => objects));

describe('the three forms say the same', () => {
  it('documents', async () => {
    const { code, stdout } = await manifests(...whole);
    expect([code, sorted(documentsOf(stdout))]).toEqual([0, expected]);
    expect(stdout.match(/^---$/gm)?.length).toBe(expected.length);
  });

  it('--json', async () => {
    const { code, stdout } = await manifests(...whole, '--json');
    const { kind, items } = JSON.parse(stdout) as { kind: string; items: KubeObject[] };
    expect([code, kind, sorted(items)]).toEqual([0, 'List', expected]);
  });

  it('--output, which overwrites nothing', async () => {
    const folder = join(scratch, 'tree');
    const { code, stdout } = await manifests(...whole, '--output', folder, '--json');
    const { overlay, files } = JSON.parse(stdout) as { overlay: string; files: string[] };
    expect([code, sorted(build(overlay))]).toEqual([0, expected]);
    for (const file of files) expect(existsSync(join(folder, file))).toBe(true);
    const again = await manifests(...whole, '--output', folder);
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('exists already')]);
  });
});

describe('what is used wrongly ends with 2 and says why', () => {
  const cases: [string, string[], string][] = [
    ['no gateway', ['--pool', 'llm/vllm', ...module], '--gateway'],
    ['a pool without namespace', ['--gateway', 'llm/g', '--pool', 'vllm', ...module], 'NAMESPACE/NAME'],
    ['no digest', [...needed, '--module', 'oci://registry.example/filter:1'], '--sha256 is needed'],
    [
      'half a digest',
      [...needed, '--module', 'oci://registry.example/f:1', '--sha256', 'abc'],
      '64 hexadecimal digits',
    ],
    [
      'a module without scheme',
      [...needed, '--module', 'registry.example/f:1', '--sha256', digest],
      'a URL with oci://',
    ],
    ['a name that Kubernetes refuses', [...needed, ...module, '--route', 'My_Route'], 'route: "My_Route" is not'],
    ['a label that it refuses', [...needed, ...module, '--selector', 'app=a b'], 'selector'],
    ['a selector of a pool that has one', [...whole, '--attach', 'inference-pool'], '--selector goes with'],
    ['a group that Istio never watched', [...needed, ...module, '--pool-group', 'x.example'], '--pool-group'],
    [
      'a name too long for the filter',
      [
        '--gateway',
        'llm/g',
        '--pool',
        `llm/${'v'.repeat(63)}`,
        ...module,
        '--cluster-domain',
        `${'d'.repeat(60)}.local`,
      ],
      'name of a cluster',
    ],
  ];
  it.each(cases)('%s', async (_name, args, reason) => {
    const { code, stdout, stderr } = await manifests(...args);
    expect([code, stdout, stderr]).toEqual([2, '', expect.stringContaining(reason)]);
  });
});

describe('what options change', () => {
  const objects = async (...args: string[]): Promise<KubeObject[]> =>
    (JSON.parse((await manifests(...needed, ...args, '--json')).stdout) as { items: KubeObject[] }).items;
  const find = (items: KubeObject[], kind: string, name?: string): KubeObject | undefined =>
    items.find((item) => item.kind === kind && (name === undefined || item.metadata.name === name));
  const specOf = <T>(items: KubeObject[], kind: string): T => find(items, kind)!['spec'] as T;

  it('a module from a file needs no digest, and without a selector no Service is made', async () => {
    const items = await objects('--module', 'file:///var/filter.wasm');
    expect(specOf(items, 'WasmPlugin')).toMatchObject({ url: 'file:///var/filter.wasm' });
    expect(specOf(items, 'WasmPlugin')).not.toHaveProperty('sha256');
    expect(find(items, 'Service', 'vllm')).toBeUndefined();
  });

  it('an InferencePool of the older group', async () => {
    const group = 'inference.networking.x-k8s.io';
    const items = await objects(...module, '--attach', 'inference-pool', '--pool-group', group);
    const { rules } = specOf<{ rules: { backendRefs: object[] }[] }>(items, 'HTTPRoute');
    for (const rule of rules) expect(rule.backendRefs).toEqual([{ group, kind: 'InferencePool', name: 'vllm' }]);
    const { pluginConfig } = specOf<{ pluginConfig: { clusters: string[] } }>(items, 'WasmPlugin');
    expect(pluginConfig.clusters).toEqual(['outbound|54321||vllm-ip-ec8207a3.llm.svc.cluster.local']);
  });

  it('a token is asked for, shown and never written down', async () => {
    const items = await objects(...module, '--token');
    expect(specOf(items, 'WasmPlugin')).toMatchObject({
      vmConfig: { env: [{ name: 'WARMPATH_SYNC_TOKEN', valueFrom: 'HOST' }] },
    });
    expect(JSON.stringify(find(items, 'Deployment'))).toContain('--token-file=/etc/warmpath/token/token');
    expect(find(items, 'ConfigMap', 'warmpath-gateway')).toBeDefined();
    expect(find(items, 'Secret')).toBeUndefined();
  });
});

describe("the name of an InferencePool's Service", () => {
  it('is the pool with the hash that Istio gives it', () => {
    expect(shadowService('vllm')).toBe('vllm-ip-ec8207a3');
  });
  it('is cut to what Kubernetes takes, the hash kept', () => {
    const long = shadowService('x'.repeat(63));
    expect(long).toMatch(/^x{51}-ip-[0-9a-f]{8}$/);
    expect(long).toHaveLength(63);
  });
});
