// No run of events, however odd, traps the filter or leaves anything counted that has ended.
// WARMPATH_FUZZ_RUNS=5000 makes as many runs, other ones each time unless WARMPATH_FUZZ_SEED says which.

import fc from 'fast-check';
import { beforeAll, expect, test } from 'vitest';
import type { FrameExports } from '../../control-plane/engine/frame-exports.ts';
import { Frames } from '../../control-plane/engine/frames.ts';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import { wasmModule } from '../host/host.ts';
import { runs } from './fuzz-steps.ts';
import { World } from './fuzz-world.ts';

const { WARMPATH_FUZZ_RUNS: wanted, WARMPATH_FUZZ_SEED: given } = process.env;
const numRuns = Number(wanted ?? 40);
// The short form is the same each time, so that it fails for whoever broke something and for nobody else.
const seed = given ?? (wanted === undefined ? '1' : undefined);
const stepsMax = 150;
const msPerRun = 300;

let frames: Frames;
beforeAll(async () => {
  frames = new Frames((await loadEngine<FrameExports>()).exports);
});

test(`${numRuns} random runs of up to ${stepsMax} events`, { timeout: 40_000 + numRuns * msPerRun }, () => {
  const module = wasmModule('filter');
  let done = 0;
  let picks = 0;
  let reports = 0;
  fc.assert(
    fc.property(runs(stepsMax), ({ isSettled, steps }) => {
      const world = new World(module, frames, isSettled);
      for (const step of steps) world.do(step);
      world.rest();
      done++;
      picks += world.picks;
      reports += world.reports;
      expect(world.counted()).toEqual({});
      expect(world.host.logged('abort')).toEqual([]);
    }),
    // A failure is made smaller for as long as there is time.
    {
      numRuns,
      interruptAfterTimeLimit: 20_000 + numRuns * msPerRun,
      ...(seed === undefined ? {} : { seed: Number(seed) }),
    },
  );
  // Without picks and reports there was nothing to go wrong.
  expect(picks).toBeGreaterThan(done);
  expect(reports).toBe(done * 2);
});
