// One source: istio/ is what the templates give, and what kustomize builds from it is what `warmpath manifests` prints.

import { execFileSync, spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { fileText } from '../../cli/manifests/files.ts';
import { attachModes, defaults, type Parameters } from '../../cli/manifests/parameters.ts';
import { builtFiles, treeFiles } from '../../cli/manifests/tree.ts';
import { repositoryFiles, writeFiles } from '../../cli/manifests/write.ts';
import { build, documentsOf, sorted } from './kustomize.ts';

const root = join(import.meta.dirname, '..', '..');
const scratch = mkdtempSync(join(tmpdir(), 'warmpath-tree-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const printed = (parameters: Parameters) => sorted(builtFiles(parameters).flatMap(({ objects }) => objects));
const hasKubectl = spawnSync('kubectl', ['version', '--client']).status === 0;

describe('istio/', () => {
  it('is what the templates give: node_modules/.bin/node cli/manifests/write.ts brings it up to date', () => {
    const files = repositoryFiles();
    const there = globSync('istio/**/*.yaml', { cwd: root }).toSorted();
    expect(there).toEqual(files.map(({ path }) => `istio/${path}`).toSorted());
    for (const file of files)
      expect([file.path, readFileSync(join(root, 'istio', file.path), 'utf8')]).toEqual([file.path, fileText(file)]);
  });

  it('has one concern a file, each with a reason', () => {
    for (const { path, comment, objects } of repositoryFiles()) {
      expect(comment.length, path).toBeGreaterThan(30);
      const kinds = new Set(objects.map((object) => (object as { kind: string }).kind));
      const isPair = kinds.has('Role') && kinds.has('RoleBinding');
      expect(isPair ? 1 : kinds.size, path).toBe(1);
    }
  });

  it.each(attachModes)('built with kustomize is what `warmpath manifests` prints: %s', (attach) => {
    expect(sorted(build(join(root, 'istio', 'overlays', attach)))).toEqual(printed({ ...defaults, attach }));
  });
});

const everything: Parameters = {
  ...defaults,
  name: 'wp',
  systemNamespace: 'routing',
  gateway: { namespace: 'edge', name: 'front' },
  gatewayServiceAccount: 'front-istio',
  pool: { namespace: 'models', name: 'llama' },
  selector: { app: 'llama' },
  route: 'llama-route',
  hostnames: [],
  token: true,
  statsTags: true,
  bounds: { pods: 128, blocks: 800_000 },
};

describe.each(attachModes)('a tree with all components, attached by %s', (attach) => {
  const parameters = { ...everything, attach };
  const folder = join(scratch, attach);
  writeFiles(folder, treeFiles(parameters));
  const overlay = join(folder, 'overlays', attach);

  it('built is what is printed', () => {
    expect(sorted(build(overlay))).toEqual(printed(parameters));
  });

  it.skipIf(!hasKubectl)('built by kubectl is what is printed', () => {
    const text = execFileSync('kubectl', ['kustomize', overlay], { encoding: 'utf8' });
    expect(sorted(documentsOf(text))).toEqual(printed(parameters));
  });

  it('has every object once, labelled as ours, in the namespace that was given', () => {
    const objects = printed(parameters);
    const names = objects.map(({ kind, metadata }) => `${kind} ${metadata.namespace} ${metadata.name}`);
    expect(new Set(names).size).toBe(names.length);
    for (const { kind, metadata } of objects) {
      expect(metadata.labels).toMatchObject({ 'app.kubernetes.io/part-of': 'warmpath' });
      if (kind !== 'Namespace') expect(['routing', 'edge', 'models']).toContain(metadata.namespace);
    }
    const text = JSON.stringify(objects);
    for (const word of ['inference-gateway', 'warmpath-system', 'vllm']) expect(text).not.toContain(`"${word}`);
  });
});
