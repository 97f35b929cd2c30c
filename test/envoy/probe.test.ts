// The probe in a real Envoy: it must see what it sees in the Node host, and what test/host claims about configuration changes, traps
// and shared data must be what Envoy does.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requestStory, startStory, storyConfiguration, storyPath, storyRequest, storyResponse } from '../host/story.ts';
import { envoyVersions, eventually, startGateway } from './harness.ts';
import type { Gateway } from './harness.ts';

/** What the probe said, by thread of Envoy. */
async function said(gateway: Gateway): Promise<Map<string, string[]>> {
  const threads = new Map<string, string[]>();
  for (const line of (await gateway.envoy.log()).split('\n')) {
    const match = /^\[[^\]]*\]\[(\d+)\].* wasm log(?: [\w-]+)?: (.*)$/.exec(line);
    if (match) threads.set(match[1]!, [...(threads.get(match[1]!) ?? []), match[2]!]);
  }
  return threads;
}

/** The lines of the one worker. */
async function worker(gateway: Gateway): Promise<string[]> {
  return (
    [...(await said(gateway)).values()].find((lines) => lines.some((line) => line.startsWith('request_headers'))) ?? []
  );
}

describe.each([...envoyVersions])('Envoy %s', (version) => {
  let gateway: Gateway;

  beforeAll(async () => {
    gateway = await startGateway({
      version,
      pods: [{ body: storyResponse }, {}],
      wasm: 'probe',
      concurrency: 1,
      pluginConfig: storyConfiguration,
      drainSeconds: 1,
    });
  });

  afterAll(() => gateway.close());

  test('tells the story of the Node host', async () => {
    const pod = gateway.pods[0]!.endpoint;
    const answer = await gateway.send({ path: storyPath, headers: { 'x-probe-pick': pod }, body: storyRequest });
    expect(answer.body.toString()).toBe(storyResponse);
    const lines = await eventually('the stream is deleted', async () => {
      const seen = await worker(gateway);
      return seen.includes('delete 2') && seen;
    });
    expect(lines).toEqual([...startStory('gateway'), ...requestStory(2, 1, 'pool', pod)]);
  });

  test('a new configuration makes a new root in the same VM; the old one ends after the drain time', async () => {
    await gateway.reconfigure({ pluginConfig: 'tick' });
    const lines = await eventually('the old root is deleted', async () => {
      const seen = await worker(gateway);
      return seen.includes('delete 1') && seen;
    });
    expect(lines).toEqual(
      expect.arrayContaining(['create 3 0', 'vm_start 3', 'configure 3 gateway tick', 'done 1', 'delete 1']),
    );
    // The worker's VM and the main thread's count in one shared value, and the base VM does not tick.
    const threads = [...(await said(gateway)).values()];
    const counts = threads.flat().flatMap((line) => /^tick \d+ (\d+) 0$/.exec(line)?.[1] ?? []);
    expect(threads.filter((one) => one.some((line) => line.startsWith('tick'))).length).toBe(2);
    expect(new Set(counts).size).toBe(counts.length);
  });

  test('a refused configuration is an error that names the plugin, and the old one stays in force', async () => {
    await expect(gateway.reconfigure({ pluginConfig: 'refuse' })).rejects.toThrow(
      /Unable to create Wasm plugin gateway/,
    );
    expect((await gateway.send({ path: storyPath, body: '{}' })).status).toBe(200);
    await gateway.reconfigure({ pluginConfig: storyConfiguration });
  });

  test('a trap says where; the next requests are served and picked by a new VM', async () => {
    const pod = gateway.pods[1]!;
    const trapped = await gateway.send({ path: storyPath, headers: { 'x-probe-trap': 'yes' }, body: '{}' });
    expect(trapped.status).toBe(503);
    expect(await gateway.envoy.log()).toMatch(/abort: Index out of range at \S+:\d+:\d+/);
    await eventually(
      'picks are obeyed again',
      async () => {
        const headers = { 'x-probe-pick': pod.endpoint };
        const answers = await Promise.all(
          [1, 2, 3, 4].map(() => gateway.send({ path: storyPath, headers, body: '{}' })),
        );
        return answers.every((answer) => answer.status === 200 && answer.pod === pod.name);
      },
      500,
    );
  });
});
