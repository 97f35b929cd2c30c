// The endpoint picker protocol in a real Envoy: metadata that binds requests to some of the pods, and the headers of clients that are for a
// picker and not for engines.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { askedHeaders } from '../../envoy/names.ts';
import { chat, words } from '../filter/gateway.ts';
import { pluginConfig, startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';
import { envoyVersions, eventually } from './harness.ts';
import type { Answer } from './harness.ts';

describe.each(envoyVersions)('Envoy %s', (version) => {
  let started: FilterGateway;
  beforeAll(async () => {
    started = await startFilter({ pods: 3, version });
  });
  afterAll(() => started.close());

  let asked = 0;
  const ask = (headers = {}): Promise<Answer> =>
    started.gateway.chat(chat(words(`p${asked++}-`, 2000), 'x', { stream: false }), headers);
  const address = (index: number): string => started.gateway.pods[index]!.endpoint;

  /** From here on all requests are bound. New roots know the pods from their first sync on. */
  async function bind(subset: string | string[]): Promise<void> {
    const { gateway } = started;
    await gateway.reconfigure({ subset, pluginConfig: { ...pluginConfig, subsetHint: true } });
    const wanted = [subset].flat().join(',');
    await eventually('the subset is in force', async () => {
      const { status, pod } = await ask();
      return (
        status === 503 ||
        (pod !== undefined && wanted.includes(gateway.pods.find(({ name }) => name === pod)!.endpoint))
      );
    });
  }

  test.each([
    ['a text', (...all: string[]) => all.join(', ')],
    ['a list', (...all: string[]) => all],
  ])('requests go to the pods that metadata names as %s, and nowhere else', async (_, form) => {
    await bind(form(address(0), address(2)));
    const seen = new Set<string>();
    for (let i = 0; i < 16; i++) seen.add((await ask()).pod!);
    expect([...seen].toSorted()).toEqual(['pod-0', 'pod-2']);
    await bind(form(address(1)));
    for (let i = 0; i < 6; i++) expect((await ask()).pod).toBe('pod-1');
  });

  test.each([
    ['no pod', ''],
    ['an empty list', []],
    ['a stranger', ['127.0.0.1:1']],
  ])('bound to %s they are answered 503, and no pod hears of them', async (_, subset) => {
    await bind(subset);
    const before = started.gateway.pods.map(({ requests }) => requests.length);
    const answer = await ask();
    expect(answer.status).toBe(503);
    expect(JSON.parse(answer.body.toString())).toHaveProperty('error.code', 503);
    expect(started.gateway.pods.map(({ requests }) => requests.length)).toEqual(before);
  });

  test('where no metadata binds them they go anywhere', async () => {
    const { listener, reconfigure } = started.gateway;
    delete listener.subset;
    await reconfigure({ pluginConfig: { ...pluginConfig, subsetHint: true } });
    await eventually('requests pass', async () => (await ask()).status === 200);
    const seen = new Set<string>();
    for (let i = 0; i < 24; i++) seen.add((await ask()).pod!);
    expect(seen.size).toBe(3);
  });

  test('engines get none of the headers that are for a picker', async () => {
    const { gateway } = started;
    await gateway.reconfigure({ subset: [0, 1, 2].map(address), pluginConfig });
    const mine = Object.fromEntries(askedHeaders.map((name) => [name, 'mine']));
    await eventually('requests pass', async () => (await ask()).status === 200);
    const { pod } = await ask({ ...mine, 'x-other': 'kept' });
    const { headers } = gateway.pods.find(({ name }) => name === pod)!.requests.at(-1)!;
    expect(headers).toHaveProperty('x-other', 'kept');
    for (const name of askedHeaders) expect(headers).not.toHaveProperty(name);
    await eventually('both are counted', async () => {
      const stats = await gateway.envoy.stats('unordered');
      return Object.values(stats).filter((value) => value === 1).length === 2;
    });
  });
});
