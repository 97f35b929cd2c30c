// Gets the other routers onto this machine: the Python packages sglang-router and vllm-router in an environment of their own in the cache, at
// pinned versions. They are only measured against; nothing of the product needs them.
import { execFile } from 'node:child_process';
import { access, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheDirectory } from '../../envoy/fetch.ts';

const run = promisify(execFile);

export const PEER_VERSIONS = { 'sglang-router': '0.3.2', 'vllm-router': '0.1.17' } as const;

/** The Python that can start both routers. */
export async function peersPython(say: (line: string) => void): Promise<string> {
  const packages = Object.entries(PEER_VERSIONS).map(([name, version]) => `${name}==${version}`);
  const home = join(cacheDirectory(), `peers-${Object.values(PEER_VERSIONS).join('-')}`);
  const python = join(home, 'bin', 'python');
  const marker = join(home, 'complete');
  if (await exists(marker)) return python;
  say(`installing ${packages.join(' and ')} (about 60 MB)`);
  const builder = process.env['PYTHON'] ?? 'python3';
  try {
    await rm(home, { recursive: true, force: true });
    await run(builder, ['-m', 'venv', home]);
    await run(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...packages]);
    await writeFile(marker, '');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(
      `${packages.join(' and ')} cannot be installed: ${reason}\nA Python 3 with venv and pip is needed, and a package index that pip can reach; ` +
        `PYTHON names another Python, and --arms leaves the peers out`,
      { cause: error },
    );
  }
  return python;
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
