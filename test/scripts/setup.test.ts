// The set-up that every command runs first: what is current is left alone, what changed is built, two at once do the work once, and what cannot
// be done is said. It runs on a small checkout of its own, with the real compiler.

import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const root = dirname(dirname(import.meta.dirname));
const small = mkdtempSync(join(tmpdir(), 'warmpath-setup-'));

interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
}

function build(command = 'build'): Promise<Outcome> {
  return new Promise((resolve) => {
    execFile(process.execPath, ['scripts/run.mjs', command], { cwd: small }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
  });
}

const write = (path: string, text: string) => {
  mkdirSync(dirname(join(small, path)), { recursive: true });
  writeFileSync(join(small, path), text);
};
const built = (text: string) => [...text.matchAll(/built build\/(\w+)\.wasm/g)].map((match) => match[1]).toSorted();

beforeAll(async () => {
  cpSync(join(root, 'scripts'), join(small, 'scripts'), { recursive: true });
  write('package.json', '{"type": "module"}');
  write('package-lock.json', '{}');
  // As npm leaves it: its own lock file is newer than ours, so nothing is to be installed.
  write('node_modules/.package-lock.json', '{}');
  for (const name of ['.bin', 'assemblyscript'])
    symlinkSync(join(root, 'node_modules', name), join(small, 'node_modules', name));
  const { wasmTargets } = (await import(join(root, 'scripts/setup.mjs'))) as {
    wasmTargets: { name: string; entry: string; target: string; sources: string[] }[];
  };
  const targets = Object.fromEntries(wasmTargets.map(({ target }) => [target, {}]));
  write('asconfig.json', JSON.stringify({ targets, options: { runtime: 'minimal', optimizeLevel: 0 } }));
  for (const { entry } of wasmTargets) write(entry, 'export function answer(): i32 { return 1; }\n');
  write('filter/engine/limits.ts', 'export const ANSWER: i32 = 42;\n');
});

afterAll(() => rmSync(small, { recursive: true }));

describe('the set-up', () => {
  it('builds all modules once when it runs twice at once, and nothing when all is there', async () => {
    const [one, two] = await Promise.all([build(), build()]);
    expect([one.code, two.code]).toEqual([0, 0]);
    const all = built(one.stderr + two.stderr);
    expect(all).toEqual(expect.arrayContaining(['empty', 'engine', 'filter']));
    expect(new Set(all).size).toBe(all.length);

    expect(await build()).toEqual({ code: 0, stdout: '', stderr: '' });
  });

  it('builds again what a source or a hand changed, and only that', async () => {
    write(
      'filter/engine.ts',
      'import { ANSWER } from "./engine/limits";\nexport function answer(): i32 { return ANSWER; }\n',
    );
    const changed = await build();
    expect(built(changed.stderr)).toEqual(['engine', 'filter']);
    const instance = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(join(small, 'build/engine.wasm'))));
    expect((instance.exports.answer as () => number)()).toBe(42);

    write('build/engine.wasm', 'not wasm');
    expect(built((await build()).stderr)).toEqual(['engine']);
  });

  it('says what does not compile and ends with 1, leaving the old module in place', async () => {
    const before = readFileSync(join(small, 'build/engine.wasm'));
    const source = readFileSync(join(small, 'filter/engine.ts'), 'utf8');
    write('filter/engine.ts', 'export function answer(): i32 { return "text"; }\n');
    const broken = await build();
    expect(broken.code).toBe(1);
    expect(broken.stderr).toContain('filter/engine.ts does not compile');
    expect(broken.stderr).toContain('TS2322');
    expect(readFileSync(join(small, 'build/engine.wasm'))).toEqual(before);
    write('filter/engine.ts', source);
  });

  it('takes over the lock of a set-up that is gone', async () => {
    write('filter/engine/limits.ts', 'export const ANSWER: i32 = 43;\n');
    write('.cache/setup.lock', '999999999');
    expect(built((await build()).stderr)).toContain('engine');
  });

  it('refuses an unknown command with 2', async () => {
    const { code, stderr } = await build('no-such');
    expect(code).toBe(2);
    expect(stderr).toContain('unknown command "no-such"');
  });
});
