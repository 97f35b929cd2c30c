// What the options of `up` come to: each workload in the shape that its claims are about, unless somebody says otherwise.

import { expect, it } from 'vitest';
import { checkOptions, type UpFlags } from '../../cli/up/options.ts';

const flags = (over: Partial<UpFlags> = {}): UpFlags => ({
  policies: ['round-robin', 'prefill-cost'],
  limit: 400,
  seed: 1,
  concurrency: 2,
  port: 0,
  ...over,
});

it('runs both workloads in their own shape', () => {
  expect(checkOptions(flags()).plans).toEqual([
    { workload: 'W1', engine: 'L4-8B', replicas: 4, asSpecified: true, armsAtOnce: true },
    { workload: 'W3s', engine: 'H100-8B', replicas: 4, asSpecified: true, armsAtOnce: true },
  ]);
});

it('takes a trace as the only workload, on the engines that it is documented with', () => {
  const { plans, trace } = checkOptions(flags({ trace: 'package.json', engine: '2xH100-32B', replicas: 8 }));
  expect(plans).toMatchObject([{ workload: 'trace', engine: '2xH100-32B', replicas: 8, asSpecified: false }]);
  expect(trace).toEqual({ file: 'package.json', limit: 400 });
});

it.each([
  ['another engine', { engine: 'H100-32B' as const }],
  ['another number of replicas', { replicas: 3 }],
  ['a shorter run', { duration: 10 }],
  ['real engines', { upstream: ['http://a:1', 'http://b:1', 'http://c:1', 'http://d:1'] }],
])('does not judge claims on %s', (_, over) => {
  expect(checkOptions(flags(over)).plans.map((plan) => plan.asSpecified)).toEqual([false, false]);
});

it('counts real engines and drives arms on them one by one', () => {
  const { plans } = checkOptions(flags({ upstream: ['http://a:1', 'http://b:1'], workload: ['W1'] }));
  expect(plans).toMatchObject([{ replicas: 2, armsAtOnce: false }]);
});

it('drives arms one by one when told', () => {
  expect(checkOptions(flags({ oneByOne: true })).plans.map((plan) => plan.armsAtOnce)).toEqual([false, false]);
});
