// The parts of the control plane one by one: metrics text, pod identities, the log of touches, the sums of load.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseAddress } from '../../control-plane/address.ts';
import type { EndpointConfig } from '../../control-plane/config.ts';
import { loadRecords, loadRows } from '../../control-plane/engine/frames.ts';
import type { TouchChunk } from '../../control-plane/engine/frames.ts';
import { Gateways } from '../../control-plane/gateways.ts';
import { LIMITS } from '../../control-plane/limits.ts';
import { FAMILY_NAMES, readMetrics } from '../../control-plane/metrics-text.ts';
import { Pods } from '../../control-plane/pods.ts';
import { TouchLog } from '../../control-plane/touch-log.ts';
import { recordedText } from '../sim/recordings.ts';
import { metricsText, outcomes, podOutcome } from './fakes.ts';

describe('metrics text', () => {
  test('of a small sample', () => {
    expect(readMetrics(metricsText({ running: 3, kvUsage: 0.25, ttftSum: 1.5, ttftCount: 2 }))).toEqual({
      running: 3,
      waiting: 2,
      kvUsage: 0.25,
      prefixQueries: 100,
      prefixHits: 40,
      ttftSecondsSum: 1.5,
      ttftCount: 2,
      cacheConfig: 1600,
      startedSeconds: 1000,
      missing: [],
      adapters: [],
    });
  });

  test('with names of older engines', () => {
    const old = metricsText()
      .replace('vllm:kv_cache_usage_perc', 'vllm:gpu_cache_usage_perc')
      .replace('vllm:prefix_cache_queries_total', 'vllm:gpu_prefix_cache_queries_total');
    expect(readMetrics(old)).toMatchObject({ kvUsage: 0.5, prefixQueries: 100, missing: [] });
    // Where an engine serves both names, the newer one counts, whichever stands first.
    const both = `vllm:gpu_cache_usage_perc 0.9\n${metricsText()}vllm:gpu_cache_usage_perc 0.8\n`;
    expect(readMetrics(both).kvUsage).toBe(0.5);
  });

  test('of several engines in one server', () => {
    const two = metricsText() + metricsText({ running: 4, kvUsage: 1 }).replaceAll('engine="0"', 'engine="1"');
    expect(readMetrics(two)).toMatchObject({ running: 5, kvUsage: 0.75, cacheConfig: 3200, startedSeconds: 1000 });
  });

  test('with values that are none', () => {
    for (const value of ['NaN', '+Inf', '-1', '', 'x']) {
      const metrics = readMetrics(metricsText({ running: value }));
      expect([value, metrics.running, metrics.missing]).toEqual([value, null, ['running']]);
    }
    const unsized = metricsText().replace('num_gpu_blocks="100"', 'num_gpu_blocks="None"');
    expect(readMetrics(unsized)).toMatchObject({ cacheConfig: null, missing: ['cacheConfig'] });
  });

  test('with braces, quotes and timestamps in the way', () => {
    const odd =
      'vllm:num_requests_running{model_name="a}b\\"c{",engine="0"} 7 1795954106970\nvllm:num_requests_waiting 2';
    expect(readMetrics(odd)).toMatchObject({ running: 7, waiting: 2 });
  });

  test('of any text at all', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(fc.string(), fc.constantFrom(...metricsText().split('\n')), fc.constantFrom('{', '"', '\\', ' ')),
        ),
        (lines) => {
          const metrics = readMetrics(lines.join('\n'));
          for (const family of FAMILY_NAMES) {
            const value = metrics[family];
            expect(value === null || (Number.isFinite(value) && value >= 0)).toBe(true);
          }
        },
      ),
    );
  });

  test('as recorded from a real engine', () => {
    expect(readMetrics(recordedText('metrics/page.prom'))).toMatchObject({
      missing: [],
      cacheConfig: 8192,
      running: 2,
      waiting: 8,
      ttftCount: 100,
      prefixHits: 45_664,
    });
  });
});

const endpoint = (text: string, more: Partial<EndpointConfig> = {}): EndpointConfig => ({
  address: parseAddress(text, 'test'),
  weight: 1,
  drain: false,
  capacityTokens: 0,
  ready: true,
  life: null,
  ...more,
});

describe('pod identities', () => {
  const [a, b] = ['10.0.0.1:80', '10.0.0.2:80'] as const;
  const idOf = (pods: Pods, text: string): number => pods.byEndpoint(text)?.id ?? 0;

  test('stay while the endpoint stays, and change when it was gone', () => {
    const pods = new Pods(0);
    expect(pods.set([endpoint(a), endpoint(b)]).added).toHaveLength(2);
    const [first, second] = [idOf(pods, a), idOf(pods, b)];
    expect(first).not.toBe(second);
    const { version } = pods;
    pods.set([endpoint(b), endpoint(a)]);
    expect([idOf(pods, a), idOf(pods, b), pods.version]).toEqual([first, second, version]);
    expect(pods.set([endpoint(b)]).removed).toEqual([first]);
    pods.set([endpoint(a), endpoint(b)]);
    expect(idOf(pods, a)).not.toBe(first);
    expect(idOf(pods, b)).toBe(second);
    pods.set([endpoint(a), endpoint(b, { weight: 2 })]);
    expect(idOf(pods, b)).toBe(second);
    expect(pods.version).toBe(version + 3);
  });

  test('are the same for another control plane that sees the same engines', () => {
    const ids = [new Pods(0), new Pods(0)].map((pods) => {
      pods.set([endpoint(a)]);
      pods.learn(a, 1234.5, 8192);
      return idOf(pods, a);
    });
    expect(ids[0]).toBe(ids[1]);
  });

  test('change with the start of the engine, but not when a start first becomes known after the id was given out', () => {
    const pods = new Pods(0);
    pods.set([endpoint(a)]);
    const id = pods.records()[0]?.podId;
    expect(pods.learn(a, 1000, null)).toEqual({ removed: [], added: [], isRestart: false });
    expect(pods.learn(a, 1000.2, null).removed).toEqual([]);
    expect(pods.learn(a, null, null).removed).toEqual([]);
    const restart = pods.learn(a, 2000, null);
    expect(restart).toEqual({ removed: [id], added: [idOf(pods, a)], isRestart: true });
    expect(idOf(pods, a)).not.toBe(id);
  });

  test("capacity: the endpoint's own, else the pool's, else the engine's", () => {
    const capacity = (pool: number, own: number): number => {
      const pods = new Pods(pool);
      pods.set([endpoint(a, { capacityTokens: own })]);
      pods.learn(a, null, 8192);
      return pods.records()[0]?.capacityTokens ?? -1;
    };
    expect([capacity(0, 0), capacity(500, 0), capacity(500, 7)]).toEqual([8192, 500, 7]);
  });
});

test('a pool takes so many gateways and no more', () => {
  const gateways = new Gateways(0);
  for (let i = 0; i < LIMITS.gateways; i++) gateways.meet(`gw-${i}`, 1n, 0);
  expect([gateways.hasRoomFor('gw-5'), gateways.hasRoomFor('another')]).toEqual([true, false]);
  gateways.sweep(LIMITS.gatewayForgottenMs + 1);
  expect([gateways.list().length, gateways.hasRoomFor('another')]).toEqual([0, true]);
});

test('two lives of a gateway that report in turn again and again are two gateways with one name, told once', () => {
  const gateways = new Gateways(0);
  const found: number[] = [];
  for (let i = 0; i < 100; i++) {
    const { gateway } = gateways.meet('gw', i % 2 === 0 ? 1n : 2n, i * 50);
    if (gateways.isDoubled(gateway, i * 50)) found.push(i);
  }
  expect(found).toEqual([LIMITS.gatewayTurns]);
  // A filter that is replaced changes its leader a few times.
  const replaced = new Gateways(0);
  for (let i = 0; i < 100; i++) {
    const { gateway } = replaced.meet('gw', i % 20 < 10 ? 1n : 2n, i * 100);
    expect(replaced.isDoubled(gateway, i * 100)).toBe(false);
  }
});

test('a gateway that reports every 20 s is not silent between its reports', () => {
  const gateways = new Gateways(0);
  const { gateway } = gateways.meet('slow', 1n, 0);
  gateways.meet('slow', 1n, 20_000);
  expect([39_000, 79_000, 81_000].map((nowMs) => gateways.isLive(gateway, nowMs))).toEqual([true, true, false]);
  const { gateway: fast } = gateways.meet('fast', 1n, 0);
  gateways.meet('fast', 1n, 50);
  expect([5_000, 5_051].map((nowMs) => gateways.isLive(fast, nowMs))).toEqual([true, false]);
});

describe('the log of touches', () => {
  const chunk = (bytes: number, content = 0): TouchChunk => ({
    bytes: new Uint8Array(bytes).fill(content),
    records: 1,
    keys: 1,
  });

  test('gives what others did since, in order and in portions', () => {
    const log = new TouchLog(1_000_000);
    const chunks = Array.from({ length: 6 }, (_, i) => chunk(100 + i, i + 1));
    chunks.forEach((c, i) => log.append(i % 2 === 0 ? 'a' : 'b', c));
    expect(log.since(0n, 'a', 1_000)).toEqual({ chunks: [chunks[1], chunks[3], chunks[5]], reaches: 6n });
    expect(log.since(4n, 'b', 1_000)).toEqual({ chunks: [chunks[4]], reaches: 6n });
    expect(log.since(0n, 'nobody', 205)).toEqual({
      chunks: [{ bytes: new Uint8Array(201).fill(1, 0, 100).fill(2, 100), records: 2, keys: 2 }],
      reaches: 2n,
    });
    expect(log.since(2n, 'nobody', 1)).toEqual({ chunks: [chunks[2]], reaches: 3n });
    expect(log.since(6n, 'nobody', 1)).toEqual({ chunks: [], reaches: 6n });
  });

  test('forgets the oldest beyond its bound, and says whom that leaves behind', () => {
    const log = new TouchLog(1_000);
    for (let i = 0; i < 5_000; i++) log.append('a', chunk(100));
    expect([log.last, log.bytes]).toEqual([5_000n, 1_000]);
    expect([4_989n, 4_990n, 5_000n, 5_001n].map((s) => log.reachesBack(s))).toEqual([false, true, true, false]);
    expect(log.since(4_990n, 'b', 10_000).chunks.map(({ records }) => records)).toEqual([10]);
  });
});

test('load of the others is what a plain sum says, whatever comes and goes', () => {
  const step = fc.record({
    name: fc.constantFrom('a', 'b', 'c', 'd'),
    incarnation: fc.constantFrom(1n, 2n),
    load: fc.array(
      fc.record({
        podId: fc.integer({ min: 1, max: 4 }),
        inFlight: fc.nat(50),
        prefillTokens: fc.nat(9_999),
        usedTokens: fc.nat(99_999),
      }),
      { maxLength: 4 },
    ),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.constantFrom('a', 'b', 'x'), (steps, except) => {
      const gateways = new Gateways(0);
      const plain = new Map<string, Map<number, number[]>>();
      for (const [nowMs, { name, incarnation, load }] of steps.entries()) {
        const met = gateways.meet(name, incarnation, nowMs);
        gateways.setLoad(met.gateway, loadRows(load.map((l) => ({ ...l, ageMs: 0, slowness: 0 }))), nowMs);
        const byPod = new Map<number, number[]>();
        for (const l of load) if (!byPod.has(l.podId)) byPod.set(l.podId, [l.inFlight, l.prefillTokens, l.usedTokens]);
        plain.set(name, byPod);
      }
      const own = gateways.list().find((gateway) => gateway.name === except) ?? null;
      const rows = loadRows([]);
      gateways.loadOfOthers(own, new Set([1, 2, 3, 4]), steps.length, rows);
      const told = loadRecords(rows);
      for (const podId of [1, 2, 3, 4]) {
        const sums = [0, 0, 0];
        for (const [name, byPod] of plain)
          if (name !== except) byPod.get(podId)?.forEach((n, i) => (sums[i] = (sums[i] ?? 0) + n));
        const record = told.find((r) => r.podId === podId);
        expect(record === undefined ? [0, 0, 0] : [record.inFlight, record.prefillTokens, record.usedTokens]).toEqual(
          sums,
        );
        if (record !== undefined) expect(record.ageMs).toBeLessThanOrEqual(steps.length);
      }
    }),
  );
});

test('absurd numbers of one gateway leave nothing behind in what the others told', () => {
  const gateways = new Gateways(0);
  const nowMs = 4_000_000_000;
  const tell = (name: string, inFlight: number, slowness: number): void => {
    const { gateway } = gateways.meet(name, 1n, nowMs);
    const load = { podId: 1, inFlight, prefillTokens: 0, usedTokens: 0, ageMs: 10, slowness };
    gateways.setLoad(gateway, loadRows(inFlight === 0 ? [] : [load]), nowMs);
  };
  tell('a', 2, 0.001);
  tell('b', 2, 0.003);
  tell('c', 0xffff_ffff, 3e38);
  tell('c', 0, 0);
  const rows = loadRows([]);
  gateways.loadOfOthers(null, new Set([1]), nowMs, rows);
  const [told] = loadRecords(rows);
  expect(told).toMatchObject({ inFlight: 4, ageMs: 10 });
  expect(told?.slowness).toBeCloseTo(0.002, 6);
});

test('outcomes of pods that come are counted however many have gone', () => {
  const gateways = new Gateways(0);
  const { gateway } = gateways.meet('gw', 1n, 0);
  const rise = (podId: number, ok: number): number | undefined =>
    gateways.outcomesSince(gateway, outcomes([podOutcome({ podId, ok })])).pods[0]?.ok;
  expect(rise(1, 5)).toBe(5);
  for (let podId = 2; podId <= LIMITS.outcomePods + 10; podId++) {
    expect(rise(podId, 1)).toBe(1);
    if (podId % 1000 === 0) expect(rise(1, 5)).toBe(0);
  }
  expect(rise(1, 7)).toBe(2);
  expect(gateway.outcomes.size).toBe(LIMITS.outcomePods);
});
