#!/usr/bin/env node
// The `warmpath` command. It makes a checkout ready when something is missing, and hands over to the pinned Node when the running one is
// too old to run TypeScript directly. The commands themselves are in cli/.

import { SetupError, pinnedNode, root, run, say, setUp } from '../scripts/setup.mjs';

try {
  await setUp();
  if (Number(process.versions.node.split('.')[0]) >= 24) {
    const { main } = await import('../cli/main.ts');
    process.exitCode = await main(process.argv.slice(2));
  } else {
    process.exitCode = await run(pinnedNode(), [`${root}/bin/warmpath.mjs`, ...process.argv.slice(2)], {
      cwd: process.cwd(),
    });
  }
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  say(error.message);
  process.exitCode = 1;
}
