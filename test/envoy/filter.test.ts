// The filter in a real Envoy with a fake control plane: picks follow the prompt, everything that was counted ends at zero however requests
// end, four workers act as one, and neither a new configuration nor new code is felt by open streams.

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { FakeControlPlane } from '../filter/control-plane.ts';
import { chat, words } from '../filter/gateway.ts';
import { pluginConfig, startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';
import { envoyVersions, eventually, wasmPath } from './harness.ts';
import type { Answer, Behaviour, Gateway } from './harness.ts';

const sse: Behaviour = { sse: { events: ['{"choices":[{"delta":{"content":"a"}}]}', '[DONE]'] } };
const inFlight = async (gateway: Gateway): Promise<number[]> =>
  Object.values(await gateway.envoy.stats('warmpath_in_flight.'));
const settled = (plane: FakeControlPlane): boolean =>
  plane.reports.at(-1)!.load!.every((pod) => pod.inFlight === 0 && pod.prefillTokens === 0 && pod.usedTokens === 0);

describe.each([...envoyVersions])('Envoy %s', (version) => {
  describe('with four workers', () => {
    let started: FilterGateway;
    let gateway: Gateway;

    beforeAll(async () => {
      started = await startFilter({
        version,
        pods: [sse, sse, sse, sse],
        concurrency: 4,
        listener: { requestBytesMax: 1 << 20 },
      });
      gateway = started.gateway;
    });
    afterAll(() => started.close());

    test('requests with one prefix go to one pod, from every worker, and prefixes are spread over the pods', async () => {
      const used = new Set<string>();
      for (let group = 0; group < 16; group++) {
        const system = words(`group${group}-`, 12_000);
        const pods = new Set<string>();
        for (let i = 0; i < 6; i++) pods.add((await gateway.chat(chat(system, `user ${i}`))).pod!);
        expect(pods.size).toBe(1);
        for (const pod of pods) used.add(pod);
      }
      // Idle pods cost the same and the choice among them is random: that 16 groups meet two pods only is 1 in 10,000.
      expect(used.size).toBeGreaterThanOrEqual(3);
    });

    test('there is one leader, and all VMs but the base one take part', async () => {
      const before = started.plane.reports.length;
      await sleep(1000);
      const reports = started.plane.reports.slice(before);
      expect(new Set(reports.map((report) => report.gateway!.incarnation)).size).toBe(1);
      // Four workers and the main thread; the base VM never ticks.
      expect(reports.at(-1)!.gateway!.workers).toBe(5);
    });

    test('in flight is zero on every pod after 10,000 requests that ended in every way', async () => {
      const behaviours: Record<string, Behaviour> = {
        stream: sse,
        json: {
          body: '{"usage":{"prompt_tokens":500,"completion_tokens":1}}',
          headers: { 'content-type': 'application/json' },
        },
        refused: { status: 400, body: '{}' },
        failed: { status: 500, body: '{}' },
        busy: { status: 503, body: '{}' },
        reset: { cut: 'before' },
        'reset-after-headers': { ...sse, cut: 'headers' },
        'reset-mid-stream': { ...sse, cut: 'first-event' },
        slow: { ...sse, delayMs: 300 },
      };
      for (const pod of gateway.pods) pod.behaviour = ({ headers }) => behaviours[String(headers['x-ending'])] ?? sse;
      const endings = [...Object.keys(behaviours), 'gone', 'gone-mid-body', 'too-large', 'not-json'];
      const total = 10_000;
      let next = 0;
      const ended = new Map<string, number>();
      const one = async (i: number): Promise<void> => {
        const ending = endings[i % endings.length]!;
        const body = JSON.stringify(chat(words(`e${i % 97}`, 1500), 'x'));
        const headers = { 'x-ending': ending };
        const path = '/v1/chat/completions';
        const abort = new AbortController();
        let answer: Promise<Answer>;
        if (ending === 'gone') {
          answer = gateway.send({ path, headers: { 'x-ending': 'slow' }, body, signal: abort.signal });
          setTimeout(() => abort.abort(), 20);
        } else if (ending === 'gone-mid-body') {
          answer = gateway.send({ path, headers: { 'content-length': '9999' }, body: [body], signal: abort.signal });
          setTimeout(() => abort.abort(), 20);
        } else if (ending === 'too-large') {
          answer = gateway.send({ path, body: Buffer.alloc(1_200_000, 'x') });
        } else {
          answer = gateway.send({ path, headers, body: ending === 'not-json' ? 'plainly not' : body });
        }
        const outcome = await answer.then(
          ({ status }) => `${status}`,
          () => 'broken',
        );
        ended.set(outcome, (ended.get(outcome) ?? 0) + 1);
      };
      await Promise.all(
        Array.from({ length: 48 }, async () => {
          while (next < total) await one(next++);
        }),
      );
      expect([...ended.values()].reduce((sum, n) => sum + n)).toBe(total);
      for (const outcome of ['200', '400', '413', '500', 'broken']) expect(ended.get(outcome)).toBeGreaterThan(100);
      await eventually('nothing in flight', () => settled(started.plane), 10_000);
      await sleep(600);
      expect(await inFlight(gateway)).toEqual([0, 0, 0, 0]);
      expect(await gateway.envoy.log()).not.toMatch(/trap|unreachable|Uncaught/i);
      for (const pod of gateway.pods) pod.behaviour = sse;
    });
  });

  test('64 clients with one new prefix at once: four workers make at most 2 more cold prefills than one', async () => {
    const cold: number[] = [];
    const slow: Behaviour = { ...sse, delayMs: 400 };
    for (const concurrency of [1, 4]) {
      const { gateway, close } = await startFilter({
        version,
        pods: [slow, slow, slow, slow, slow, slow, slow, slow],
        concurrency,
      });
      const system = words('burst', 32_000);
      const answers = await Promise.all(Array.from({ length: 64 }, (_, i) => gateway.chat(chat(system, `user ${i}`))));
      cold.push(new Set(answers.map(({ pod }) => pod)).size);
      expect(answers.every(({ status }) => status === 200)).toBe(true);
      await close();
    }
    expect(cold[1]! - cold[0]!).toBeLessThanOrEqual(2);
  });

  test('configuration changed and filter.wasm replaced under 100 open streams', async () => {
    const { promise: enough, resolve: end } = Promise.withResolvers<void>();
    const long: Behaviour = {
      sse: {
        events: [...Array.from({ length: 40 }, () => '{"choices":[{"delta":{"content":"a"}}]}'), '[DONE]'],
        gapMs: 50,
        until: enough,
      },
    };
    const { gateway, plane, close } = await startFilter({
      version,
      pods: [sse, sse, sse, sse],
      concurrency: 2,
      drainSeconds: 20,
    });
    const directory = await mkdtemp(join(tmpdir(), 'warmpath-code-'));
    try {
      const system = words('kept', 12_000);
      const home = (await gateway.chat(chat(system, 'first'))).pod;
      for (const pod of gateway.pods) pod.behaviour = long;
      const open = Array.from({ length: 100 }, (_, i) => gateway.chat(chat(words(`o${i}`, 1500), 'x')));
      await eventually(
        '100 streams in flight',
        () => plane.reports.at(-1)!.load!.reduce((n, pod) => n + pod.inFlight, 0) === 100,
      );
      for (const pod of gateway.pods) pod.behaviour = sse;

      await gateway.reconfigure({ pluginConfig: { ...pluginConfig, gateway: 'renamed' } });
      await eventually('the new name', () => plane.reports.at(-1)!.gateway!.name === 'renamed');
      expect((await gateway.chat(chat(system, 'after the change'))).pod).toBe(home);
      await eventually(
        'all 100 are still counted',
        () => plane.reports.at(-1)!.load!.reduce((n, pod) => n + pod.inFlight, 0) === 100,
      );

      // The same code with a custom section more: another module to Envoy.
      const code = await readFile(wasmPath('filter'));
      const replaced = join(directory, 'replaced.wasm');
      await writeFile(replaced, Buffer.concat([code, Buffer.from([0, 3, 2, 0x76, 0x32])]));
      await gateway.reconfigure({ wasmPath: replaced });
      await eventually(
        'picks by the new code',
        async () => (await gateway.chat(chat(words('n', 1500), 'x'))).status === 200,
      );

      end();
      const answers = await Promise.all(open);
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
      for (const { body } of answers) expect(body.toString().match(/data: /g)).toHaveLength(41);
      await eventually('nothing in flight', () => settled(plane), 10_000);
      await sleep(2500);
      const before = plane.reports.length;
      await sleep(1000);
      expect(new Set(plane.reports.slice(before).map((report) => report.gateway!.incarnation)).size).toBe(1);
      expect(plane.reports.at(-1)!.load!.every((pod) => pod.inFlight === 0)).toBe(true);
    } finally {
      await close();
      await rm(directory, { recursive: true, force: true });
    }
  });

  test('a bad configuration is refused with key, value and what was expected, and the one before stays', async () => {
    const { gateway, close } = await startFilter({ version, pods: [sse, sse] });
    try {
      await expect(gateway.reconfigure({ pluginConfig: { ...pluginConfig, bounds: { pods: -1 } } })).rejects.toThrow();
      expect(await gateway.envoy.log()).toMatch(/bounds\.pods: found «-1.*», expected a whole number from 1 to 1024/);
      const system = words('still', 8000);
      const { pod } = await gateway.chat(chat(system, 'x'));
      expect((await gateway.chat(chat(system, 'y'))).pod).toBe(pod);
    } finally {
      await close();
    }
  });
});
