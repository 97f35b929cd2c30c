// How the tests run: everything in test/ except what needs a Kubernetes API server or a real vLLM (test/kube, test/vllm). Tests that start a real
// Envoy run after the others and one file at a time, because they measure time and would disturb each other on a small machine.

import { defineConfig } from 'vitest/config';

const never = ['test/kube/**', 'test/vllm/**', 'test/images/steps.test.ts', 'node_modules/**'];
const withEnvoy = ['test/envoy/**/*.test.ts'];

export default defineConfig({
  test: {
    reporters: ['default', ['json', { outputFile: 'build/test-results.json' }]],
    // Against what hangs, not against what is slow: several processes may share a processor that others use too.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: [...never, ...withEnvoy],
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'envoy',
          include: withEnvoy,
          exclude: never,
          maxWorkers: 1,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
