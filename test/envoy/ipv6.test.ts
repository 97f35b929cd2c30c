// Pods with IPv6 addresses in a real Envoy: what the filter writes is what Envoy finds, and what Envoy says it reached is what the filter counts.

import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { destinationHeader, servedHeader } from '../../envoy/names.ts';
import { chat, words } from '../filter/gateway.ts';
import { startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';
import { envoyVersions, eventually } from './harness.ts';

// A machine without IPv6 cannot show it; the report then counts these tests as skipped.
const hasIPv6 = Object.values(networkInterfaces()).some((one) => one?.some(({ address }) => address === '::1'));

describe.skipIf(!hasIPv6).each(envoyVersions)('Envoy %s', (version) => {
  let started: FilterGateway;
  beforeAll(async () => {
    started = await startFilter({ pods: 3, podHost: '::1', version });
  });
  afterAll(() => started.close());

  test('prompts go where their beginning is, are counted there, and a retry goes to the next of the pick', async () => {
    const { gateway, plane } = started;
    const system = words('held', 4000);
    const ask = (user: string): ReturnType<typeof gateway.chat> => gateway.chat(chat(system, user, { stream: false }));
    const { pod: home } = await ask('first');
    for (let i = 0; i < 8; i++) {
      const { pod, headers } = await ask(`next ${i}`);
      expect(pod).toBe(home);
      expect(headers[servedHeader]).toBe(gateway.pods.find(({ name }) => name === home)!.endpoint);
    }
    const refuses = gateway.pods.find(({ name }) => name === home)!;
    const picks = String(refuses.requests.at(-1)!.headers[destinationHeader]).split(',');
    expect(picks[0]).toMatch(/^\[::1\]:\d+$/);
    expect(picks.toSorted()).toEqual(gateway.pods.map(({ endpoint }) => endpoint).toSorted());
    const stats = await gateway.envoy.stats('warmpath_moved');
    expect(Object.values(stats).reduce((sum, value) => sum + value, 0)).toBe(0);

    refuses.behaviour = { status: 503 };
    const answer = await ask('last');
    expect([answer.status, answer.pod === home]).toEqual([200, false]);
    await eventually('nothing is in flight', () => plane.reports.at(-1)!.load!.every(({ inFlight }) => inFlight === 0));
  });
});
