// Writes a tree of manifest files into a folder. `node cli/manifests/write.ts` brings istio/ up to date with the templates; a test
// fails when it is not.

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileText, type ManifestFile } from './files.ts';
import { defaults } from './parameters.ts';
import { treeFiles } from './tree.ts';

/** The tree of this repository: the defaults with both ways to reach the pods. What both have in common is there once. */
export function repositoryFiles(): ManifestFile[] {
  const files = [treeFiles(defaults), treeFiles({ ...defaults, attach: 'inference-pool' })].flat();
  return [...new Map(files.map((file) => [file.path, file])).values()];
}

export function writeFiles(folder: string, files: readonly ManifestFile[]): void {
  for (const file of files) {
    const path = join(folder, file.path);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, fileText(file));
  }
}

if (import.meta.main) writeFiles(join(import.meta.dirname, '..', '..', 'istio'), repositoryFiles());
