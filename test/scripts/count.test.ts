// The last line of .ci/run decides whether a change is green, so a report must never look better than it is.

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, it } from 'vitest';

const root = dirname(dirname(import.meta.dirname));
const folder = mkdtempSync(join(tmpdir(), 'warmpath-count-'));
afterAll(() => rmSync(folder, { recursive: true }));

const suite = (status: string, ...tests: string[]) => ({
  name: 'x.test.ts',
  status,
  assertionResults: tests.map((test) => ({ status: test })),
});

function count(
  report: unknown,
  statusBefore = '0',
  ...more: string[]
): Promise<{ code: number; last: string | undefined }> {
  const file = join(folder, 'report.json');
  if (report === null) rmSync(file, { force: true });
  else writeFileSync(file, JSON.stringify({ testResults: report }));
  return new Promise((resolve) => {
    execFile(process.execPath, [join(root, 'scripts/count.mjs'), statusBefore, file, ...more], (error, stdout) => {
      resolve({ code: error === null ? 0 : Number(error.code), last: stdout.trimEnd().split('\n').at(-1) });
    });
  });
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
