// Keeps the documents true: every command in a shell block exists with every option it is shown with, the harmless ones are run, the command
// table is complete, and no link points nowhere.

import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { program } from '../cli/main.ts';

const root = dirname(import.meta.dirname);
const documents = globSync(['*.md', 'docs/**/*.md'], { cwd: root })
  .toSorted()
  .map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }));
const scripts = (JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { scripts: Record<string, string> })
  .scripts;

/** Every command line in a block marked `sh`; a backslash at the end of a line joins the next one to it. */
const shown = documents.flatMap(({ path, text }) =>
  [...text.matchAll(/^```sh\n(.*?)^```/gms)].flatMap((block) =>
    (block[1] ?? '')
      .replaceAll('\\\n', ' ')
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => ({ path, line })),
  ),
);

/** Commands that stand in running text or in a table. */
const mentioned = documents.flatMap(({ path, text }) =>
  [...text.matchAll(/`((?:npm (?:start|test|run)|npx warmpath|node_modules\/\.bin\/node) [^`]*)`/g)]
    .map((match) => ({ path, line: match[1] ?? '' }))
    .filter(({ line }) => !/COMMAND|\.\.\./.test(line)),
);

/** Splits as a shell does, as far as documents use it: blanks and double quotes. */
const words = (line: string) => [...line.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2] ?? '');

function checkWarmpath(args: string[]): void {
  const [name = '', ...rest] = args;
  if (name === '--help' || name === '--version') return;
  const command = program().commands.find((candidate) => candidate.name() === name);
  expect(command, `command ${name}`).toBeDefined();
  expect(command?.parseOptions(rest).unknown.filter((word) => word !== '--help')).toEqual([]);
}

/** What other people's programs do is theirs; here it is only told apart from what is misspelt. */
const foreign = ['curl', 'git', 'cd', 'kubectl', 'skopeo', 'docker', 'openssl'];

function checkLine(line: string): void {
  // A variable may be set for the command.
  const [first, second, ...rest] = words(line.replace(/^(?:[A-Z_]+=\S+ )+/, '').split(/ [|>] /)[0] ?? '');
  const afterDashes = rest[0] === '--' ? rest.slice(1) : rest;
  if (first === 'npx' && second === 'warmpath') return checkWarmpath(rest);
  if (first === 'npm' && second === 'start') return checkWarmpath(['up', ...afterDashes]);
  if (first === 'npm' && second === 'test') {
    // As vitest does, a path may be the beginning of file names.
    const paths = afterDashes.filter((word) => word.startsWith('test/'));
    return expect(paths.filter((path) => globSync(`${path}*`, { cwd: root }).length === 0)).toEqual([]);
  }
  if (first === 'npm' && second === 'run') return expect(Object.keys(scripts)).toContain(rest[0]);
  if (first?.startsWith('.ci/')) return accessSync(join(root, first), constants.X_OK);
  if (first === 'node' || first === 'node_modules/.bin/node')
    return expect(existsSync(join(root, second ?? '')), second).toBe(true);
  if (first !== undefined && foreign.includes(first)) return;
  throw new Error(`a documented command that this test does not know how to check: ${line}`);
}

const warmpath = (args: string[]) =>
  promisify(execFile)(process.execPath, ['bin/warmpath.mjs', ...args], { cwd: root });

describe('documented commands', () => {
  it('are found', () => {
    expect(shown.length).toBeGreaterThan(10);
    expect(shown.map(({ line }) => line)).toEqual(
      expect.arrayContaining(['npm start', 'npm test', 'npm start -- --once']),
    );
  });

  it.each([...shown, ...mentioned])('$path: $line', ({ line }) => checkLine(line));

  const harmless = [...new Set(shown.map(({ line }) => line))].filter((line) =>
    /^npx warmpath (--help|keys )/.test(line),
  );
  it.each(harmless)('runs: %s', async (line) => {
    const { stdout } = await warmpath(words(line).slice(2));
    expect(stdout.length).toBeGreaterThan(50);
    if (line.includes('--json')) expect(Array.isArray(JSON.parse(stdout))).toBe(true);
  });

  it('would be caught when they name an option or a command that does not exist', () => {
    expect(() => checkLine('npx warmpath up --no-such-option')).toThrow();
    expect(() => checkLine('npx warmpath no-such-command')).toThrow();
    expect(() => checkLine('npm run no-such-script')).toThrow();
    expect(() => checkLine('rm -rf node_modules')).toThrow();
  });
});

describe('the command table', () => {
  it('of the README lists exactly the commands that exist', () => {
    const readme = documents.find(({ path }) => path === 'README.md')?.text ?? '';
    const listed = [...readme.matchAll(/^\| `([a-z-]+)`/gm)].map((match) => match[1]);
    expect(listed.toSorted()).toEqual(
      program()
        .commands.map((command) => command.name())
        .toSorted(),
    );
  });

  it.each(program().commands.map((command) => command.name()))('%s teaches with --help, and takes --json', (name) => {
    const command = program().commands.find((candidate) => candidate.name() === name);
    let help = '';
    command?.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
    expect(help).toContain('Examples');
    expect(help).toContain('--json');
    expect(help).toContain(`$ npx warmpath ${name}`);
  });
});

describe('links', () => {
  it.each(documents.map(({ path }) => path))('of %s point to files that exist', (path) => {
    const text = documents.find((document) => document.path === path)?.text ?? '';
    const targets = [...text.matchAll(/\]\(([^)#:\s]+)(#[^)]*)?\)/g)].map((match) => match[1] ?? '');
    expect(targets.filter((target) => !existsSync(join(root, dirname(path), target)))).toEqual([]);
  });
});
