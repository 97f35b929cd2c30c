// Child processes of the lab: each logs into a file, is waited for, and can be ended, paused or killed. It ends with the test
// that started it, and whatever is left with the process namespace that all of them run in (test/kube/run.ts).

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { dieWithUs } from '../../../envoy/watchdog.ts';

export class LabProcess {
  readonly name: string;
  readonly logPath: string;
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;
  isRunning = true;

  constructor(
    folder: string,
    name: string,
    command: string,
    args: readonly string[],
    environment: NodeJS.ProcessEnv = {},
  ) {
    this.name = name;
    this.logPath = join(folder, `${name}.log`);
    const log = openSync(this.logPath, 'a');
    this.#child = spawn(command, args, {
      cwd: folder,
      stdio: ['ignore', log, log],
      env: { ...process.env, ...environment },
    });
    closeSync(log);
    const watchdog = dieWithUs(this.pid);
    this.#exited = new Promise((resolve) => {
      this.#child.on('close', () => {
        this.isRunning = false;
        watchdog.kill('SIGKILL');
        resolve();
      });
      this.#child.on('error', () => {
        this.isRunning = false;
        resolve();
      });
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  log(): string {
    return readFileSync(this.logPath, 'utf8');
  }

  signal(signal: NodeJS.Signals): void {
    if (this.isRunning) this.#child.kill(signal);
  }

  /** Ends it, kindly first. */
  async stop(waitMs = 15_000): Promise<void> {
    this.signal('SIGTERM');
    const isGone = await Promise.race([this.#exited.then(() => true), sleep(waitMs).then(() => false)]);
    if (!isGone) await this.kill();
  }

  async kill(): Promise<void> {
    this.signal('SIGKILL');
    await this.#exited;
  }

  /** Waits until something holds, and says what it has logged when it does not in time or when it ends before. */
  async until(what: string, holds: () => Promise<boolean>, waitMs = 180_000): Promise<void> {
    await until(what, holds, waitMs, () => {
      if (this.isRunning) return null;
      return `${this.name} has ended`;
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${this.log().split('\n').slice(-15).join('\n')}`);
    });
  }
}

/** Polls until something holds. A poll that throws does not hold yet; `isHopeless` tells why it never will. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  waitMs = 40_000,
  isHopeless: () => string | null = () => null,
): Promise<void> {
  const endMs = Date.now() + waitMs;
  let last = '';
  for (;;) {
    try {
      if (await holds()) return;
      last = '';
    } catch (error) {
      last = ` (${String(error)})`;
    }
    const reason = isHopeless();
    if (reason !== null) throw new Error(`${what}: ${reason}`);
    if (Date.now() > endMs) throw new Error(`waited ${waitMs} ms in vain for: ${what}${last}`);
    await sleep(25);
  }
}
