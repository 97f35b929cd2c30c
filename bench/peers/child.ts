// Another router's process: started, ready when it says so, measured with its children, and gone when the bench is.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { processMemory, processNs } from '../overhead/proc.ts';

const READY_MS = 60_000;

export interface Child {
  /** CPU so far of the process and its children. */
  cpuNs(): number;
  memoryBytes(): number;
  /** The end of what it has said. */
  log(): string;
  stop(): Promise<void>;
}

export interface ChildOptions {
  /** What errors call it. */
  name: string;
  command: string;
  args: readonly string[];
  isReady(): Promise<boolean>;
}

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** The process and what it started. */
function family(pid: number): number[] {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
  );
  return [pid, ...children.flatMap(family)];
}

export async function startChild({ name, command, args, isReady }: ChildOptions): Promise<Child> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  let log = '';
  let hasEnded = false;
  const ended = (reason: string): void => {
    hasEnded = true;
    log += reason;
    running.delete(child);
  };
  child.once('error', (error) => ended(error.message));
  child.once('close', () => ended(''));
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (part: Buffer) => void (log = (log + part.toString()).slice(-4_000)));
  }
  const stop = async (): Promise<void> => {
    if (hasEnded || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    for (const pid of family(child.pid as number).reverse()) process.kill(pid, 'SIGKILL');
    await exit;
  };
  const endMs = Date.now() + READY_MS;
  while (!(await isReady())) {
    if (hasEnded) throw new Error(`${name} ended:\n${log}`);
    if (Date.now() > endMs) {
      await stop();
      throw new Error(`${name} was not ready after ${READY_MS / 1000} s:\n${log}`);
    }
    await sleep(100);
  }
  const pid = child.pid as number;
  return {
    cpuNs: () => family(pid).reduce((sum, one) => sum + processNs(one), 0),
    memoryBytes: () => family(pid).reduce((sum, one) => sum + processMemory(one), 0),
    log: () => log,
    stop,
  };
}
