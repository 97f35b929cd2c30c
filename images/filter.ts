// Makes an OCI image of filter.wasm without a container engine: a folder in the OCI image layout, which skopeo, crane or oras push to
// a registry as it is. `npm run image:filter` writes build/filter-image and prints the two digests that a WasmPlugin can name.
//
// Of the forms that Istio's agent takes, this is the one it tries first: one layer, a gzipped tar with a file plugin.wasm. Every registry
// and every tool takes it, since to them it is an ordinary image.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { tarOf } from './tar.ts';

export const mediaTypes = {
  manifest: 'application/vnd.oci.image.manifest.v1+json',
  config: 'application/vnd.oci.image.config.v1+json',
  layer: 'application/vnd.oci.image.layer.v1.tar+gzip',
} as const;

/** The file that the agent looks for in the layer. */
export const moduleFile = 'plugin.wasm';

export interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
}

export interface FilterImage {
  /** By digest. */
  blobs: Map<string, Uint8Array>;
  manifest: Descriptor;
  /** Of the module itself, for http:// and https:// addresses. */
  moduleSha256: string;
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

export function filterImage(module: Uint8Array, version: string): FilterImage {
  const blobs = new Map<string, Uint8Array>();
  const put = (mediaType: string, bytes: Uint8Array): Descriptor => {
    const digest = `sha256:${sha256(bytes)}`;
    blobs.set(digest, bytes);
    return { mediaType, digest, size: bytes.length };
  };
  const json = (value: object): Buffer => Buffer.from(JSON.stringify(value));
  const tar = tarOf(moduleFile, module);
  const layer = put(mediaTypes.layer, gzipSync(tar, { level: 9 }));
  const config = put(
    mediaTypes.config,
    json({
      architecture: 'wasm',
      os: 'wasi',
      config: {},
      rootfs: { type: 'layers', diff_ids: [`sha256:${sha256(tar)}`] },
    }),
  );
  const manifest = put(
    mediaTypes.manifest,
    json({
      schemaVersion: 2,
      mediaType: mediaTypes.manifest,
      config,
      layers: [layer],
      annotations: { 'org.opencontainers.image.title': 'warmpath-filter', 'org.opencontainers.image.version': version },
    }),
  );
  return { blobs, manifest, moduleSha256: sha256(module) };
}

/** Writes the image as an OCI image layout, in place of what the folder held. */
export function writeLayout(folder: string, { blobs, manifest }: FilterImage, tag: string): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, 'blobs', 'sha256'), { recursive: true });
  for (const [digest, bytes] of blobs) writeFileSync(join(folder, 'blobs', ...digest.split(':')), bytes);
  const annotations = { 'org.opencontainers.image.ref.name': tag };
  const index = { schemaVersion: 2, manifests: [{ ...manifest, annotations }] };
  writeFileSync(join(folder, 'index.json'), JSON.stringify(index));
  writeFileSync(join(folder, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
}

if (import.meta.main) {
  const root = join(import.meta.dirname, '..');
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
  const folder = process.argv[2] ?? join(root, 'build', 'filter-image');
  const image = filterImage(readFileSync(join(root, 'build', 'filter.wasm')), version);
  writeLayout(folder, image, version);
  const document = {
    folder,
    tag: version,
    manifestSha256: image.manifest.digest.slice('sha256:'.length),
    moduleSha256: image.moduleSha256,
  };
  process.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
}
