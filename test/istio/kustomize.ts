// Builds a kustomize folder from disk, as far as our own trees use kustomize: resources, components, and JSON patches that add. It is
// the second opinion on what `warmpath manifests` prints, on machines without kubectl.

import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';
import type { KubeObject } from '../../cli/manifests/files.ts';

interface Kustomization {
  resources?: string[];
  components?: string[];
  patches?: { target: { kind: string; name: string }; patch: string }[];
}

interface Operation {
  op: string;
  path: string;
  value: unknown;
}

export function documentsOf(text: string): KubeObject[] {
  return parseAllDocuments(text)
    .map((document) => document.toJS() as KubeObject | null)
    .filter((object) => object !== null);
}

export function build(folder: string, below: KubeObject[] = []): KubeObject[] {
  const {
    resources = [],
    components = [],
    patches = [],
  } = parse(readFileSync(join(folder, 'kustomization.yaml'), 'utf8')) as Kustomization;
  let objects = [...below];
  for (const resource of resources) {
    const path = join(folder, resource);
    objects.push(...(statSync(path).isDirectory() ? build(path) : documentsOf(readFileSync(path, 'utf8'))));
  }
  for (const component of components) objects = build(join(folder, component), objects);
  for (const { target, patch } of patches) {
    const object = objects.find(({ kind, metadata }) => kind === target.kind && metadata.name === target.name);
    if (object === undefined) throw new Error(`${folder}: there is no ${target.kind} ${target.name} to patch`);
    for (const operation of JSON.parse(patch) as Operation[]) add(object, operation);
  }
  return objects;
}

function add(object: KubeObject, { op, path, value }: Operation): void {
  if (op !== 'add') throw new Error(`operation ${op} is not used here`);
  const keys = path.split('/').slice(1);
  const last = keys.pop() ?? '';
  let at: Record<string, unknown> = object;
  for (const key of keys) at = at[key] as Record<string, unknown>;
  if (Array.isArray(at) && last === '-') at.push(value);
  else at[last] = value;
}

/** Objects in an order that does not depend on where they came from. */
export function sorted(objects: readonly object[]): KubeObject[] {
  const nameOf = ({ kind, metadata: { namespace = '', name } }: KubeObject): string => `${kind} ${namespace} ${name}`;
  return (objects as KubeObject[]).toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
}
