// Habits of the house that a machine can check, over every file that git knows or would add. They hold without discussion, so nobody has to
// look for them in a review.

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';

const root = dirname(dirname(import.meta.dirname));
const linesMax = 500;

/** Prose and code, without what machines write or others wrote. */
const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: root, encoding: 'utf8' })
  .split('\n')
  .filter((file) => /\.(ts|mjs|md|json|yaml|yml|sh)$|^\.ci\/run$/.test(file))
  .filter((file) => !['package-lock.json'].includes(file) && existsSync(join(root, file)))
  .map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }));

const code = files.filter((file) => /\.(ts|mjs)$/.test(file.path));
const wasm = code.filter((file) => file.path.startsWith('filter/'));

/** Each place where a pattern occurs, as path:line, for a failure that can be read. */
function places(where: typeof files, pattern: RegExp): string[] {
  return where.flatMap(({ path, text }) =>
    text.split('\n').flatMap((line, i) => (pattern.test(line) ? [`${path}:${i + 1}: ${line.trim()}`] : [])),
  );
}

const literally = (text: string) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');

describe('every file', () => {
  it('is looked at: the list is not empty', () => {
    expect(files.length).toBeGreaterThan(20);
    expect(wasm.length).toBeGreaterThan(3);
  });

  it('names no path of the machine it was written on', () => {
    const here = [root, homedir()].filter((path) => path.length > 4).map(literally);
    expect(places(files, new RegExp(`(${here.join('|')})(/|\\b)`))).toEqual([]);
    expect(places(files, new RegExp(['/ho' + 'me/\\w', '/Us' + 'ers/\\w', '/ro' + 'ot/\\w'].join('|')))).toEqual([]);
  });

  it('speaks of nothing unfinished', () => {
    const words = [
      'TO' + 'DO',
      'FIX' + 'ME',
      'XX' + 'X',
      'not imple' + 'mented',
      'for n' + 'ow',
      'st' + 'ub',
      'place' + 'holder',
    ];
    expect(places(files, new RegExp(`\\b(${words.join('|')})s?\\b`))).toEqual([]);
  });

  it('ends with a newline and has no trailing blanks', () => {
    expect(files.filter(({ text }) => text !== '' && !text.endsWith('\n')).map(({ path }) => path)).toEqual([]);
    expect(
      places(
        files.filter(({ path }) => !path.startsWith('test/vectors/')),
        /[ \t]+$/,
      ),
    ).toEqual([]);
  });
});

describe('code', () => {
  it('opens with a comment that says why the file exists', () => {
    const silent = code.filter(({ text }) => !/^(#!.*\n)?\/[/*]/.test(text)).map(({ path }) => path);
    expect(silent).toEqual([]);
  });

  it(`stays below ${linesMax} lines a file`, () => {
    const long = code
      .map(({ path, text }) => ({ path, lines: text.split('\n').length - 1 }))
      .filter((file) => file.lines > linesMax);
    expect(long).toEqual([]);
  });

  it('leaves no test singled out or switched off', () => {
    const tests = code.filter(({ path }) => path.startsWith('test/'));
    expect(places(tests, /\b(it|test|describe)\.(only|todo)\(/)).toEqual([]);
  });
});

describe('filter/', () => {
  it('has no top-level decorators, which formatters and linters cannot parse', () => {
    expect(places(wasm, /^@\w/)).toEqual([]);
  });

  it('keeps every bound of the engine in limits.ts', () => {
    const elsewhere = wasm.filter(
      ({ path }) => path.startsWith('filter/engine/') && path !== 'filter/engine/limits.ts',
    );
    expect(places(elsewhere, /^(export )?const [A-Z0-9_]*_MAX\b[^=]*= [0-9]/)).toEqual([]);
  });

  it('keeps the engine free of the host: nothing in it imports from outside of it', () => {
    const engine = wasm.filter(({ path }) => path.startsWith('filter/engine/'));
    expect(places(engine, /\bfrom '\.\.\//)).toEqual([]);
    expect(places(engine, /^(export )?declare function/)).toEqual([]);
  });

  it('imports from the host in files called env.ts only', () => {
    const others = wasm.filter(({ path }) => !/(^|\/)(env|wasi_snapshot_preview1)\.ts$/.test(path));
    expect(places(others, /^(export )?declare function/)).toEqual([]);
  });
});
