// The load driver against replicas of its own: what it measures, and how it counts what goes wrong.

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { drive } from '../../sim/drive.ts';
import { startReplicas } from '../../sim/replicas.ts';
import { startReplica } from '../../sim/server.ts';
import { StreamReader } from '../../sim/sse.ts';
import { textOf } from '../../sim/tokens.ts';
import { roundRobin, runVirtual } from '../../sim/virtual.ts';
import { dialog, oneRequest, type Session, type Workload } from '../../sim/workload.ts';
import { workload } from '../../sim/workloads.ts';

function small(sessions: () => Session[]): Workload {
  return { id: 'test', seed: 1, engine: 'H100-8B', replicas: 2, seconds: 1, published: [], sessions };
}

const ask = (id: string, startMs: number, seed: number, measured = true): Session =>
  oneRequest(id, startMs, 6, () => [{ role: 'user', content: textOf(seed, 400) }], measured);

describe('stream reader', () => {
  const stream =
    'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n' +
    'data: {"choices":[{"delta":{"content":" caf\u00e9 \\"x\\\\"}}]}\n\n' +
    'data: {"choices":[{"delta":{"content":" b"}}]}\n\n' +
    'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}\n\n' +
    'data: [DONE]\n\n';

  test('reads the same wherever the bytes are cut', () => {
    const bytes = Buffer.from(stream);
    for (let size = 1; size <= bytes.length; size++) {
      const reader = new StreamReader();
      for (let at = 0; at < bytes.length; at += size) reader.feed(bytes.subarray(at, at + size), at);
      expect(reader).toMatchObject({
        answer: ' caf\u00e9 "x\\ b',
        contentEvents: 2,
        usage: { promptTokens: 9, cachedTokens: 4, outputTokens: 2 },
        done: true,
        error: null,
      });
    }
  });

  test('an error event is an error', () => {
    const reader = new StreamReader();
    reader.feed(Buffer.from('data: {"error":{"message":"EngineCore died"}}\n\ndata: [DONE]\n\n'), 0);
    expect(reader.error).toContain('EngineCore died');
  });
});

describe('against replicas', () => {
  test('requests, hits, pods and times are told; warming requests are not counted', async () => {
    const replicas = await startReplicas({ engine: 'H100-8B', count: 2, model: 'm', threads: 1 });
    try {
      const load = small(() => [
        ask('warm', 0, 1, false),
        ask('warm too', 0, 1, false),
        ask('one', 150, 1),
        ask('two', 150, 1),
        dialog('talk', 300, [
          { add: () => [{ role: 'user', content: textOf(2, 100) }], outputTokens: 40, thinkMs: 0 },
          { add: () => [{ role: 'user', content: textOf(3, 10) }], outputTokens: 5, thinkMs: 20 },
        ]),
      ]);
      const done: number[] = [];
      const { summary, records, lagMs } = await drive({
        baseUrl: replicas.urls,
        workload: load,
        model: 'm',
        onProgress: (progress) => done.push(progress.done),
      });
      expect(summary).toMatchObject({ requests: 4, failed: 0, hung: 0, busiestPodShare: 1 });
      expect(done).toEqual([1, 2, 3, 4, 5, 6]);
      const one = records.find(({ session }) => session === 'one')!;
      expect(one).toMatchObject({ promptTokens: 408, cachedTokens: 400, outputTokens: 6, status: 200, error: null });
      expect(one.ttftMs).toBeGreaterThan(8);
      expect(one.tpotMs).toBeGreaterThan(7);
      expect(one.e2eMs).toBeGreaterThan(8.5 * 6);
      expect(replicas.urls).toContain(`http://${one.pod}`);
      const turns = records.filter(({ session }) => session === 'talk').map(({ promptTokens }) => promptTokens);
      // The second turn has the answer of 40 tokens, the new 10, and two messages' marks more.
      expect(turns).toEqual([108, 108 + 40 + 10 + 10]);
      expect(lagMs.max).toBeGreaterThanOrEqual(0);
      const stats = await replicas.stats();
      expect(stats.map(({ url }) => url)).toEqual(replicas.urls);
      expect(stats.reduce((sum, { finished }) => sum + finished, 0)).toBe(6);
    } finally {
      await replicas.close();
    }
  });

  test('real time and virtual time tell the same story', async () => {
    const load = workload('W3s', 5, { seconds: 2 });
    const expected = runVirtual({ workload: load, chooser: roundRobin() }).summary;
    const replicas = await startReplicas({ engine: 'H100-8B', count: 4, model: 'm' });
    try {
      const { summary } = await drive({ baseUrl: replicas.urls, workload: load, model: 'm' });
      expect(summary).toMatchObject({
        requests: expected.requests,
        failed: 0,
        busiestPodShare: expected.busiestPodShare,
      });
      expect(Math.abs(summary.hitShareTokens - expected.hitShareTokens)).toBeLessThan(0.05);
      // Never faster than the model; slower by what this machine is busy with.
      expect(summary.e2eMs.mean / expected.e2eMs.mean).toBeGreaterThan(0.95);
      expect(summary.e2eMs.mean / expected.e2eMs.mean).toBeLessThan(5);
    } finally {
      await replicas.close();
    }
  });

  test('a broken replica fails requests, a frozen one hangs them, a slow one is slow', async () => {
    const replica = await startReplica({ engine: 'H100-8B', model: 'm' });
    const options = { baseUrl: replica.url, model: 'm', timeoutMs: 400 };
    try {
      replica.setFault('error');
      const broken = await drive({ ...options, workload: small(() => [ask('a', 0, 1)]) });
      expect(broken.summary).toMatchObject({ requests: 1, failed: 1, hung: 0 });
      expect(broken.records[0]).toMatchObject({ status: 500, error: 'status 500', ttftMs: null });
      replica.setFault('freeze');
      const frozen = await drive({ ...options, workload: small(() => [ask('b', 0, 1)]) });
      expect(frozen.summary).toMatchObject({ requests: 1, failed: 1, hung: 1 });
      await expect.poll(() => replica.stats().waiting).toBe(0);
      replica.setFault('none');
      replica.setSlowFactor(4);
      const slow = await drive({ ...options, timeoutMs: 5000, workload: small(() => [ask('c', 0, 3)]) });
      expect(slow.summary.failed).toBe(0);
      expect(slow.records[0]!.tpotMs).toBeGreaterThan(4 * 8);
    } finally {
      await replica.close();
    }
  });

  test('a signal stops what is not yet sent', async () => {
    const replica = await startReplica({ engine: 'H100-8B', model: 'm' });
    try {
      const stop = new AbortController();
      const running = drive({
        baseUrl: replica.url,
        model: 'm',
        workload: small(() => [ask('now', 0, 1), ask('never', 60_000, 2)]),
        signal: stop.signal,
        onProgress: () => stop.abort(),
      });
      expect((await running).records.map(({ session }) => session)).toEqual(['now']);
    } finally {
      await replica.close();
    }
  });

  test('a stream that breaks off is a failure', async () => {
    const server: Server = createServer((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"choices":[{"delta":{"content":" a"}}]}\n\n');
      setTimeout(() => response.destroy(), 20);
    });
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    try {
      const { port } = server.address() as AddressInfo;
      const { records } = await drive({
        baseUrl: `http://127.0.0.1:${port}`,
        model: 'm',
        workload: small(() => [ask('cut', 0, 1)]),
      });
      expect(records[0]).toMatchObject({ failed: true, hung: false, status: 200 });
      expect(records[0]!.ttftMs).toBeGreaterThan(0);
    } finally {
      server.close();
    }
  });
});
