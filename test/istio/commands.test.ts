// docs/INSTALL.md and docs/UNINSTALL.md by what their commands do to a list of objects: what is installed is what istio/ has, and what is taken out is all
// of it. test/kube runs the same commands on a real API server.

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { KubeObject } from '../../cli/manifests/files.ts';
import { attachModes, defaults, type AttachMode } from '../../cli/manifests/parameters.ts';
import { builtFiles } from '../../cli/manifests/tree.ts';
import { commandsOf, wordsOf } from './commands.ts';
import { documentsOf, sorted } from './kustomize.ts';

const root = join(import.meta.dirname, '..', '..');
const digest = 'd'.repeat(64);
const images = {
  image: 'registry.example/warmpath/control-plane:0.1.0',
  moduleUrl: 'oci://registry.example/warmpath/filter:0.1.0',
  moduleSha256: digest,
};
const objectsOf = (attach: AttachMode, more: object = {}): KubeObject[] =>
  builtFiles({ ...defaults, ...images, attach, ...more }).flatMap(({ objects }) => objects as KubeObject[]);

describe('docs/INSTALL.md', () => {
  const commands = commandsOf('docs/INSTALL.md');
  const printing = commands.filter((line) => line.startsWith('npx warmpath manifests'));

  it('shows both ways to the pods', () => {
    expect(printing.map((line) => line.includes('--attach inference-pool'))).toEqual([false, true]);
  });

  it.each(attachModes)('its command for %s prints what istio/ has, with the images named in it', (attach) => {
    const line = printing[attachModes.indexOf(attach)]!;
    expect(line).toMatch(/ > warmpath\.yaml$/);
    const args = wordsOf(line.replace(/ > .*$/, '').replace('MANIFEST_SHA256', digest)).slice(2);
    const text = execFileSync(process.execPath, ['images/start.mjs', ...args], { cwd: root, encoding: 'utf8' });
    expect(sorted(documentsOf(text))).toEqual(sorted(objectsOf(attach)));
  });

  it('applies what it has printed, after the namespace and a dry run', () => {
    const applied = commands.filter((line) => line.startsWith('kubectl apply'));
    expect(applied).toEqual([
      'kubectl apply -f istio/base/namespace.yaml',
      'kubectl apply --dry-run=server --validate=strict -f warmpath.yaml',
      'kubectl apply -f warmpath.yaml',
    ]);
  });

  it('names objects that are there', () => {
    const all = attachModes.flatMap((attach) => objectsOf(attach, { token: true, statsTags: true }));
    const named = commands.flatMap((line) => [...line.matchAll(/\b(deployment|service|configmap)\/([\w-]+)/g)]);
    expect(named.length).toBeGreaterThan(2);
    for (const [text, kind, name] of named)
      expect([text, all.some((object) => object.kind.toLowerCase() === kind && object.metadata.name === name)]).toEqual(
        [text, true],
      );
  });
});

/** What `kubectl delete` and `kubectl label` leave of the objects. */
function after(line: string, objects: KubeObject[]): KubeObject[] {
  const [, ...words] = wordsOf(line);
  const take = (flag: string): string | undefined => {
    const at = words.indexOf(flag);
    return at < 0 ? undefined : words.splice(at, 2)[1];
  };
  const namespace = take('-n');
  const label = take('-l')?.split('=') as [string, string] | undefined;
  const [verb, what = '', ...rest] = words;
  if (verb === 'delete' && what === 'namespace')
    return objects.filter(
      ({ kind, metadata }) => metadata.namespace !== rest[0] && !(kind === 'Namespace' && metadata.name === rest[0]),
    );
  const kinds = what.split(',');
  const isHere = ({ kind, metadata }: KubeObject): boolean =>
    metadata.namespace === namespace && kinds.includes(kind.toLowerCase());
  if (verb === 'delete' && label !== undefined)
    return objects.filter((object) => !isHere(object) || object.metadata.labels?.[label[0]] !== label[1]);
  if (verb === 'delete') return objects.filter((object) => !isHere(object) || !rest.includes(object.metadata.name));
  if (verb === 'label') {
    const names = [what, ...rest.slice(0, -1)];
    const gone = rest.at(-1)!.replace(/-$/, '');
    return objects.map((object) => {
      if (!names.includes(`${object.kind.toLowerCase()}/${object.metadata.name}`)) return object;
      const labels = Object.fromEntries(Object.entries(object.metadata.labels ?? {}).filter(([key]) => key !== gone));
      return { ...object, metadata: { ...object.metadata, labels } };
    });
  }
  throw new Error(`a command that this test does not know: ${line}`);
}

describe.each(attachModes)('docs/UNINSTALL.md, attached by %s', (attach) => {
  const commands = commandsOf('docs/UNINSTALL.md');
  const installed = objectsOf(attach, { token: true, statsTags: true });

  it('leaves nothing', () => {
    const left = commands
      .filter((line) => !line.includes(' label '))
      .reduce((objects, line) => after(line, objects), installed);
    expect(left).toEqual([]);
  });

  it('leaves the route, and the Service that it made, to whoever took the label off them', () => {
    const left = commands.reduce((objects, line) => after(line, objects), installed);
    const kept = left.map(({ kind, metadata }) => `${kind} ${metadata.name}`).toSorted();
    expect(kept).toEqual(attach === 'service' ? ['HTTPRoute vllm', 'Service vllm'] : ['HTTPRoute vllm']);
  });

  it('takes the picks away before the chain, and the chain before the route', () => {
    const kindsLeft = (count: number): Set<string> =>
      new Set(
        commands
          .slice(0, count)
          .reduce((objects, line) => after(line, objects), installed)
          .map(({ kind }) => kind),
      );
    expect([kindsLeft(1).has('WasmPlugin'), kindsLeft(1).has('EnvoyFilter')]).toEqual([false, true]);
    expect([kindsLeft(2).has('EnvoyFilter'), kindsLeft(2).has('HTTPRoute')]).toEqual([false, true]);
  });
});
