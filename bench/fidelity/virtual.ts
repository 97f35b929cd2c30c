// The same in virtual time, on the fitted engine: the picks of a real run replayed one by one, a policy left to pick for itself, and prompts sent
// one after the other to see what is forgotten.

import type { KeyReader } from '../../control-plane/engine/keys.ts';
import type { PolicyName } from '../../control-plane/engine/frames.ts';
import type { FittedEngine } from '../../sim/constants.ts';
import { Sequence } from '../../sim/engine.ts';
import { replay } from '../../sim/replay/run.ts';
import { workloadSource } from '../../sim/replay/source.ts';
import type { DriveSummary } from '../../sim/summary.ts';
import { BlockHasher } from '../../sim/tokens.ts';
import { EventQueue, VirtualReplicas } from '../../sim/virtual.ts';
import type { Workload } from '../../sim/workload.ts';
import type { Played } from './real.ts';

export interface Replayed {
  cachedTokens: number[];
  ttftMs: number[];
}

/** Sends what was sent, when it was sent and where it went; gives what the simulated engines make of each. */
export function replayPicks(played: readonly Played[], replicas: number, engine: FittedEngine): Replayed {
  const queue = new EventQueue();
  const world = new VirtualReplicas(queue, engine.constants, replicas, [], engine.blockTokens);
  const cachedTokens = played.map(() => 0);
  const ttftMs = played.map(() => 0);
  for (const [index, { sentMs, replica, tokens, outputTokens }] of played.entries()) {
    const hasher = new BlockHasher(engine.blockTokens);
    hasher.tokenIds(tokens);
    const sequence = new Sequence(hasher, outputTokens, {
      token: () => {},
      finished: (done) => {
        cachedTokens[index] = done.cachedTokens;
        ttftMs[index] = done.firstTokenMs - sentMs;
      },
    });
    queue.at(sentMs + engine.frontMs, (nowMs) => world.add(replica, sequence, nowMs));
  }
  while (queue.run());
  return { cachedTokens, ttftMs };
}

/** The workload under a policy that picks for itself, by the gateway's own code. */
export async function playVirtual(
  workload: Workload,
  policy: PolicyName,
  engine: FittedEngine,
  reader: KeyReader,
): Promise<DriveSummary> {
  const options = {
    source: workload.id,
    seed: workload.seed,
    speed: 1,
    policy,
    routers: 1,
    workers: 1,
    syncIntervalMs: 50,
    notStreamedPercent: 0,
  };
  return (await replay(options, () => {}, workloadSource(workload, reader, engine))).summary;
}

/** Prompts one after the other on one engine; gives what was cached of each. */
export function completeVirtual(
  prompts: readonly { tokens: number[]; output: number }[],
  engine: FittedEngine,
): number[] {
  const queue = new EventQueue();
  const world = new VirtualReplicas(queue, engine.constants, 1, [], engine.blockTokens);
  return prompts.map(({ tokens, output }, index) => {
    const hasher = new BlockHasher(engine.blockTokens);
    hasher.tokenIds(tokens);
    let cached = -1;
    const finished = (done: Sequence): void => void (cached = done.cachedTokens);
    queue.at(index * 3_600_000, (nowMs) =>
      world.add(0, new Sequence(hasher, output, { token: () => {}, finished }), nowMs),
    );
    while (queue.run());
    return cached;
  });
}
