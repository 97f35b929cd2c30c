// Runs a control plane as a process of its own until it is told to stop. It wires and does nothing else.
import { once } from 'node:events';
import { systemClock } from './clock.ts';
import { stderrLog } from './log.ts';
import { startControlPlane } from './server.ts';
import type { ControlPlaneOptions } from './server.ts';

/** Resolves after SIGINT or SIGTERM, when everything is closed. */
export async function runControlPlane(options: ControlPlaneOptions): Promise<void> {
  const log = stderrLog(() => systemClock.nowMs());
  const controlPlane = await startControlPlane(options, { log });
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
  await controlPlane.close();
  log.info('control plane closed');
}
