// The filter that filter/proxy-wasm/README.md shows is compiled as it stands there, with the command that stands there, and run.

import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { WasmHost } from './host.ts';

const run = promisify(execFile);
const bindings = fileURLToPath(new URL('../../filter/proxy-wasm', import.meta.url));
const compiler = fileURLToPath(new URL('../../node_modules/assemblyscript/bin/asc.js', import.meta.url));

const block = (text: string, language: string): string =>
  new RegExp('```' + language + '\\n([\\s\\S]*?)```').exec(text)?.[1] ?? '';

test('the example compiles and does what it says', async () => {
  const readme = await readFile(join(bindings, 'README.md'), 'utf8');
  const [program, ...args] = block(readme, 'sh').trim().replace('PATH/', '').split(' ');
  expect(program).toBe('asc');
  const directory = await mkdtemp(join(tmpdir(), 'warmpath-readme-'));
  try {
    await cp(bindings, join(directory, 'proxy-wasm'), { recursive: true });
    await writeFile(join(directory, 'filter.ts'), block(readme, 'ts'));
    await run(process.execPath, [compiler, ...args], { cwd: directory });
    const host = new WasmHost(new WebAssembly.Module(await readFile(join(directory, 'filter.wasm'))));
    const root = host.vm('worker-1').plugin('example');
    expect(root.stream({ headers: { 'x-tenant': 'acme' } }).filterState('tenant')).toBe('acme');
    expect(root.stream({ headers: {} }).filterState('tenant')).toBeUndefined();
  } finally {
    await rm(directory, { recursive: true });
  }
});

test('every file of the folder stands in the table', async () => {
  const readme = await readFile(join(bindings, 'README.md'), 'utf8');
  const { stdout } = await run('ls', [bindings]);
  for (const file of stdout.trim().split('\n')) if (file !== 'README.md') expect(readme).toContain(`\`${file}\``);
});
