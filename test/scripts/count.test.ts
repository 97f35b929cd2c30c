// The last line of .ci/run decides whether a change is green, so a report must never look better than it is.

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, it } from 'vitest';

const root = dirname(dirname(import.meta.dirname));
const folder = mkdtempSync(join(tmpdir(), 'warmpath-count-'));
afterAll(() => rmSync(folder, { recursive: true }));

const suite = (status: string, ...tests: string[]) => named('x.test.ts', status, ...tests);

function named(name: string, status: string, ...tests: string[]) {
  const assertionResults = tests.map((test, i) => ({
    status: test,
    fullName: `test ${i}`,
    failureMessages: [`why ${i}`],
  }));
  return { name, status, message: 'broke before', assertionResults };
}

function written(name: string, ...testResults: unknown[]): string {
  const file = join(folder, name);
  writeFileSync(file, JSON.stringify({ testResults }));
  return file;
}

function script(name: string, ...args: string[]): Promise<{ code: number; lines: string[] }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [join(root, 'scripts', name), ...args], (error, stdout) => {
      const lines = stdout.trimEnd().split('\n');
      resolve({ code: error === null ? 0 : Number(error.code), lines });
    });
  });
}

async function count(
  report: unknown,
  statusBefore = '0',
  ...more: string[]
): Promise<{ code: number; last: string | undefined }> {
  const file = join(folder, 'report.json');
  if (report === null) rmSync(file, { force: true });
  else writeFileSync(file, JSON.stringify({ testResults: report }));
  const { code, lines } = await script('count.mjs', statusBefore, file, ...more);
  return { code, last: lines.at(-1) };
}

it.each([
  ['all passed', [suite('passed', 'passed', 'passed'), suite('passed', 'passed')], '0', '3 passed, 0 failed', 0],
  ['one failed', [suite('failed', 'passed', 'failed')], '1', '1 passed, 1 failed', 1],
  ['skipped ones are neither', [suite('passed', 'passed', 'skipped')], '0', '1 passed, 0 failed', 0],
  ['a file that could not be run', [suite('passed', 'passed'), suite('failed')], '1', '1 passed, 1 failed', 1],
  ['a lint step that failed', [suite('passed', 'passed')], '1', '1 passed, 1 failed', 1],
  ['no test at all', [], '0', '0 passed, 0 failed', 1],
  ['no report', null, '0', '0 passed, 1 failed', 1],
])('%s', async (_, report, statusBefore, last, code) => {
  expect(await count(report, statusBefore)).toEqual({ code, last });
});

it('several reports are summed, and one of them that is missing is a failure', async () => {
  const other = join(folder, 'other.json');
  writeFileSync(other, JSON.stringify({ testResults: [suite('passed', 'passed', 'passed')] }));
  const report = [suite('passed', 'passed')];
  expect(await count(report, '0', other)).toEqual({ code: 0, last: '3 passed, 0 failed' });
  expect(await count(report, '0', other, join(folder, 'none.json'))).toEqual({ code: 1, last: '3 passed, 1 failed' });
});

it('names what failed, and why', async () => {
  const report = written('named.json', named('a.test.ts', 'failed', 'passed', 'failed'), named('b.test.ts', 'failed'));
  expect((await script('count.mjs', '1', report)).lines).toEqual([
    'failed: a.test.ts: test 1',
    '  why 1',
    'failed, could not be run: b.test.ts',
    '  broke before',
    '1 passed, 2 failed',
  ]);
});

it('what ran once more counts as it ended then, and what failed at first is named', async () => {
  const first = written(
    'first.json',
    named('a.test.ts', 'failed', 'passed', 'failed'),
    named('b.test.ts', 'passed', 'passed'),
  );
  const passed = written('second.json', named('a.test.ts', 'passed', 'passed', 'passed'));
  expect(await script('count.mjs', '0', `${first}=${passed}`)).toEqual({
    code: 0,
    lines: ['failed at first, and ran once more: a.test.ts: test 1', '  why 1', '3 passed, 0 failed'],
  });
  const failed = written('second.json', named('a.test.ts', 'failed', 'failed', 'passed'));
  const { code, lines } = await script('count.mjs', '1', `${first}=${failed}`);
  expect({ code, last: lines.at(-1) }).toEqual({ code: 1, last: '2 passed, 1 failed' });
});

it('a second run that says nothing of a file leaves what the first one said', async () => {
  const first = written('first.json', named('a.test.ts', 'failed', 'passed', 'failed'));
  const { code, lines } = await script('count.mjs', '1', `${first}=${written('second.json')}`);
  expect({ code, last: lines.at(-1) }).toEqual({ code: 1, last: '1 passed, 1 failed' });
});

it('runs once more what failed when it is little', async () => {
  const suites = ['a', 'b', 'c', 'd'].map((name) => named(name, 'failed', 'failed'));
  const fine = named('fine', 'passed', 'passed');
  const failed = async (...some: unknown[]) =>
    (await script('failed.mjs', written('failed.json', fine, ...some))).lines;
  expect(await failed(...suites.slice(1))).toEqual(['b', 'c', 'd']);
  expect(await failed(...suites)).toEqual(['']);
  expect(await failed()).toEqual(['']);
  expect((await script('failed.mjs', join(folder, 'none.json'))).lines).toEqual(['']);
});
