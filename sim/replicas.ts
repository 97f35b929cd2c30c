// Starts many simulated replicas, spread over a few worker threads so that none of them shares a thread with the gateway's driver or the
// control plane. Each replica has its own port, and they can be slowed, broken and emptied while they run.

import { Worker } from 'node:worker_threads';
import type { Fault, ReplicaOptions, ReplicaStats } from './server.ts';

export interface ReplicasOptions extends Omit<ReplicaOptions, 'port' | 'slowFactor'> {
  count: number;
  /** Worker threads to spread the replicas over; on a small machine one is best. */
  threads?: number;
  /** Fixed ports, one per replica; free ones are taken when absent. */
  ports?: readonly number[];
  /** How many times slower each replica is; 1 where absent. */
  slowFactors?: readonly number[];
}

export interface Replicas {
  urls: string[];
  setSlowFactor(index: number, factor: number): void;
  setFault(index: number, fault: Fault): void;
  clearCache(index: number): void;
  stats(): Promise<ReplicaStats[]>;
  close(): Promise<void>;
}

/** What the threads are told. */
export type Command =
  | { kind: 'start'; index: number; options: ReplicaOptions }
  | { kind: 'slow'; index: number; factor: number }
  | { kind: 'fault'; index: number; fault: Fault }
  | { kind: 'clear'; index: number }
  | { kind: 'stats'; ask: number };

/** What the threads answer. */
export type Report =
  | { kind: 'started'; index: number; url: string }
  | { kind: 'failed'; index: number; message: string }
  | { kind: 'stats'; ask: number; stats: [number, ReplicaStats][] };

export async function startReplicas(options: ReplicasOptions): Promise<Replicas> {
  const { count, threads = 1, ports, slowFactors, ...common } = options;
  if (!Number.isInteger(count) || count < 1)
    throw new Error(`replicas: count is ${count}, expected a positive whole number`);
  if (ports !== undefined && ports.length !== count)
    throw new Error(`replicas: ${ports.length} ports for ${count} replicas`);
  const workers = Array.from(
    { length: Math.max(1, Math.min(threads, count)) },
    () => new Worker(new URL('./replica-worker.ts', import.meta.url)),
  );
  const urls: string[] = Array.from({ length: count }, () => '');
  const asked = new Map<number, (stats: [number, ReplicaStats][]) => void>();
  let asks = 0;
  const workerOf = (index: number): Worker => workers[index % workers.length]!;
  const send = (index: number, command: Command): void => workerOf(index).postMessage(command);
  const close = async (): Promise<void> => {
    await Promise.all(workers.map((worker) => worker.terminate()));
  };

  try {
    await new Promise<void>((resolve, reject) => {
      let started = 0;
      for (const worker of workers) {
        worker.on('error', reject);
        worker.on('message', (report: Report) => {
          if (report.kind === 'stats') {
            asked.get(report.ask)?.(report.stats);
          } else if (report.kind === 'failed') {
            reject(new Error(`replicas: replica ${report.index} did not start: ${report.message}`));
          } else {
            urls[report.index] = report.url;
            started += 1;
            if (started === count) resolve();
          }
        });
      }
      for (let index = 0; index < count; index++) {
        const port = ports?.[index];
        const slowFactor = slowFactors?.[index] ?? 1;
        send(index, {
          kind: 'start',
          index,
          options: { ...common, slowFactor, ...(port === undefined ? {} : { port }) },
        });
      }
    });
  } catch (error) {
    await close();
    throw error;
  }

  return {
    urls,
    setSlowFactor: (index, factor) => send(index, { kind: 'slow', index, factor }),
    setFault: (index, fault) => send(index, { kind: 'fault', index, fault }),
    clearCache: (index) => send(index, { kind: 'clear', index }),
    stats: async () => {
      const parts = await Promise.all(
        workers.map((worker) => {
          asks += 1;
          const ask = asks;
          return new Promise<[number, ReplicaStats][]>((resolve) => {
            asked.set(ask, (stats) => {
              asked.delete(ask);
              resolve(stats);
            });
            worker.postMessage({ kind: 'stats', ask } satisfies Command);
          });
        }),
      );
      return parts
        .flat()
        .toSorted((a, b) => a[0] - b[0])
        .map(([, stats]) => stats);
    },
    close,
  };
}
