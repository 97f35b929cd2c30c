// What the outages bench runs in processes of its own, so that it can really be killed, stopped and started again: simulated replicas or a
// control plane. It obeys its parent's messages, and ends with it.

import type { ControlPlaneOptions } from '../../control-plane/config.ts';
import type { Fault, MetricsFault } from '../../sim/faults.ts';
import type { Replica, ReplicaOptions } from '../../sim/server.ts';

export type Command =
  | { kind: 'replicas'; replicas: ReplicaOptions[] }
  | { kind: 'control-plane'; options: ControlPlaneOptions }
  | { kind: 'fault'; fault: Fault }
  | { kind: 'metrics'; fault: MetricsFault }
  | { kind: 'slow'; factor: number };

/** The answer to the first two. */
export type Started = { ports: number[] } | { error: string };

const replicas: Replica[] = [];
const portOf = (url: string): number => Number(new URL(url).port);

/** Each process loads what it runs only. */
async function start(command: Command): Promise<number[]> {
  if (command.kind === 'control-plane') {
    const { startControlPlane } = await import('../../control-plane/server.ts');
    return [(await startControlPlane(command.options)).port];
  }
  if (command.kind !== 'replicas') throw new Error(`nothing is started by ${command.kind}`);
  const { startReplica } = await import('../../sim/server.ts');
  for (const options of command.replicas) replicas.push(await startReplica(options));
  return replicas.map(({ url }) => portOf(url));
}

async function obey(command: Command): Promise<void> {
  if (command.kind === 'fault') for (const replica of replicas) replica.setFault(command.fault);
  else if (command.kind === 'metrics') for (const replica of replicas) replica.setMetricsFault(command.fault);
  else if (command.kind === 'slow') for (const replica of replicas) replica.setSlowFactor(command.factor);
  else {
    const answer: Started = await start(command).then(
      (ports) => ({ ports }),
      (error: unknown) => ({ error: error instanceof Error ? error.message : String(error) }),
    );
    process.send?.(answer);
  }
}

if (process.send === undefined) throw new Error('bench/outages/child.ts is started by the bench only');
process.on('message', (command: Command) => void obey(command));
process.on('disconnect', () => process.exit(0));
