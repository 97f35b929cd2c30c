// How the walk through the Dockerfile's steps runs: by itself, because it installs the dependencies twice, which takes minutes.

import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    include: ['test/images/steps.test.ts'],
    reporters: ['default', ['json', { outputFile: 'build/test-results-image.json' }]],
    testTimeout: 60_000,
    hookTimeout: 600_000,
  },
});
