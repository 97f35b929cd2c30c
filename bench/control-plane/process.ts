// The control plane as the Deployment runs it: the command in a process of its own, so that its CPU and memory can be read.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ControlPlaneOptions } from '../../control-plane/config.ts';

export interface ControlPlaneProcess {
  readonly pid: number;
  readonly url: string;
  kill(): Promise<void>;
}

export async function startControlPlaneProcess(options: ControlPlaneOptions): Promise<ControlPlaneProcess> {
  const folder = mkdtempSync(join(tmpdir(), 'warmpath-bench-'));
  const file = join(folder, 'control-plane.json');
  writeFileSync(file, JSON.stringify(options));
  const program = join(import.meta.dirname, '..', '..', 'bin', 'warmpath.mjs');
  // As the image starts it (images/Dockerfile).
  const args = ['--max-semi-space-size=16', program, 'control-plane', '--config', file, '--json'];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const killWithUs = (): void => void child.kill('SIGKILL');
  process.once('exit', killWithUs);
  let log = '';
  child.stderr.on('data', (part: Buffer) => void (log = (log + part.toString()).slice(-4_000)));
  const ended = once(child, 'exit').then(() => undefined);
  const first = (await Promise.race([once(child.stdout, 'data'), ended])) as [Buffer] | undefined;
  rmSync(folder, { recursive: true });
  if (first === undefined) throw new Error(`the control plane ended: ${log}`);
  return {
    pid: child.pid as number,
    url: (JSON.parse(first[0].toString()) as { url: string }).url,
    kill: async () => {
      process.off('exit', killWithUs);
      child.kill('SIGKILL');
      await ended;
    },
  };
}
