// A thread of a comparison: one replay after the other, as it is told.

import { parentPort } from 'node:worker_threads';
import type { JobReport } from './jobs.ts';
import { replay, type ReplayOptions } from './run.ts';

const PROGRESS_INTERVAL_MS = 200;

const port = parentPort;
if (port === null) throw new Error('job-worker: runs as a worker thread only');

const report = (message: JobReport): void => port.postMessage(message);

async function run(options: ReplayOptions): Promise<void> {
  let toldMs = performance.now();
  try {
    const result = await replay(options, (doneShare) => {
      const nowMs = performance.now();
      if (nowMs - toldMs < PROGRESS_INTERVAL_MS) return;
      toldMs = nowMs;
      report({ kind: 'progress', doneShare });
    });
    report({ kind: 'done', result });
  } catch (error) {
    report({ kind: 'failed', message: error instanceof Error ? error.message : String(error) });
  }
}

port.on('message', (options: ReplayOptions) => {
  void run(options);
});
