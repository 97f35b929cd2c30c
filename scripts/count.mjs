// Sums vitest's JSON reports into the line that .ci/run ends with: count.mjs STATUS REPORT[=SECOND]... SECOND is the report of the files that ran once more
// because something had failed in them; what it says of a file counts, and what failed at first is named. A file that could not be run at all has no
// tests to count, so it counts as one failure; so does a missing report, and a step that failed without a test. Failures are named at the end.

import { readFileSync } from 'node:fs';

const [statusBefore = '0', ...reports] = process.argv.slice(2);
const messageLines = 12;

let passed = 0;
let failed = 0;
const other = new Map();
for (const report of reports) {
  const [first, second] = report.split('=');
  try {
    const again = second === undefined ? [] : read(second);
    const names = new Set(again.map((suite) => suite.name));
    const suites = read(first);
    for (const suite of suites.filter(({ name }) => names.has(name))) tell('failed at first, and ran once more', suite);
    for (const suite of [...suites.filter(({ name }) => !names.has(name)), ...again]) count(suite);
  } catch (error) {
    console.log(`no test report: ${error.message}`);
    failed += 1;
  }
}
if (statusBefore !== '0' && failed === 0) {
  console.log('a check outside the tests failed, see above');
  failed += 1;
}
for (const [status, tests] of other) console.log(`${tests} ${status}`);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;

function read(file) {
  return JSON.parse(readFileSync(file, 'utf8')).testResults;
}

function count(suite) {
  for (const test of suite.assertionResults) {
    if (test.status === 'passed') passed += 1;
    else if (test.status === 'failed') failed += 1;
    else other.set(test.status, (other.get(test.status) ?? 0) + 1);
  }
  if (suite.status === 'failed' && !suite.assertionResults.some(hasFailed)) failed += 1;
  if (suite.status === 'failed') tell('failed', suite);
}

function tell(what, suite) {
  const tests = suite.assertionResults.filter(hasFailed);
  for (const test of tests)
    console.log(`${what}: ${suite.name}: ${test.fullName}\n${short(test.failureMessages?.[0])}`);
  if (tests.length === 0) console.log(`${what}, could not be run: ${suite.name}\n${short(suite.message)}`);
}

function hasFailed(test) {
  return test.status === 'failed';
}

function short(message = '') {
  const lines = message
    .split('\n')
    .filter((line) => !line.includes('/node_modules/'))
    .slice(0, messageLines);
  return lines.map((line) => `  ${line}`).join('\n');
}
