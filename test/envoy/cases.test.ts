// The pairs of requests that say what block keys must do, read by filter.wasm in a real Envoy: its keys are those that it tells the
// control plane.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compareKeys, loadCases } from '../cases.ts';
import type { KeysOf, PrefixCase } from '../cases.ts';
import { touchedKeys } from '../filter/control-plane.ts';
import { startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';
import { envoyVersions, eventually } from './harness.ts';

const { cases } = loadCases();
/** Keys come with the next sync, which is 50 ms away at most, unless there are none. */
const keysMsMax = 150;

describe.each([...envoyVersions])('filter.wasm in Envoy %s', (version) => {
  let started: FilterGateway;
  beforeAll(async () => {
    started = await startFilter({ version, pods: 2, concurrency: 2 });
  });
  afterAll(() => started.close());

  async function fallbacks(): Promise<Record<string, number>> {
    return started.gateway.envoy.stats('warmpath_fallbacks_total');
  }

  async function read(path: string, body: string): Promise<KeysOf> {
    const before = await fallbacks();
    started.plane.reports.length = 0;
    const answer = await started.gateway.send({ path, body });
    expect([answer.status, answer.body.toString() === body]).toEqual([200, true]);
    const answeredMs = performance.now();
    let reason: string | undefined;
    await eventually('keys or a reason', async () => {
      if (touchedKeys(started.plane).keys.length > 0) return true;
      // Counters take longer to ask for than keys take to come.
      if (performance.now() - answeredMs < keysMsMax) return false;
      const after = await fallbacks();
      reason = Object.keys(after).find((name) => after[name] !== (before[name] ?? 0));
      return reason !== undefined;
    });
    return { ...touchedKeys(started.plane), reason: reason?.split('.').at(-1) ?? null };
  }

  async function judge(one: PrefixCase): Promise<string[]> {
    await started.change((plane) => (plane.toolsPosition = one.toolsPosition ?? 'auto'));
    const sides = new Map<string, KeysOf>();
    for (const body of [one.a, one.b]) sides.set(body, await read(one.path, body));
    return compareKeys(one, (_path, body) => sides.get(body)!);
  }

  test.each(cases)('$name', async (one) => {
    expect(await judge(one)).toEqual([]);
  });
});
