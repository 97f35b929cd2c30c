// Makes a checkout ready to run, from nothing: the dependencies of package-lock.json and the wasm modules of filter/.
// It is plain JavaScript without dependencies, because it runs before any are there and under whatever Node the machine has.
// Every step is skipped when its result is already there, decided by content and not by time, so a second run costs milliseconds.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { constants } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const buildDir = join(root, 'build');
const cacheDir = join(root, '.cache');
const inlineStep = join(root, 'scripts', 'inline.mjs');
const nodeVersionMin = 24;

/** What `asc` makes. `sources` are the files and folders that a module is made of. */
export const wasmTargets = [
  { name: 'engine', entry: 'filter/engine.ts', target: 'engine', sources: ['filter/engine.ts', 'filter/engine'] },
  { name: 'filter', entry: 'filter/main.ts', target: 'filter', sources: ['filter'] },
  { name: 'empty', entry: 'filter/empty.ts', target: 'filter', sources: ['filter/empty.ts', 'filter/proxy-wasm'] },
  {
    name: 'nouns',
    entry: 'filter/nouns.ts',
    target: 'filter',
    sources: ['filter/nouns.ts', 'filter/engine', 'filter/proxy-wasm'],
  },
  {
    name: 'probe',
    entry: 'filter/probe.ts',
    target: 'filter',
    sources: ['filter/probe.ts', 'filter/probe-calls.ts', 'filter/proxy-wasm'],
  },
];

/** An error whose message is meant for the person at the terminal, without a stack. */
export class SetupError extends Error {}

export function say(text) {
  process.stderr.write(`warmpath: ${text}\n`);
}

/** The Node that package-lock.json pins, or the running one when it is new enough. */
export function pinnedNode() {
  const pinned = join(root, 'node_modules', '.bin', process.platform === 'win32' ? 'node.exe' : 'node');
  if (existsSync(pinned)) return pinned;
  if (Number(process.versions.node.split('.')[0]) >= nodeVersionMin) return process.execPath;
  throw new SetupError(
    `Node ${process.versions.node} runs here, but ${nodeVersionMin} is needed, and the npm package "node" that brings it was not unpacked.\n` +
      '  Its install script must be allowed: run "npm ci" without --ignore-scripts, or start with a newer Node.',
  );
}

/** Starts a program with our own terminal, hands signals on, and gives its exit code (128 + n after signal n). */
export function run(program, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: root, stdio: 'inherit', ...options });
    const forward = (signal) => {
      // Ctrl-C in a terminal already reaches the whole process group. Waiting here lets the child close what it opened.
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
    };
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
    for (const signal of signals) process.on(signal, forward);
    const done = () => {
      for (const signal of signals) process.off(signal, forward);
    };
    child.on('error', (error) => {
      done();
      reject(new SetupError(`cannot start ${program}: ${error.message}`));
    });
    child.on('exit', (code, signal) => {
      done();
      resolve(code ?? 128 + (constants.signals[signal] ?? 0));
    });
  });
}

/** Runs a program quietly; gives its exit code and everything it printed. */
function capture(program, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
    const parts = [];
    child.stdout.on('data', (part) => parts.push(part));
    child.stderr.on('data', (part) => parts.push(part));
    child.on('error', (error) => reject(new SetupError(`cannot start ${program}: ${error.message}`)));
    child.on('close', (code) => resolve({ code: code ?? 1, text: Buffer.concat(parts).toString() }));
  });
}

function sha256(...parts) {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest('hex');
}

function readOrEmpty(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** All files below a path, sorted, so that a hash over them does not depend on the file system. */
function filesBelow(path) {
  if (!existsSync(path)) return [];
  if (statSync(path).isFile()) return [path];
  return readdirSync(path)
    .sort()
    .flatMap((name) => filesBelow(join(path, name)));
}

// ---- one set-up at a time -------------------------------------------------------------------------------------------

const lockFile = join(cacheDir, 'setup.lock');

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

/** Holds the lock file while `work` runs. A lock whose owner is gone is taken over. */
async function locked(work) {
  mkdirSync(cacheDir, { recursive: true });
  let told = false;
  for (;;) {
    try {
      writeFileSync(lockFile, String(process.pid), { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw new SetupError(`cannot write ${lockFile}: ${error.message}`);
    }
    const owner = readOrEmpty(lockFile);
    // An empty file is one that its owner is about to fill.
    if (owner !== '' && !isAlive(Number(owner))) {
      const taken = `${lockFile}.${process.pid}`;
      try {
        renameSync(lockFile, taken);
        if (readOrEmpty(taken) !== owner) renameSync(taken, lockFile);
        else rmSync(taken);
      } catch {
        // Somebody else took it over first.
      }
      continue;
    }
    if (!told) say(`waiting for process ${owner || '?'}, which is setting up this checkout`);
    told = true;
    await new Promise((wake) => setTimeout(wake, 200));
  }
  const unlock = () => rmSync(lockFile, { force: true });
  process.once('exit', unlock);
  try {
    return await work();
  } finally {
    process.off('exit', unlock);
    unlock();
  }
}

// ---- dependencies ---------------------------------------------------------------------------------------------------

const modulesDir = join(root, 'node_modules');
const modulesStamp = join(modulesDir, '.warmpath-lock');

function modulesAreFresh() {
  const lockHash = sha256(readOrEmpty(join(root, 'package-lock.json')));
  if (readOrEmpty(modulesStamp) === lockHash) return true;
  // Somebody may have run npm by hand: npm leaves its own copy of the lock file, newer than ours when it is of it.
  const installed = join(modulesDir, '.package-lock.json');
  if (!existsSync(installed)) return false;
  if (statSync(installed).mtimeMs < statSync(join(root, 'package-lock.json')).mtimeMs) return false;
  writeFileSync(modulesStamp, lockHash);
  return true;
}

async function installModules() {
  if (lstatSync(modulesDir, { throwIfNoEntry: false })?.isSymbolicLink()) {
    throw new SetupError(
      'node_modules is a link to another folder and does not match package-lock.json. "npm ci" would empty that folder:\n' +
        '  remove the link, or run "npm ci" there yourself.',
    );
  }
  say('installing dependencies with "npm ci" (once; some 200 MB)');
  const start = Date.now();
  // npm's own progress goes to standard error; its summary must not mix with what a command prints for programs.
  const code = await run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
    stdio: ['inherit', process.stderr, 'inherit'],
    shell: process.platform === 'win32',
  });
  if (code !== 0) {
    throw new SetupError(
      `"npm ci" ended with code ${code}. Its messages are above. Most often the package registry cannot be reached:\n` +
        '  check "npm ping" and "npm config get registry", then run the same command again.',
    );
  }
  writeFileSync(modulesStamp, sha256(readOrEmpty(join(root, 'package-lock.json'))));
  say(`dependencies are there (${seconds(start)})`);
}

function seconds(start) {
  return `${((Date.now() - start) / 1000).toFixed(1)} s`;
}

// ---- wasm -----------------------------------------------------------------------------------------------------------

/** A hash of everything that decides what the module looks like: sources, options, compiler. */
function sourceHash(target) {
  const files = target.sources
    .flatMap((source) => filesBelow(join(root, source)))
    .filter((file) => file.endsWith('.ts'));
  return sha256(
    JSON.stringify(target),
    readOrEmpty(join(root, 'asconfig.json')),
    readOrEmpty(inlineStep),
    readOrEmpty(join(modulesDir, 'assemblyscript', 'package.json')),
    ...files.flatMap((file) => [relative(root, file), readFileSync(file)]),
  );
}

/** The stamp beside a module names the sources it was made of and the module itself, so a module made by hand is not mistaken. */
function stampOf(target, hash) {
  const module = join(buildDir, `${target.name}.wasm`);
  return existsSync(module) ? `${hash} ${sha256(readFileSync(module))}` : '';
}

function wasmIsFresh(target) {
  const stamp = readOrEmpty(join(buildDir, `${target.name}.stamp`));
  return stamp !== '' && stamp === stampOf(target, sourceHash(target));
}

async function compile(target) {
  const start = Date.now();
  const hash = sourceHash(target);
  const made = join(buildDir, `.${target.name}.${process.pid}`);
  const asc = join(modulesDir, 'assemblyscript', 'bin', 'asc.js');
  const outputs = ['--outFile', `${made}.wasm`, '--textFile', `${made}.wat`];
  const args = [asc, target.entry, '--target', target.target, '--transform', inlineStep, ...outputs];
  const { code, text } = await capture(pinnedNode(), args);
  if (code !== 0) throw new SetupError(`${target.entry} does not compile:\n${text}`);
  // A rename is atomic: whoever reads a module while it is being replaced sees the old one or the new one, whole.
  for (const kind of ['wat', 'wasm']) renameSync(`${made}.${kind}`, join(buildDir, `${target.name}.${kind}`));
  writeFileSync(join(buildDir, `${target.name}.stamp`), stampOf(target, hash));
  const sizeKb = Math.round(statSync(join(buildDir, `${target.name}.wasm`)).size / 1024);
  say(`built build/${target.name}.wasm, ${sizeKb} KB (${seconds(start)})`);
}

// ---- all of it ------------------------------------------------------------------------------------------------------

function staleTargets() {
  return wasmTargets.filter((target) => !wasmIsFresh(target));
}

/** Makes dependencies and wasm modules current. Safe to run twice at once: the second waits and finds all done. */
export async function setUp() {
  if (modulesAreFresh() && staleTargets().length === 0) return;
  await locked(async () => {
    if (!modulesAreFresh()) await installModules();
    const stale = staleTargets();
    if (stale.length === 0) return;
    mkdirSync(buildDir, { recursive: true });
    for (const left of readdirSync(buildDir)) {
      if (left.startsWith('.')) rmSync(join(buildDir, left), { force: true });
    }
    say(`building ${stale.map((target) => `${target.name}.wasm`).join(' and ')} with the AssemblyScript compiler`);
    const results = await Promise.allSettled(stale.map(compile));
    const failed = results.filter((result) => result.status === 'rejected').map((result) => result.reason);
    if (failed.length > 0) throw new SetupError(failed.map((error) => error.message).join('\n'));
  });
}
