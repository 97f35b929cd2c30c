// One thread's share of the simulated replicas: starts them on command and passes control messages on.

import { parentPort } from 'node:worker_threads';
import type { Command, Report } from './replicas.ts';
import { startReplica, type Replica } from './server.ts';

const port = parentPort;
if (port === null) throw new Error('replica-worker: runs as a worker thread only');

const replicas = new Map<number, Replica>();
const report = (message: Report): void => port.postMessage(message);

async function obey(command: Command): Promise<void> {
  switch (command.kind) {
    case 'start':
      try {
        const replica = await startReplica(command.options);
        replicas.set(command.index, replica);
        report({ kind: 'started', index: command.index, url: replica.url });
      } catch (error) {
        report({
          kind: 'failed',
          index: command.index,
          message: error instanceof Error ? error.message : String(error),
        });
      }
      return;
    case 'slow':
      replicas.get(command.index)?.setSlowFactor(command.factor);
      return;
    case 'fault':
      replicas.get(command.index)?.setFault(command.fault);
      return;
    case 'clear':
      replicas.get(command.index)?.clearCache();
      return;
    case 'stats':
      report({
        kind: 'stats',
        ask: command.ask,
        stats: [...replicas].map(([index, replica]) => [index, replica.stats()]),
      });
      return;
  }
}

port.on('message', (command: Command) => {
  void obey(command);
});
