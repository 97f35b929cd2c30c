// Walks through the steps of images/Dockerfile without a container engine: each stage is a folder, each step is done in it. What comes out must
// start as nobody, on files that it cannot write to, with nothing in its environment that a container would not have.

import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../envoy/ports.ts';
import { copyOf, lastOf, root, stages, type Stage } from './dockerfile.ts';

const scratch = mkdtempSync(join(tmpdir(), 'warmpath-dockerfile-'));
const all = stages();
const final = all.at(-1) as Stage;
const folderOf = (stage: Stage): string => join(scratch, String(all.indexOf(stage)));
const isRoot = process.getuid?.() === 0;
const [uid, gid] = (lastOf(final, 'USER') ?? '').split(':').map(Number) as [number, number];

/** A path in the image as a path in the stage's folder. */
const inside = (stage: Stage, path: string, workdir: string): string => join(folderOf(stage), join(workdir, path));

function take(stage: Stage): void {
  let workdir = '/';
  for (const step of stage.steps) {
    if (step.instruction === 'WORKDIR') {
      workdir = step.text;
      mkdirSync(inside(stage, '.', workdir), { recursive: true });
    } else if (step.instruction === 'COPY') {
      const { from, sources, target } = copyOf(step);
      const origin = all.find(({ name }) => name === from);
      for (const source of sources) {
        const path = origin === undefined ? join(root, source) : join(folderOf(origin), source);
        const isFolder = target.endsWith('/');
        const end = inside(stage, isFolder ? join(target, source) : target, workdir);
        mkdirSync(dirname(end), { recursive: true });
        cpSync(path, end, { recursive: true });
      }
    } else if (step.instruction === 'RUN') {
      execFileSync('sh', ['-c', step.text], { cwd: inside(stage, '.', workdir), stdio: ['ignore', 'ignore', 'pipe'] });
    }
  }
}

function readOnly(path: string): void {
  execFileSync('chmod', ['-R', 'a-w,a+rX', path]);
}

let child: ChildProcess | undefined;
beforeAll(() => {
  // The folder's own way must be open to nobody.
  chmodSync(scratch, 0o755);
  for (const stage of all) take(stage);
  readOnly(folderOf(final));
});
afterAll(() => {
  child?.kill('SIGKILL');
  execFileSync('chmod', ['-R', 'u+w', scratch]);
  rmSync(scratch, { recursive: true, force: true });
});

const workdir = lastOf(final, 'WORKDIR') ?? '/';
const entry = JSON.parse(lastOf(final, 'ENTRYPOINT') ?? '[]') as string[];
const options = {
  cwd: inside(final, '.', workdir),
  env: { PATH: dirname(process.execPath), NODE_ENV: 'production' },
  ...(isRoot ? { uid, gid } : {}),
};
const start = (args: string[]): ChildProcess => spawn(process.execPath, [...entry.slice(1), ...args], options);

describe('the steps of the Dockerfile', () => {
  it('leave no compiler, no tests and no tools in the image', () => {
    for (const name of ['assemblyscript', 'typescript', 'vitest', 'prettier', 'node'])
      expect(() => statSync(inside(final, `node_modules/${name}`, workdir))).toThrow('ENOENT');
    expect(() => statSync(inside(final, 'test', workdir))).toThrow('ENOENT');
    expect(statSync(inside(final, 'build/engine.wasm', workdir)).size).toBeGreaterThan(10_000);
  });

  it('have every dependency whole, those with machine code too', () => {
    const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    const imports = Object.keys(dependencies).map((name) => `await import(${JSON.stringify(name)});`);
    execFileSync(process.execPath, ['--input-type=module', '-e', imports.join('')], options);
  });

  it('give a command that teaches', () => {
    const text = execFileSync(process.execPath, [...entry.slice(1), '--help'], { ...options, encoding: 'utf8' });
    expect(text).toContain('control-plane');
  });

  it('give a control plane that starts, answers and ends when it is told to', async () => {
    const [port, adminPort] = [await freePort(), await freePort()];
    child = start(['control-plane', '--pool=p=127.0.0.1:1', `--port=${port}`, `--admin-port=${adminPort}`]);
    let said = '';
    child.stderr?.on('data', (piece: Buffer) => (said += piece.toString()));
    const ended = new Promise((resolve) => child?.once('exit', resolve));
    const answer = async (path: string): Promise<number> =>
      fetch(`http://127.0.0.1:${adminPort}${path}`).then(
        (response) => response.status,
        () => 0,
      );
    await expect.poll(() => answer('/readyz'), { timeout: 20_000, message: said }).toBe(200);
    expect(await answer('/metrics')).toBe(200);
    const sync = await fetch(`http://127.0.0.1:${port}/v1/sync`, { method: 'POST', body: 'x' });
    expect(sync.status).toBe(400);
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
  }, 60_000);
});
