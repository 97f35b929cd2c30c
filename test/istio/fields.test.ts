// Rendered objects use only what Istio 1.27 and its Gateway API know. A field that a server does not know is dropped silently by it, so a
// misspelt or newer one would be an installation that does nothing.

import { beforeAll, describe, expect, it } from 'vitest';
import type { KubeObject } from '../../cli/manifests/files.ts';
import { attachModes, defaults, poolGroups } from '../../cli/manifests/parameters.ts';
import { builtFiles } from '../../cli/manifests/tree.ts';
import { canFetch, modules, schemasOf } from './crds.ts';
import { fields127 } from './fields-1-27.ts';
import { faults, type Schema } from './schema.ts';

const isCustom = ({ apiVersion }: KubeObject): boolean => /istio\.io|gateway\.networking/.test(apiVersion);
const objects = attachModes
  .flatMap((attach) =>
    poolGroups.flatMap((poolGroup) => builtFiles({ ...defaults, attach, poolGroup, token: true, statsTags: true })),
  )
  .flatMap((file) => file.objects as KubeObject[])
  .filter(isCustom);
const nameOf = ({ apiVersion, kind }: KubeObject): string => `${apiVersion} ${kind}`;

/** What is wrong with an object's spec; the rest of it is the same for every kind. */
const faultsOf = (schemas: Map<string, Schema>, object: KubeObject): string[] => {
  const schema = schemas.get(nameOf(object))?.properties?.['spec'];
  return schema === undefined ? [`${nameOf(object)} is not known`] : faults(schema, object['spec'], '.spec');
};

describe('rendered objects', () => {
  it('are of the four kinds that this test knows', () => {
    expect([...new Set(objects.map(nameOf))].toSorted()).toEqual([...fields127.keys()].toSorted());
  });

  it('have only fields that Istio 1.27 and Gateway API 1.3 have', () => {
    for (const object of objects)
      expect([object.metadata.name, faultsOf(fields127, object)]).toEqual([object.metadata.name, []]);
  });

  it('would be caught with a misspelt or a newer field, a wrong value, or a missing one', () => {
    const changed = (kind: string, change: (spec: Record<string, unknown>) => void): string[] => {
      const copy = structuredClone(objects.find((object) => object.kind === kind)) as KubeObject;
      change(copy['spec'] as Record<string, unknown>);
      return faultsOf(fields127, copy);
    };
    expect(changed('WasmPlugin', (spec) => (spec['failstrategy'] = 'FAIL_OPEN'))).toEqual([
      '.spec.failstrategy: unknown field',
    ]);
    expect(changed('WasmPlugin', (spec) => (spec['failStrategy'] = 'FAIL_CLOSED'))).toHaveLength(1);
    expect(changed('WasmPlugin', (spec) => delete spec['url'])).toEqual(['.spec.url: is required']);
    expect(
      changed('HTTPRoute', (spec) => ((spec['rules'] as Record<string, unknown>[])[0]!['name'] = 'held')),
    ).toHaveLength(1);
    expect(changed('EnvoyFilter', (spec) => (spec['priority'] = 'first'))).toHaveLength(1);
  });
});

describe.skipIf(!canFetch).each(Object.keys(modules) as (keyof typeof modules)[])('%s, its own CRDs', (name) => {
  let schemas: Map<string, Schema>;
  beforeAll(async () => {
    schemas = await schemasOf(name);
  }, 60_000);

  it('accept what is rendered', () => {
    const known = objects.filter((object) => schemas.has(nameOf(object)));
    expect(known.length).toBeGreaterThan(0);
    for (const object of known)
      expect([object.metadata.name, faultsOf(schemas, object)]).toEqual([object.metadata.name, []]);
  });

  it('have every field that is listed here for 1.27', () => {
    const paths = (schema: Schema, at: string): string[] => [
      ...Object.entries(schema.properties ?? {}).flatMap(([key, child]) => [
        `${at}.${key}`,
        ...paths(child, `${at}.${key}`),
      ]),
      ...(schema.items ? paths(schema.items, at) : []),
    ];
    for (const [kind, schema] of fields127) {
      const theirs = schemas.get(kind)?.properties?.['spec'];
      if (theirs === undefined) continue;
      const known = new Set(paths(theirs, ''));
      expect([kind, paths(schema.properties?.['spec'] ?? {}, '').filter((path) => !known.has(path))]).toEqual([
        kind,
        [],
      ]);
    }
  });
});
