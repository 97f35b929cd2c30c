// What can be known of the control plane's image without building it: everything that it copies is there, everything that the code imports is
// copied, and it runs as nobody. test/images/steps.test.ts walks through its steps.

import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { defaults } from '../../cli/manifests/parameters.ts';
import { deploymentFile } from '../../cli/manifests/control-plane.ts';
import { copyOf, lastOf, root, stages, type Stage } from './dockerfile.ts';

const all = stages();
const final = all.at(-1) as Stage;
const copies = (stage: Stage) => stage.steps.filter(({ instruction }) => instruction === 'COPY').map(copyOf);

describe('the Dockerfile', () => {
  it('copies what is there, from stages that exist', () => {
    for (const { from, sources } of all.flatMap(copies)) {
      if (from !== null) expect(all.map(({ name }) => name)).toContain(from);
      else for (const source of sources) expect([source, existsSync(join(root, source))]).toEqual([source, true]);
    }
  });

  it('sends everything that it copies to the builder', () => {
    const ignore = readFileSync(join(root, 'images', 'Dockerfile.dockerignore'), 'utf8').split('\n');
    const sent = ignore.filter((line) => line.startsWith('!')).map((line) => line.slice(1));
    const wanted = all.flatMap(copies).flatMap(({ from, sources }) => (from === null ? sources : []));
    expect(sent.toSorted()).toEqual([...new Set(wanted.map((source) => source.replace(/^\.\//, '')))].toSorted());
  });

  it('copies every file that the code in it imports, and has every package among the dependencies', () => {
    const sources = copies(final).flatMap(({ from, sources: names }) => (from === null ? names : []));
    const files = sources.flatMap((source) =>
      /\.\w+$/.test(source) ? [source] : globSync(`${source}/**/*.{ts,mjs}`, { cwd: root }),
    );
    const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    const isCopied = (path: string): boolean =>
      sources.some((source) => path === source || path.startsWith(`${source}/`));
    const lacking: string[] = [];
    for (const file of files.filter((name) => /\.(ts|mjs)$/.test(name))) {
      const text = readFileSync(join(root, file), 'utf8');
      for (const [, kind = '', target = ''] of text.matchAll(/^(import type|import|export)[^;]*?from '([^']+)'|^$/gm)) {
        if (kind === 'import type' || target === '' || target.startsWith('node:')) continue;
        const isPackage = !target.startsWith('.');
        const found = isPackage
          ? Object.keys(dependencies).some((name) => target === name || target.startsWith(`${name}/`))
          : isCopied(relative(root, join(root, dirname(file), target)));
        if (!found) lacking.push(`${file}: ${target}`);
      }
    }
    expect(files.length).toBeGreaterThan(50);
    expect(lacking).toEqual([]);
  });

  it('runs as somebody who is not root, the one that the Deployment names', () => {
    const { runAsUser, runAsGroup } = podSecurity();
    expect(lastOf(final, 'USER')).toBe(`${runAsUser}:${runAsGroup}`);
    expect(runAsUser).toBeGreaterThan(0);
  });

  it('opens the ports that the Deployment names', () => {
    const ports = JSON.stringify(deploymentFile(defaults).objects).match(/(?<="containerPort":)\d+/g);
    expect(lastOf(final, 'EXPOSE')?.split(' ')).toEqual(ports);
  });
});

function podSecurity(): { runAsUser: number; runAsGroup: number } {
  const [deployment] = deploymentFile(defaults).objects as {
    spec: { template: { spec: { securityContext: { runAsUser: number; runAsGroup: number } } } };
  }[];
  return deployment!.spec.template.spec.securityContext;
}
