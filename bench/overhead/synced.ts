// Until a gateway has what the control plane tells: what is measured before is Envoy's own balancing.
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunningEnvoy } from '../../envoy/run.ts';

const SYNCS = 3;

/** Waits for the leader's first syncs; throws with Envoy's log when they do not come. */
export async function synced(envoy: RunningEnvoy, waitMs: number): Promise<void> {
  const endMs = Date.now() + waitMs;
  for (;;) {
    const stats = await envoy.stats('warmpath_syncs_total');
    if (Object.entries(stats).some(([name, value]) => name.endsWith('result.ok') && value >= SYNCS)) return;
    if (Date.now() > endMs) throw new Error(`no sync after ${waitMs / 1000} s:\n${await envoy.log()}`);
    await sleep(50);
  }
}
