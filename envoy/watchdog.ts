// Keeps child processes from outliving the process that started them, however it went: a SIGKILL leaves no time to end anything.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';

/**
 * Kills a process, or the group of it when the number is negative, once this process is gone: a shell reads from a pipe that only this
 * process holds open. It ignores the signals of a terminal, which the child may get as well. End it when the child has ended.
 */
export function dieWithUs(pid: number): ChildProcess {
  const script = `trap '' INT TERM HUP; read -r _; kill -s KILL -- ${pid}`;
  const watchdog = spawn('/bin/sh', ['-c', script], { stdio: ['pipe', 'ignore', 'ignore'] });
  watchdog.once('error', () => {});
  watchdog.unref();
  (watchdog.stdin as Socket).unref();
  return watchdog;
}
