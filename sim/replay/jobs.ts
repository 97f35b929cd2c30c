// Runs replays on all cores: one job is one policy with one seed, and the next free thread takes the next job. Jobs share nothing, so
// results depend neither on the number of threads nor on who took what.

import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { ReplayOptions, ReplayResult } from './run.ts';

/** What a thread says about the job that it was given last. */
export type JobReport =
  | { kind: 'progress'; doneShare: number }
  | { kind: 'done'; result: ReplayResult }
  | { kind: 'failed'; message: string };

export interface JobsOptions {
  threads?: number | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((doneShare: number) => void) | undefined;
}

/** The results of all jobs, in their order. The first failure ends them all. */
export async function runJobs(jobs: readonly ReplayOptions[], options: JobsOptions = {}): Promise<ReplayResult[]> {
  const { threads = availableParallelism(), signal, onProgress } = options;
  signal?.throwIfAborted();
  const results: ReplayResult[] = [];
  const shares = jobs.map(() => 0);
  let next = 0;
  const workers = Array.from(
    { length: Math.max(1, Math.min(threads, jobs.length)) },
    () => new Worker(new URL('./job-worker.ts', import.meta.url)),
  );
  const work = (worker: Worker): Promise<void> =>
    new Promise((resolve, reject) => {
      let job = -1;
      const take = (): void => {
        job = next++;
        if (job < jobs.length) worker.postMessage(jobs[job]);
        else resolve();
      };
      worker.on('error', reject);
      worker.on('exit', () => reject(new Error('replay: a thread ended early')));
      worker.on('message', (report: JobReport) => {
        if (report.kind === 'failed') {
          reject(new Error(report.message));
          return;
        }
        shares[job] = report.kind === 'done' ? 1 : report.doneShare;
        onProgress?.(shares.reduce((total, share) => total + share, 0) / jobs.length);
        if (report.kind !== 'done') return;
        results[job] = report.result;
        take();
      });
      take();
    });
  const aborted = new Promise<never>((_, reject) => {
    signal?.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
  try {
    await Promise.race([Promise.all(workers.map(work)), aborted]);
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
  return results;
}
