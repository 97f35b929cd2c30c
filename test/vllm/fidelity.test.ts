// The simulator's caches against real ones: the same requests with the same picks hit the same, and a full cache forgets the same. How times and the
// order of policies compare takes a quiet machine: `npm run fidelity`.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { equalCounts, hitShare, HIT_POINTS_MAX } from '../../bench/fidelity/compare.ts';
import { evict } from '../../bench/fidelity/eviction.ts';
import { playReal, type Target } from '../../bench/fidelity/real.ts';
import { vocabularyOf } from '../../bench/fidelity/text.ts';
import { replayPicks } from '../../bench/fidelity/virtual.ts';
import { fidelityWorkload } from '../../bench/fidelity/workloads.ts';
import { upstreamHeader } from '../../envoy/names.ts';
import type { FittedEngine } from '../../sim/constants.ts';
import type { VllmOptions } from './engine.ts';
import { startRig, type Rig } from './gateway.ts';

const settings = { blockTokens: 32, blocks: 384, batchTokens: 512, sequences: 16 } satisfies VllmOptions;
/** Its times are rough: hits depend on the order of things, which a closed loop keeps. */
const engine: FittedEngine = {
  constants: {
    overheadSeconds: 0.007,
    weightsSeconds: 0,
    perTokenSeconds: 50e-6,
    perAttentionSeconds: 5e-8,
    perContextSeconds: 1e-7,
    budgetTokens: settings.batchTokens,
    sequencesMax: settings.sequences,
    kvTokens: (settings.blocks - 1) * settings.blockTokens,
    modelTokensMax: 4096,
  },
  blockTokens: settings.blockTokens,
  frontMs: 10,
};

let rig: Rig;
let target: Target;

beforeAll(async () => {
  rig = await startRig({ engines: [settings, settings] });
  target = {
    baseUrl: `http://127.0.0.1:${rig.port}`,
    endpoints: rig.engines.map(({ endpoint }) => endpoint),
    model: 'tiny',
    podHeader: upstreamHeader,
  };
}, 300_000);
afterAll(async () => {
  await rig[Symbol.asyncDispose]();
});

test('the same requests and picks: the same hit share', { timeout: 120_000 }, async () => {
  const vocabulary = await vocabularyOf(`http://${target.endpoints[0]!}`, 'tiny');
  const workload = fidelityWorkload('W1', {
    vocabulary,
    constants: engine.constants,
    replicas: 2,
    seconds: 10,
    seed: 5,
  });
  const { played, summary } = await playReal(target, workload);
  expect(played.length).toBe(110);
  expect(new Set(played.map(({ replica }) => replica)).size).toBe(2);
  const replayed = replayPicks(played, 2, engine);
  const share = hitShare(played, replayed.cachedTokens);
  expect(share).toBeGreaterThan(0.5);
  expect(Math.abs(share - summary.hitShareTokens) * 100).toBeLessThanOrEqual(HIT_POINTS_MAX);
  expect(equalCounts(played, replayed)).toBeGreaterThan(0.9 * played.length);
});

test('a full cache forgets the same', { timeout: 120_000 }, async () => {
  const { prompts, equal, realHits } = await evict(target.endpoints[0]!, 'tiny', engine, 80, 3);
  expect(realHits).toBeGreaterThan(0.2);
  expect(realHits).toBeLessThan(0.9);
  expect(equal).toBe(prompts);
});
