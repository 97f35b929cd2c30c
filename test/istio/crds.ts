// The CRDs of Istio and of the Gateway API, out of the modules that they are published in. Istio's own versions 1.27 are not to be had there, but
// an earlier and a later one are: what both accept, 1.27 accepts.

import { execFile, spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';
import type { Schema } from './schema.ts';

export const modules = {
  'Istio before 1.27': {
    module: 'istio.io/api@v1.26.0-beta.0',
    files: 'kubernetes/customresourcedefinitions.gen.yaml',
  },
  'Istio after 1.27': { module: 'istio.io/api@v1.30.8', files: 'kubernetes/customresourcedefinitions.gen.yaml' },
  // The version that Istio 1.27 is built with.
  'Gateway API': { module: 'sigs.k8s.io/gateway-api@v1.3.0', files: 'config/crd/standard/*.yaml' },
} as const;

export const canFetch = spawnSync('go', ['version']).status === 0;

interface Crd {
  spec: {
    group: string;
    names: { kind: string };
    versions: { name: string; served: boolean; schema: { openAPIV3Schema: Schema } }[];
  };
}

/** Schemas by `group/version kind`. */
export async function schemasOf(name: keyof typeof modules): Promise<Map<string, Schema>> {
  const { module, files } = modules[name];
  const { stdout } = await promisify(execFile)('go', ['mod', 'download', '-json', module], {
    env: { ...process.env, GOFLAGS: '-mod=mod', GO111MODULE: 'on' },
    cwd: '/',
  });
  const { Dir: folder } = JSON.parse(stdout) as { Dir: string };
  const schemas = new Map<string, Schema>();
  for (const file of globSync(files, { cwd: folder })) {
    for (const document of parseAllDocuments(readFileSync(join(folder, file), 'utf8'))) {
      const crd = document.toJS() as Crd | null;
      for (const version of crd?.spec?.versions ?? []) {
        if (!version.served) continue;
        schemas.set(`${crd?.spec.group}/${version.name} ${crd?.spec.names.kind}`, version.schema.openAPIV3Schema);
      }
    }
  }
  return schemas;
}
