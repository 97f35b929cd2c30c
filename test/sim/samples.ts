// What the tests against recorded answers share: the samples and the shape of a value.

import { readFileSync } from 'node:fs';

export interface Sample {
  status?: number;
  json?: unknown;
  events?: string[];
}

/** The samples of one file of test/sim/samples, by name. */
export function readSamples(name: string): Record<string, Sample> {
  return JSON.parse(readFileSync(new URL(`./samples/${name}`, import.meta.url), 'utf8')) as Record<string, Sample>;
}

/** The recordings beside the checkout; absent where there are none. */
export const fixtures = new URL('../../../shared/vllm/fixtures/', import.meta.url);

/** The fields of a value in their order, with the types of the leaves. */
export function shape(value: unknown): unknown {
  if (Array.isArray(value)) return (value as unknown[]).slice(0, 1).map(shape);
  if (typeof value === 'object' && value !== null) {
    return Object.entries(value).map(([key, field]) => [key, shape(field)]);
  }
  return value === null ? 'null' : typeof value;
}
