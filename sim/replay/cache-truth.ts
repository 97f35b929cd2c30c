// What routers of a replay are told of the replicas' caches beyond their own touches: nothing, what the control plane takes from cache events
// (control-plane/kv-events/), or, as the bound of what any knowledge of caches can do, everything at every pick.

import { Occupancy } from '../../control-plane/kv-events/occupancy.ts';
import type { ReplicaEngine } from '../engine.ts';
import type { EventQueue } from '../virtual.ts';
import type { Gateways } from './gateways.ts';
import type { Router } from './router.ts';
import type { ReplayPrompt } from './source.ts';

export const CACHE_TRUTHS = ['none', 'events', 'all'] as const;
export type CacheTruth = (typeof CACHE_TRUTHS)[number];

/** From an engine's event to the last gateway: a message, a sync of 50 ms and a tick. */
const EVENT_DELAY_MS = 60;
const TOLD_INTERVAL_MS = 1000;
const RESET_RETRY_MS = 10;
const DRIFT_MAX = 0.02;

export interface CacheTruthOptions {
  truth: CacheTruth;
  /** One replica after the other drops its cache, one each time. */
  resetIntervalMs: number | undefined;
  queue: EventQueue;
  engines: readonly ReplicaEngine[];
  gateways: Gateways;
  every(intervalMs: number, action: (nowMs: number) => void): void;
}

/** Begins whatever happens by itself. */
export function startCacheTruth(options: CacheTruthOptions): void {
  const { truth, resetIntervalMs, queue, engines, gateways, every } = options;
  const { routers } = gateways;
  const counts = engines.map(() => new Occupancy());
  if (truth === 'events') {
    engines.forEach(({ cache, blockTokens }, pod) => {
      cache.watch = {
        stored: () => counts[pod]!.stored(0, 1, blockTokens),
        removed: () => {
          counts[pod]!.evicts();
          counts[pod]!.removed(0, 1);
        },
      };
    });
    const told = engines.map(() => 0);
    every(TOLD_INTERVAL_MS, () => {
      counts.forEach(({ peakTokens }, pod) => {
        if (peakTokens === 0 || Math.abs(told[pod]! / peakTokens - 1) <= DRIFT_MAX) return;
        told[pod] = peakTokens;
        for (const router of routers) router.setCapacity(pod, peakTokens);
      });
    });
  }
  if (resetIntervalMs === undefined) return;
  // As a real engine, a replica refuses to drop its cache while blocks are in use; whoever wants it asks again.
  const wanted = new Set<number>();
  let resets = 0;
  every(resetIntervalMs, (nowMs) => {
    if (nowMs > 0) wanted.add(resets++ % engines.length);
  });
  every(RESET_RETRY_MS, (nowMs) => {
    for (const pod of wanted) {
      const { running, waiting, cache } = engines[pod]!;
      if (running + waiting > 0) continue;
      wanted.delete(pod);
      cache.clear();
      counts[pod]!.cleared();
      if (truth !== 'events') continue;
      queue.at(nowMs + EVENT_DELAY_MS, () => {
        for (const router of routers) router.clear(pod, nowMs);
      });
    }
  });
}

/** Tells a router what each replica holds of a prompt, the prompts that are on their way to it included. */
export class PerfectKnowledge {
  readonly #engines: readonly ReplicaEngine[];
  readonly #onTheWay: Map<number, number>[];
  #atMs = 0;

  constructor(engines: readonly ReplicaEngine[]) {
    this.#engines = engines;
    this.#onTheWay = engines.map(() => new Map<number, number>());
  }

  tell(router: Router, prompt: ReplayPrompt, nowMs: number): void {
    const { blocks, bytes, keys, weights } = prompt;
    // Later than all that was touched before, so that nothing of it counts.
    this.#atMs = Math.max(nowMs, this.#atMs) + 0.0625;
    const most = Math.floor((blocks.tokens - 1) / blocks.blockTokens);
    for (const [pod, { cache }] of this.#engines.entries()) {
      const onTheWay = this.#onTheWay[pod]!;
      let held = 0;
      while (held < most && (cache.holds(blocks.keys[held]!) || onTheWay.has(blocks.keys[held]!))) held++;
      const heldBytes = (held * blocks.blockTokens * bytes) / blocks.tokens;
      let count = 0;
      for (let end = 0; count < keys.length && end + weights[count]! <= heldBytes; count++) end += weights[count]!;
      router.clear(pod, this.#atMs);
      const partly = { ...prompt, keys: keys.subarray(0, count), weights: weights.subarray(0, count) };
      router.touch(pod, partly, this.#atMs + 0.03125, true);
    }
  }

  sent(pod: number, { blocks }: ReplayPrompt): () => void {
    const onTheWay = this.#onTheWay[pod]!;
    const keys = blocks.keys.slice();
    for (const key of keys) onTheWay.set(key, (onTheWay.get(key) ?? 0) + 1);
    return () => {
      for (const key of keys) {
        const left = (onTheWay.get(key) ?? 1) - 1;
        if (left === 0) onTheWay.delete(key);
        else onTheWay.set(key, left);
      }
    };
  }
}
