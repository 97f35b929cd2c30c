// `npm run test:vllm`: real vLLM engines behind the real gateway. It installs vLLM on first use; with --if-possible, as in .ci/run, it
// leaves the tests out when vLLM is not in the cache, and says so. Other arguments go to vitest.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ensureEnvoy } from '../../envoy/fetch.ts';
import { VllmUnavailable, ensureVllm, vllmIfInstalled, vllmVersion } from './install.ts';

const root = join(import.meta.dirname, '..', '..');
const args = process.argv.slice(2);
const isOptional = args.includes('--if-possible');

async function main(): Promise<number> {
  if (isOptional && vllmIfInstalled() === undefined) {
    console.log(
      `tests with real engines were left out: vLLM ${vllmVersion} is not in the cache; npm run test:vllm installs it`,
    );
    return 0;
  }
  try {
    await ensureVllm();
  } catch (error) {
    if (!(error instanceof VllmUnavailable)) throw error;
    console.error(error.message);
    return 1;
  }
  await ensureEnvoy();
  const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
  const config = join(import.meta.dirname, 'vitest.config.ts');
  const rest = args.filter((arg) => arg !== '--if-possible');
  const { status } = spawnSync(process.execPath, [vitest, 'run', '--config', config, ...rest], {
    stdio: 'inherit',
    cwd: root,
  });
  return status ?? 1;
}

process.exitCode = await main();
