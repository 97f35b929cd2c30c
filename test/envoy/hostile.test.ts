// Bodies that nobody should send, through a real Envoy: each passes unchanged or is refused by the pod, takes little longer than around a
// filter that does nothing, is counted by its reason, and the next request is picked for as if nothing had been.

import { performance } from 'node:perf_hooks';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { KeyReader } from '../../control-plane/engine/keys.ts';
import { SECRET } from '../filter/control-plane.ts';
import { chat, words } from '../filter/gateway.ts';
import { startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';
import { envoyVersions, eventually, send } from './harness.ts';
import { hostileBodies } from './hostile-bodies.ts';

const limitBytes = 64 << 20;
/**
 * What reading a body may take on top of its way through Envoy: linear in its length, whatever stands in it. A busy machine only
 * adds to a time, so the best of some attempts counts.
 */
const overheadMsMax = (bytes: number): number => 200 + bytes / 10_000;
const attemptsMax = 4;

let reader: KeyReader;
beforeAll(async () => {
  reader = await KeyReader.create(SECRET);
});

describe.each([...envoyVersions])('Envoy %s', (version) => {
  let started: FilterGateway;
  let vms: Record<string, number>;
  /** How many VMs were ever made, and made again. */
  const made = async (): Promise<Record<string, number>> => ({
    ...(await started.gateway.envoy.stats('wasm.runtime.v8.created')),
    ...(await started.gateway.envoy.stats('vm_reload')),
  });
  beforeAll(async () => {
    started = await startFilter({
      version,
      pods: 2,
      concurrency: 1,
      listener: { requestBytesMax: limitBytes },
      beside: ['empty'],
    });
    for (const pod of started.gateway.pods) pod.behaviour = { body: 'served' };
    vms = await made();
    expect(Object.keys(vms).length).toBeGreaterThan(0);
  });
  afterAll(() => started.close());

  const counts = async (): Promise<Record<string, number>> => {
    const stats = await started.gateway.envoy.stats('warmpath_fallbacks_total');
    return Object.fromEntries(Object.entries(stats).map(([name, value]) => [name.split('.').at(-1)!, value]));
  };

  /** Time until the answer is there. */
  async function timed(port: number, path: string, body: Buffer): Promise<number> {
    const startMs = performance.now();
    const answer = await send(port, { path, headers: { 'content-type': 'application/json' }, body });
    expect([answer.status, answer.body.toString()]).toEqual([200, 'served']);
    return performance.now() - startMs;
  }

  const inFlight = (): number => started.plane.reports.at(-1)!.load!.reduce((sum, pod) => sum + pod.inFlight, 0);

  // What comes next is read and picked for as ever.
  let tests = 0;
  afterEach(async () => {
    const system = words(`after${tests++}-`, 4000);
    const [first, second] = [
      await started.gateway.chat(chat(system, 'one')),
      await started.gateway.chat(chat(system, 'two')),
    ];
    expect([first.status, second.status, second.pod]).toEqual([200, 200, first.pod]);
  });

  test.each(hostileBodies)('$name', async ({ path, make }) => {
    const body = make();
    const { reason } = reader.read(path, body);
    const best = { gateway: Infinity, empty: Infinity };
    for (let i = 0; i < attemptsMax; i++) {
      const before = await counts();
      for (const pod of started.gateway.pods) pod.requests.length = 0;
      best.gateway = Math.min(best.gateway, await timed(started.gateway.port, path, body));
      const seen = started.gateway.pods.flatMap((pod) => pod.requests);
      expect(seen.map((request) => request.body.equals(body))).toEqual([true]);
      expect(seen[0]!.headers['x-gateway-destination-endpoint']).toMatch(/^127\.0\.0\.1:\d+,/);
      const after = await counts();
      const risen = Object.entries(after).flatMap(([name, n]) =>
        n === (before[name] ?? 0) ? [] : [[name, n - (before[name] ?? 0)]],
      );
      expect(risen).toEqual(reason === null ? [] : [[reason, 1]]);

      best.empty = Math.min(best.empty, await timed(started.gateway.envoy.ports['empty']!, path, body));
      if (best.gateway - best.empty < overheadMsMax(body.length)) break;
    }
    expect(best.gateway - best.empty).toBeLessThan(overheadMsMax(body.length));
  });

  test('after all of them nothing is in flight, and the VMs are those that started', async () => {
    const before = started.plane.reports.length;
    await eventually('a report of nothing in flight', () => started.plane.reports.length > before && inFlight() === 0);
    expect(await made()).toEqual(vms);
    expect(await started.gateway.envoy.log()).not.toMatch(/trap|unreachable|Uncaught|\[(?:error|critical)\]/i);
  });
});
