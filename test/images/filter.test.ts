// The filter's image as a gateway's agent would take it: digests and sizes are true, and the module is found where Istio looks for it.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { filterImage, mediaTypes, moduleFile, writeLayout, type Descriptor } from '../../images/filter.ts';
import { tarOf } from '../../images/tar.ts';

const module = readFileSync(join(import.meta.dirname, '..', '..', 'build', 'filter.wasm'));
const folder = mkdtempSync(join(tmpdir(), 'warmpath-image-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Manifest {
  schemaVersion: number;
  mediaType: string;
  config: Descriptor;
  layers: Descriptor[];
}
interface Index {
  schemaVersion: number;
  manifests: (Descriptor & { annotations: Record<string, string> })[];
}

const layout = join(folder, 'layout');
const read = (file: string): Buffer => readFileSync(join(layout, file));
const json = <T>(bytes: Buffer): T => JSON.parse(bytes.toString()) as T;
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** A blob, having checked that it is what its descriptor says. */
function blob({ digest, size }: Descriptor): Buffer {
  const [algorithm = '', hex = ''] = digest.split(':');
  const bytes = read(join('blobs', algorithm, hex));
  expect([bytes.length, `sha256:${sha256(bytes)}`]).toEqual([size, digest]);
  return bytes;
}

describe('the layout', () => {
  const image = filterImage(module, '1.2.3');
  writeFileSync(join(folder, 'old'), 'x');
  writeLayout(layout, image, '1.2.3');
  const index = json<Index>(read('index.json'));
  const [top] = index.manifests;
  const manifest = json<Manifest>(blob(top as Descriptor));

  it('is marked as one, and names one manifest by its tag', () => {
    expect(json(read('oci-layout'))).toEqual({ imageLayoutVersion: '1.0.0' });
    expect(index.schemaVersion).toBe(2);
    expect(index.manifests).toHaveLength(1);
    expect(top).toMatchObject({
      mediaType: mediaTypes.manifest,
      annotations: { 'org.opencontainers.image.ref.name': '1.2.3' },
    });
  });

  it('has blobs that are what their descriptors say, and no others', () => {
    const descriptors = [top as Descriptor, manifest.config, ...manifest.layers];
    for (const descriptor of descriptors) blob(descriptor);
    const names = descriptors.map(({ digest }) => digest.slice('sha256:'.length));
    expect(readdirSync(join(layout, 'blobs', 'sha256')).toSorted()).toEqual(names.toSorted());
  });

  it('has the module where the agent looks first: plugin.wasm in the last layer, a gzipped tar', () => {
    expect(manifest.mediaType).toBe('application/vnd.oci.image.manifest.v1+json');
    const last = manifest.layers.at(-1) as Descriptor;
    expect(last.mediaType).toBe('application/vnd.oci.image.layer.v1.tar+gzip');
    const archive = join(folder, 'layer.tgz');
    writeFileSync(archive, blob(last));
    expect(execFileSync('tar', ['-tzf', archive], { encoding: 'utf8' })).toBe('plugin.wasm\n');
    const found = execFileSync('tar', ['-xzOf', archive, moduleFile], { maxBuffer: 1 << 28 });
    expect(found.equals(module)).toBe(true);
    expect(found.subarray(0, 4).toString('latin1')).toBe('\0asm');
  });

  it('has a config that knows the layer uncompressed, as registries and container engines want it', () => {
    const config = json<{ rootfs: { type: string; diff_ids: string[] } }>(blob(manifest.config));
    const diffIds = manifest.layers.map((layer) => `sha256:${sha256(gunzipSync(blob(layer)))}`);
    expect(config.rootfs).toEqual({ type: 'layers', diff_ids: diffIds });
  });

  it('names the digests that a WasmPlugin takes: of the manifest for oci://, of the module for http://', () => {
    expect(image.manifest.digest).toBe(`sha256:${sha256(blob(top as Descriptor))}`);
    expect(image.moduleSha256).toBe(sha256(module));
  });

  it('is the same for the same module, and another for another', () => {
    expect(filterImage(module, '1.2.3').manifest).toEqual(image.manifest);
    expect(filterImage(module.subarray(1), '1.2.3').manifest.digest).not.toBe(image.manifest.digest);
    expect(filterImage(module, '1.2.4').manifest.digest).not.toBe(image.manifest.digest);
  });
});

describe('an archive', () => {
  it.each([0, 1, 511, 512, 513])('of %i bytes is read back by tar', (length) => {
    const content = Buffer.alloc(length, 'ab');
    const file = join(folder, 'one.tar');
    writeFileSync(file, tarOf('a-file', content));
    expect(execFileSync('tar', ['-tvf', file], { encoding: 'utf8' })).toMatch(/^-rw-r--r-- 0\/0\s+\d+ 1970-01-01 /);
    expect(execFileSync('tar', ['-xOf', file, 'a-file']).equals(content)).toBe(true);
  });

  it('refuses a name that does not fit its header', () => {
    expect(() => tarOf('x'.repeat(100), Buffer.alloc(1))).toThrow('not a name');
    expect(() => tarOf('', Buffer.alloc(1))).toThrow('not a name');
  });
});
