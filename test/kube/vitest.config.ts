// How the tests with a real Kubernetes and a real istiod run: one file at a time, since each has a cluster of its own at fixed ports.

import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    include: ['test/kube/**/*.test.ts'],
    reporters: ['default', ['json', { outputFile: 'build/test-results-kube.json' }]],
    maxWorkers: 1,
    fileParallelism: false,
    // A cluster takes 15 s to start on a machine that does nothing else, and ten times that on one that does.
    testTimeout: 400_000,
    hookTimeout: 400_000,
  },
});
