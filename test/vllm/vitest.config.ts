// How the tests with real engines run: one file at a time, since two engines keep two cores busy.

import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    include: ['test/vllm/**/*.test.ts'],
    reporters: ['default', ['json', { outputFile: 'build/test-results-vllm.json' }]],
    maxWorkers: 1,
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 300_000,
  },
});
