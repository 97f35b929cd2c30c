// Runs the tests of test/kube in namespaces of their own: network (so that pods can have addresses and servers fixed ports), processes (so that
// nothing outlives the tests) and mounts (so that a service account's files can be where a pod has them). Needs root, as `unshare` does.
//
//   node test/kube/run.ts [--if-possible] [ARGUMENTS of vitest]
//
// With --if-possible it says why and ends well where the tests cannot run or would first have to be built, instead of failing.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { componentsCached, ComponentsUnavailable, ensureComponents } from './lab/components.ts';
import { ensureEnvoy } from '../../envoy/fetch.ts';

const root = join(import.meta.dirname, '..', '..');
const args = process.argv.slice(2);
const isOptional = args.includes('--if-possible');
const rest = args.filter((arg) => arg !== '--if-possible');

// All addresses of these two networks are this machine's own, so a pod's address needs no interface.
const inside = `
set -e
mount -t tmpfs tmpfs /run
ip link set lo up
ip route add local 10.244.0.0/16 dev lo
ip -6 route add local fd00:10:244::/64 dev lo 2>/dev/null || true
exec "$@"`;

function leaveOut(reason: string): number {
  process.stderr.write(`warmpath: the tests with a real Kubernetes are left out: ${reason}\n`);
  return isOptional ? 0 : 1;
}

async function main(): Promise<number> {
  if (process.getuid?.() !== 0) return leaveOut('they need root, for namespaces of their own');
  if (spawnSync('unshare', ['--net', '--pid', '--fork', '--mount', 'true']).status !== 0)
    return leaveOut('unshare cannot make namespaces here');
  try {
    if (!(await componentsCached())) {
      // Twenty CPU minutes are more than a run of everything may take on top; whoever runs this tier by itself fills the cache.
      if (isOptional) return leaveOut('Kubernetes and Istio are not in the cache yet; `npm run test:kube` builds them');
      process.stderr.write('warmpath: Kubernetes and Istio have to be built first\n');
    }
    await ensureComponents();
    await ensureEnvoy();
  } catch (error) {
    if (!(error instanceof ComponentsUnavailable)) throw error;
    return leaveOut(error.message);
  }
  const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
  const command = [process.execPath, vitest, 'run', '--config', join('test', 'kube', 'vitest.config.ts'), ...rest];
  const namespaces = ['--net', '--pid', '--fork', '--kill-child', '--mount', '--mount-proc', '--uts'];
  const { status } = spawnSync('unshare', [...namespaces, 'bash', '-c', inside, 'inside', ...command], {
    cwd: root,
    stdio: 'inherit',
  });
  return status ?? 1;
}

process.exitCode = await main();
