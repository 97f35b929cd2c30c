// Which test files .ci/run runs once more: failed.mjs REPORT prints those of a vitest JSON report in which something failed, one a line, when they are
// few. Tests beside real processes can fail because a machine that others use stood still; when many fail, that is not the reason.

import { readFileSync } from 'node:fs';

const filesMax = 3;
const [report = ''] = process.argv.slice(2);

try {
  const { testResults } = JSON.parse(readFileSync(report, 'utf8'));
  const failed = testResults.filter((suite) => suite.status === 'failed').map((suite) => suite.name);
  if (failed.length > 0 && failed.length <= filesMax) console.log(failed.join('\n'));
} catch (error) {
  console.error(`no test report: ${error.message}`);
}
