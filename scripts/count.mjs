// Sums vitest's JSON reports into the line that .ci/run ends with: count.mjs STATUS REPORT... A file that could not be run at all has no tests to
// count, so it counts as one failure; so does a missing report, and a step before the tests that failed.

import { readFileSync } from 'node:fs';

const [statusBefore = '0', ...files] = process.argv.slice(2);

let passed = 0;
let failed = 0;
const other = new Map();
for (const file of files) {
  try {
    count(JSON.parse(readFileSync(file, 'utf8')));
  } catch (error) {
    console.log(`no test report: ${error.message}`);
    failed += 1;
  }
}
if (statusBefore !== '0' && failed === 0) {
  console.log('a check outside the tests failed, see above');
  failed += 1;
}
for (const [status, count] of other) console.log(`${count} ${status}`);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;

function count(report) {
  for (const suite of report.testResults) {
    for (const test of suite.assertionResults) {
      if (test.status === 'passed') passed += 1;
      else if (test.status === 'failed') failed += 1;
      else other.set(test.status, (other.get(test.status) ?? 0) + 1);
    }
    if (suite.status === 'failed' && !suite.assertionResults.some((test) => test.status === 'failed')) {
      console.log(`could not be run: ${suite.name}`);
      failed += 1;
    }
  }
}
