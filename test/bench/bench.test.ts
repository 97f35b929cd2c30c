// The benches still run: each of them once with few operations, and their command line.
import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { gatewaysReport, textOf as gatewaysText } from '../../bench/gateways.ts';
import { keysCases } from '../../bench/keys.ts';
import { reportOf, textOf, type Report } from '../../bench/measure.ts';
import { textOf as overheadText, type OverheadReport } from '../../bench/overhead.ts';
import { textOf as affinityText, type AffinityReport } from '../../bench/affinity.ts';
import { textOf as controlPlaneText, type ControlPlaneReport } from '../../bench/control-plane.ts';
import { measureMemory, textOf as memoryText } from '../../bench/memory.ts';
import { measureNouns } from '../../bench/nouns.ts';
import { textOf as peersText, type PeersReport } from '../../bench/peers.ts';
import { policyCases } from '../../bench/policy.ts';
import { textOf as replicationText, type ReplicationReport } from '../../bench/replication.ts';
import { residencyCases } from '../../bench/residency.ts';
import { streamsReport, textOf as streamsText } from '../../bench/streams.ts';
import { envoyVersionDefault } from '../../envoy/fetch.ts';

const root = dirname(dirname(import.meta.dirname));

describe.each([
  ['keys', keysCases, 8],
  ['residency', residencyCases, 9],
  ['policy', policyCases, 26],
] as const)('bench/%s.ts', (bench, casesOf, count) => {
  test('measures every case', async () => {
    const report = reportOf(bench, await casesOf(true), true);
    expect(report.results.length).toBe(count);
    for (const { name, nsMin, nsMedian, nsMax } of report.results) {
      expect(nsMin, name).toBeGreaterThan(0);
      expect(nsMedian, name).toBeGreaterThanOrEqual(nsMin);
      expect(nsMax, name).toBeGreaterThanOrEqual(nsMedian);
      expect(textOf(report)).toContain(name);
    }
  });
});

test('bench/nouns.ts times every step in Node and in a real Envoy', async () => {
  const { rows } = await measureNouns({ pods: [4], turns: 1, envoy: envoyVersionDefault });
  expect(rows).toHaveLength(9);
  for (const { noun, ns } of rows) {
    for (const one of [ns.node, ns.envoy]) expect(one.min, noun).toBeGreaterThan(0);
  }
  const [small, , large] = rows;
  expect(large!.ns.envoy.median).toBeGreaterThan(small!.ns.envoy.median);
});

test('--json prints one document with machine and versions', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, 'bench/policy.ts'), '--json', '--tiny']);
  const report = JSON.parse(stdout) as Report;
  expect(report).toMatchObject({ bench: 'policy', versions: { node: process.versions.node } });
  expect(report.machine).not.toBe('');
});

test('bench/overhead.ts measures three chains in one Envoy', async () => {
  const size = ['--sizes', '1,16', '--rounds', '2', '--requests', '40', '--events', '80'];
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, 'bench/overhead.ts'), '--json', ...size]);
  const report = JSON.parse(stdout) as OverheadReport;
  expect(report.comparisons.map(({ sizeKiB, boundUs }) => [sizeKiB, boundUs])).toEqual([
    [1, 15],
    [16, 30],
    [null, 2],
  ]);
  for (const { what, cells, filterUs, boundUs, holds } of report.comparisons) {
    expect(cells.map(({ chain }) => chain)).toEqual(['plain', 'empty', 'warmpath']);
    for (const { workerUs, allUs } of cells) {
      expect(workerUs.min, what).toBeGreaterThan(0);
      expect(allUs.median, what).toBeGreaterThanOrEqual(workerUs.median);
    }
    expect(holds, what).toBe(filterUs.median < (boundUs ?? 0));
    expect(overheadText(report)).toContain(holds ? 'holds' : 'DOES NOT HOLD');
  }
});

const run = async <T>(bench: string, ...args: string[]): Promise<T> => {
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, `bench/${bench}.ts`), '--json', ...args]);
  return JSON.parse(stdout) as T;
};

test('bench/peers.ts compares what needs no other router', async () => {
  const arms = ['direct', 'plain', 'empty', 'warmpath'];
  const size = ['--sizes', '1', '--backends', '2', '--rounds', '1', '--requests', '40'];
  const report = await run<PeersReport>('peers', '--arms', arms.join(','), ...size);
  expect(report.cells.map(({ arm }) => arm)).toEqual(arms);
  for (const { arm, cpuUs, p50Ms, p99Ms, addedP50Ms } of report.cells) {
    expect(cpuUs === null, arm).toBe(arm === 'direct');
    expect(addedP50Ms === null, arm).toBe(arm === 'direct');
    expect(p99Ms.median, arm).toBeGreaterThanOrEqual(p50Ms.median);
    expect(peersText(report)).toContain(arm);
  }
});

test('bench/control-plane.ts measures a real control plane', async () => {
  const load = ['--pods', '20', '--gateways', '3', '--seconds', '1', '--rounds', '1'];
  const whole = await run<ControlPlaneReport>('control-plane', ...load).catch((error: unknown) => {
    // So few syncs make a p99 of the slowest one, which a busy machine makes slower than the bound: exit code 1 comes with a whole report.
    return JSON.parse((error as { stdout: string }).stdout) as ControlPlaneReport;
  });
  const { spans, broken, ...report } = whole;
  expect(spans).toHaveLength(1);
  expect(spans[0]?.failed).toBe(0);
  expect(spans[0]?.syncs).toBeGreaterThan(10);
  expect(spans[0]?.cores).toBeGreaterThan(0);
  expect(spans[0]?.loopP99Ms).toBeGreaterThanOrEqual(0);
  expect(broken.length === 0).toBe((spans[0]?.syncP99Ms ?? 0) < 50);
  expect(controlPlaneText({ ...report, spans, broken })).toContain('20 pods each second');
});

test('bench/replication.ts runs real Envoys with the filter and without it', async () => {
  const size = ['--gateways', '2', '--workers', '1', '--rate', '40', '--seconds', '1', '--rounds', '1'];
  const report = await run<ReplicationReport>('replication', ...size).catch((error: unknown) => {
    // Ticks weigh most at so low a rate, so the bound does not hold: exit code 1 comes with a whole report.
    return JSON.parse((error as { stdout: string }).stdout) as ReplicationReport;
  });
  const { filterUs, controlPlaneUs, totalUs, upBytes, broken } = report;
  expect(controlPlaneUs.median).toBeGreaterThan(0);
  expect(totalUs.median).toBeCloseTo(filterUs.median + controlPlaneUs.median, 0);
  expect(upBytes.median).toBeGreaterThan(100);
  expect(broken.length === 0).toBe(totalUs.median < 150);
  expect(replicationText(report)).toContain('2 gateways x 1 workers');
});

test('bench/affinity.ts runs a load through two routers', async () => {
  const size = ['--loads', 'many', '--rounds', '1', '--seconds', '1'];
  const report = await run<AffinityReport>('affinity', '--arms', 'plain,warmpath', ...size).catch((error: unknown) => {
    // Which of the two is faster is not for so short a run to say: exit code 1 comes with a whole report.
    return JSON.parse((error as { stdout: string }).stdout) as AffinityReport;
  });
  expect(report.cells.map(({ arm }) => arm)).toEqual(['plain', 'warmpath']);
  for (const { arm, requestsPerSecond, failed } of report.cells) {
    expect(requestsPerSecond.median, arm).toBeGreaterThan(1);
    expect(failed, arm).toBe(0);
  }
  expect(report.cells[1]!.hitShare.median).toBeGreaterThan(report.cells[0]!.hitShare.median);
  expect(affinityText(report)).toContain('warmpath over the best other');
});

test('a VM of the filter takes its memory at the start, and no more however many requests come', async () => {
  const report = await measureMemory({ requests: 3000, pods: 64, capacityTokens: 400_000 }, () => {});
  expect(report.broken).toEqual([]);
  expect(new Set(report.readings.map(({ bytes }) => bytes)).size).toBe(1);
  expect(report.readings.at(-1)).toMatchObject({ requests: 3000 });
  expect(report.readings[0]?.bytes).toBeLessThan(32_000_000);
  expect(report.picked).toBeGreaterThan(2000);
  expect(memoryText(report)).toContain('slope 0 bytes a request');
  const small = await measureMemory({ requests: 10, pods: 64, capacityTokens: 100_000 }, () => {});
  expect(small.readings[0]?.bytes).toBeLessThan(report.readings[0]?.bytes ?? 0);
});

test('bench/gateways.ts compares several gateways with one', async () => {
  const report = await gatewaysReport({
    rows: 'W1,W6@40',
    routers: 3,
    syncInterval: 50,
    seeds: 1,
    limit: 60,
    threads: 1,
  });
  expect(report.rows.map(({ name }) => name)).toEqual(['W1', 'W6@40']);
  for (const { withMetrics, withoutMetrics, ttftMsOfOne } of report.rows) {
    expect(Math.min(withMetrics, withoutMetrics)).toBeGreaterThan(0.5);
    expect(ttftMsOfOne).toBeGreaterThan(0);
  }
  expect(gatewaysText(report)).toContain('| W6@40 |');
  await expect(gatewaysReport({ rows: 'W99', routers: 2, syncInterval: 50, seeds: 1, threads: 1 })).rejects.toThrow(
    'W99',
  );
});

test('bench/streams.ts compares answers that are not streamed with streams', async () => {
  const report = await streamsReport({ rows: 'W1,W4@20', percents: [50, 100], seeds: 2, limit: 80, threads: 1 });
  expect(report.rows.map(({ name }) => name)).toEqual(['W1', 'W4@20']);
  for (const { shares } of report.rows) {
    expect(shares.map(({ percent }) => percent)).toEqual([50, 100]);
    for (const { ratio, bySeed } of shares) {
      expect(ratio).toBeGreaterThan(0.3);
      expect(bySeed).toHaveLength(2);
    }
  }
  const above = report.rows.flatMap(({ shares }) =>
    shares.filter(({ percent, ratio }) => ratio > (percent === 50 ? 1.05 : 1.1)),
  );
  expect(report.broken).toHaveLength(above.length);
  expect(streamsText(report)).toContain('| W4@20 |');
});
