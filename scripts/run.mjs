// What `npm start`, `npm test` and `npm run build|lint|image:filter|outages|bench:overhead` call: it makes the checkout ready (scripts/setup.mjs) and then runs the wanted
// command under the pinned Node. Exit codes: 0 done, 1 failed, 2 used wrongly.

import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { SetupError, pinnedNode, root, run, say, setUp } from './setup.mjs';

const usage = `node scripts/run.mjs up|test|kube|vllm|steps|build|lint|outages|bench|overhead|image [ARGUMENTS]
  up      the demo: real Envoy, control plane, simulated replicas (npm start -- ARGUMENTS; --help lists them)
  test    all tests; ARGUMENTS go to vitest, for example a part of a file name
  kube    tests with a real Kubernetes, istiod and Envoy, built on first use (npm run test:kube -- ARGUMENTS for vitest)
  vllm    tests with real vLLM engines, installed on first use (npm run test:vllm -- ARGUMENTS for vitest)
  steps   the Dockerfile's steps, without a container engine (npm run test:image)
  build   dependencies and wasm modules
  lint    formatting, lint rules, types
  image   an OCI image of the filter, without a container engine (npm run image:filter -- FOLDER)
  outages a table of what users see during outages (npm run outages -- ARGUMENTS; --help lists them)
  bench NAME  another measurement of bench/: control-plane, peers, keys ... (npm run bench -- NAME ARGUMENTS; without a name it lists them)
  overhead what the filter costs in a real Envoy (npm run bench:overhead -- ARGUMENTS; --help lists them)`;

const bin = (name) => join(root, 'node_modules', name);

async function test(args) {
  const fetched = await run(pinnedNode(), [join(root, 'envoy', 'fetch.ts')], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (fetched !== 0) {
    say('the tests need a real Envoy; what to do is said above');
    return 1;
  }
  return run(pinnedNode(), [bin('vitest/vitest.mjs'), 'run', ...args]);
}

/** All checks run, even after one failed, so that one run shows everything. */
async function lint() {
  const checks = [
    {
      name: 'formatting (prettier)',
      script: bin('prettier/bin/prettier.cjs'),
      args: ['--check', '--log-level', 'warn', '.'],
    },
    { name: 'lint rules (oxlint)', script: bin('oxlint/bin/oxlint'), args: ['--type-aware', '--deny-warnings'] },
    { name: 'types (tsc)', script: bin('typescript/bin/tsc'), args: ['-p', '.'] },
  ];
  const failed = [];
  for (const { name, script, args } of checks) {
    say(`checking ${name}`);
    if ((await run(pinnedNode(), [script, ...args])) !== 0) failed.push(name);
  }
  if (failed.length > 0) say(`not clean: ${failed.join(', ')}`);
  return failed.length > 0 ? 1 : 0;
}

/** A bench is a file of bench/ that describes itself with --help. */
async function bench([name = '', ...args]) {
  const names = readdirSync(join(root, 'bench')).flatMap((file) => (/^(.+)\.ts$/.exec(file) ?? []).slice(1));
  const benches = names.filter((one) => one !== 'measure');
  if (!benches.includes(name)) {
    say(`${name === '' ? 'a bench is needed' : `there is no bench "${name}"`}: ${benches.join(', ')}`);
    return 2;
  }
  return run(pinnedNode(), [join(root, 'bench', `${name}.ts`), ...args]);
}

const steps = [bin('vitest/vitest.mjs'), 'run', '--config', join('test', 'images', 'vitest.config.ts')];

const commands = {
  up: (args) => run(pinnedNode(), [join(root, 'bin', 'warmpath.mjs'), 'up', ...args]),
  test,
  kube: (args) => run(pinnedNode(), [join(root, 'test', 'kube', 'run.ts'), ...args]),
  vllm: (args) => run(pinnedNode(), [join(root, 'test', 'vllm', 'run.ts'), ...args]),
  // It can run wherever dependencies can be installed, so there is nothing to leave out.
  steps: (args) => run(pinnedNode(), [...steps, ...args.filter((arg) => arg !== '--if-possible')]),
  build: async () => 0,
  lint,
  image: (args) => run(pinnedNode(), [join(root, 'images', 'filter.ts'), ...args]),
  outages: (args) => run(pinnedNode(), [join(root, 'bench', 'outages.ts'), ...args]),
  bench,
  overhead: (args) => run(pinnedNode(), [join(root, 'bench', 'overhead.ts'), ...args]),
};

const [name = '', ...args] = process.argv.slice(2);
if (name === '--help' || name === '-h') {
  process.stdout.write(`${usage}\n`);
} else if (!Object.hasOwn(commands, name)) {
  process.stderr.write(`${name === '' ? 'a command is needed' : `unknown command "${name}"`}\n\n${usage}\n`);
  process.exitCode = 2;
} else {
  try {
    if (!existsSync(join(root, 'package-lock.json')))
      throw new SetupError(`${root} is not a whole checkout: package-lock.json is missing`);
    await setUp();
    process.exitCode = await commands[name](args);
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    say(error.message);
    process.exitCode = 1;
  }
}
