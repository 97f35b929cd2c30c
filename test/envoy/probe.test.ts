// The probe in a real Envoy: it must see what it sees in the Node host, and what test/host claims about configuration changes, traps
// and shared data must be what Envoy does.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  callStories,
  storyEnvironment,
  requestStory,
  startStory,
  storyConfiguration,
  storyPath,
  storyRequest,
  storyResponse,
} from '../host/story.ts';
import { envoyVersions, eventually, send, startGateway } from './harness.ts';
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
      listener: { environment: storyEnvironment },
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

  test.each(callStories)('the calls of "%s" answer as in the Node host', async (name, line) => {
    const headers = { 'x-probe-do': name, 'x-probe-removed': 'here', 'x-probe-replaced': 'old' };
    const before = (await worker(gateway)).length;
    const answer = await gateway.send({ path: storyPath, headers, body: storyRequest });
    const said = await eventually(`what "${name}" says`, async () =>
      (await worker(gateway)).slice(before).find((one) => one.startsWith('do')),
    );
    expect(said).toMatch(line);
    expect(answer.status).toBe(name === 'respond' ? 418 : 200);
    if (name === 'respond') expect(answer.headers['x-probe-answer']).toBe('yes');
    if (name !== 'headers') return;
    const seen = gateway.pods.flatMap(({ requests }) => requests).at(-1)!.headers;
    expect([seen['x-probe-added'], seen['x-probe-replaced'], seen['x-probe-removed']]).toEqual([
      'one',
      'one',
      undefined,
    ]);
  });

  test('a new configuration makes a new root in the same VM; the old one ends after the drain time', async () => {
    await gateway.reconfigure({ pluginConfig: 'tick' });
    const lines = await eventually('the old root is deleted', async () => {
      const seen = await worker(gateway);
      return seen.includes('delete 1') && seen;
    });
    const root = lines.flatMap((line) => /^create (\d+) 0$/.exec(line)?.[1] ?? []).at(-1);
    expect(root).not.toBe('1');
    const expected = [`create ${root} 0`, `vm_start ${root}`, `configure ${root} gateway tick`, 'done 1', 'delete 1'];
    expect(lines.filter((line) => expected.includes(line))).toEqual(expected);
    // The worker's VM and the main thread's count in one shared value, and the base VM does not tick.
    const threads = [...(await said(gateway)).values()];
    const counts = threads.flat().flatMap((line) => /^tick \d+ (\d+) 0$/.exec(line)?.[1] ?? []);
    expect(threads.filter((one) => one.some((line) => line.startsWith('tick'))).length).toBe(2);
    expect(new Set(counts).size).toBe(counts.length);
  });

  test('plugins of two listeners share one VM, each with a root of its own', async () => {
    const { listener, envoy, pods } = gateway;
    await envoy.update({ listeners: [listener, { ...listener, name: 'second', pluginConfig: 'two' }] });
    const configured = (await worker(gateway)).filter((line) => line.endsWith('second two'));
    expect(configured).toEqual([expect.stringMatching(/^configure \d+ second two$/)]);
    const headers = { 'x-probe-pick': pods[1]!.endpoint };
    const answer = await send(envoy.ports['second']!, { path: storyPath, headers, body: '{}' });
    expect(answer.pod).toBe('pod-1');
    await envoy.update({ listeners: [listener] });
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
