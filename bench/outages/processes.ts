// Child processes that outages happen to: a control plane, and the replicas behind one arm.

import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { ControlPlaneOptions } from '../../control-plane/config.ts';
import type { MetricsFault } from '../../sim/faults.ts';
import type { ReplicaOptions } from '../../sim/server.ts';
import type { Command, Started } from './child.ts';

const program = fileURLToPath(new URL('./child.ts', import.meta.url));

/** One that is frozen does not notice that its parent has gone, so it must not outlive it. */
const living = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of living) child.kill('SIGKILL');
});

class Child {
  readonly ports: number[];
  readonly #process: ChildProcess;

  private constructor(process: ChildProcess, ports: number[]) {
    this.#process = process;
    this.ports = ports;
  }

  static async start(command: Command): Promise<Child> {
    const process = fork(program, [], { execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    living.add(process);
    process.once('exit', () => living.delete(process));
    process.send(command);
    const ended = once(process, 'exit').then((): [Started] => [{ error: 'it ended before it was ready' }]);
    const [answer] = (await Promise.race([once(process, 'message'), ended])) as [Started];
    if ('ports' in answer) return new Child(process, answer.ports);
    process.kill('SIGKILL');
    throw new Error(`outages: ${command.kind} did not start: ${answer.error}`);
  }

  tell(command: Command): void {
    this.#process.send(command);
  }

  /** Stops it as it stands: its port still accepts, and nothing answers. */
  freeze(): void {
    this.#process.kill('SIGSTOP');
  }

  thaw(): void {
    this.#process.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, 'exit');
    this.#process.kill('SIGKILL');
    await ended;
  }
}

/** The replicas of one arm. The first can break alone; the others share a process. */
export class Fleet {
  readonly endpoints: string[];
  readonly #options: ReplicaOptions;
  readonly #others: Child;
  #first: Child;

  private constructor(options: ReplicaOptions, first: Child, others: Child) {
    this.#options = options;
    this.#first = first;
    this.#others = others;
    this.endpoints = [...first.ports, ...others.ports].map((port) => `127.0.0.1:${port}`);
  }

  static async start(count: number, options: ReplicaOptions): Promise<Fleet> {
    const starting = [[options], Array.from({ length: count - 1 }, () => options)].map((replicas) =>
      Child.start({ kind: 'replicas', replicas }),
    );
    try {
      const [first, others] = await Promise.all(starting);
      return new Fleet(options, first!, others!);
    } catch (error) {
      for (const started of await Promise.allSettled(starting)) {
        if (started.status === 'fulfilled') await started.value.kill();
      }
      throw error;
    }
  }

  /** The replica that outages happen to. */
  get first(): Child {
    return this.#first;
  }

  get faulty(): string {
    return this.endpoints[0]!;
  }

  /** Starts the first replica again, at its old address and with an empty cache. */
  async restart(): Promise<void> {
    const [port] = this.#first.ports;
    await this.#first.kill();
    this.#first = await Child.start({ kind: 'replicas', replicas: [{ ...this.#options, port: port! }] });
  }

  /** Breaks the metrics pages of all replicas. */
  breakMetrics(fault: MetricsFault): void {
    for (const child of [this.#first, this.#others]) child.tell({ kind: 'metrics', fault });
  }

  async close(): Promise<void> {
    await Promise.all([this.#first.kill(), this.#others.kill()]);
  }
}

/** A control plane at a fixed port, which may be absent. */
export class ControlPlaneProcess {
  readonly #options: ControlPlaneOptions;
  #child: Child | undefined;

  constructor(options: ControlPlaneOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#child = await Child.start({ kind: 'control-plane', options: this.#options });
  }

  freeze(): void {
    this.#child?.freeze();
  }

  thaw(): void {
    this.#child?.thaw();
  }

  async kill(): Promise<void> {
    await this.#child?.kill();
    this.#child = undefined;
  }
}
