// How much CPU the threads of another process have used, in nanoseconds, as Linux counts it for each thread. The first number of
// schedstat is exact; where the kernel has none, stat tells it in ticks of 10 ms.
import { readFileSync, readdirSync } from 'node:fs';

const tickNs = 10_000_000;

export interface CpuNs {
  /** The threads that serve requests: Envoy's workers. */
  workers: number;
  /** All threads, the main thread's with its own VM among them. */
  all: number;
}

function threadNs(path: string): number {
  try {
    return Number(readFileSync(`${path}/schedstat`, 'latin1').split(' ', 1)[0]);
  } catch {
    const stat = readFileSync(`${path}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) * tickNs;
  }
}

export class ProcessCpu {
  readonly #threads: { path: string; isWorker: boolean }[];

  /** Threads that begin later are not counted. */
  constructor(pid: number) {
    const tasks = `/proc/${pid}/task`;
    this.#threads = readdirSync(tasks).map((tid) => {
      const path = `${tasks}/${tid}`;
      return { path, isWorker: readFileSync(`${path}/comm`, 'latin1').startsWith('wrk:worker') };
    });
    if (!this.#threads.some(({ isWorker }) => isWorker)) throw new Error(`process ${pid} has no thread wrk:worker_0`);
  }

  read(): CpuNs {
    const used: CpuNs = { workers: 0, all: 0 };
    for (const { path, isWorker } of this.#threads) {
      const ns = threadNs(path);
      used.all += ns;
      if (isWorker) used.workers += ns;
    }
    return used;
  }
}

/** CPU that the threads of a process have used, as exactly as the kernel tells it. A thread that ends takes its share along. */
export function processNs(pid: number): number {
  const tasks = `/proc/${pid}/task`;
  return readdirSync(tasks).reduce((sum, tid) => sum + threadNs(`${tasks}/${tid}`), 0);
}

/** How long a process's main thread was ready to run and had to wait for a processor, in nanoseconds; 0 where the kernel does not tell. */
export function waitedNs(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'latin1').split(' ')[1]);
  } catch {
    return 0;
  }
}

/** Resident memory of a process in bytes. */
export function processMemory(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];
  if (kib === undefined) throw new Error(`process ${pid} has no memory`);
  return Number(kib) * 1024;
}
