// Policies that go by what a client sends, in a real Envoy, and a change of policy and weights while it runs.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { POLICY_CODES } from '../../control-plane/engine/frames.ts';
import { chat, words } from '../filter/gateway.ts';
import { client } from './clients.ts';
import type { Client } from './clients.ts';
import { startFilter } from './filter-gateway.ts';
import type { FilterGateway } from './filter-gateway.ts';

describe('policies', () => {
  let started: FilterGateway;
  let through: Client;
  beforeAll(async () => {
    started = await startFilter({ pods: 3, concurrency: 2 });
    through = client('HTTP/1.1', started.gateway.port);
  });
  afterAll(async () => {
    await through.close();
    await started.close();
  });

  let asked = 0;
  /** The pods that twelve prompts go to, each another one. */
  async function pods(headersOf: (i: number) => Record<string, string>): Promise<Set<string>> {
    const seen = new Set<string>();
    for (let i = 0; i < 12; i++) {
      const body = Buffer.from(JSON.stringify(chat(words(`p${asked++}-`, 3000), 'x')));
      const answer = await through.ask({ path: '/v1/chat/completions', body, headers: headersOf(i) });
      expect(answer.status).toBe(200);
      seen.add(answer.pod!);
    }
    return seen;
  }

  test('session by a header, then by a cookie, then by a hash header, each in force with the change', async () => {
    expect((await pods(() => ({ 'x-session-id': 'me' }))).size).toBe(3);
    await started.change((plane) => {
      plane.policy = POLICY_CODES.session;
      plane.policyKey = { source: 'header', name: 'x-session-id' };
    });
    expect((await pods(() => ({ 'X-Session-Id': 'me' }))).size).toBe(1);
    expect((await pods((i) => ({ 'x-session-id': `user ${i}` }))).size).toBe(3);
    await started.change((plane) => (plane.policyKey = { source: 'cookie', name: 'sid' }));
    expect((await pods(() => ({ cookie: 'a=b; sid=me' }))).size).toBe(1);
    expect((await pods((i) => ({ cookie: `sid=me${i}` }))).size).toBe(3);
    await started.change((plane) => {
      plane.policy = POLICY_CODES['prefix-header'];
      plane.policyKey = { source: 'header', name: 'x-prefix-hash' };
    });
    expect((await pods(() => ({ 'x-prefix-hash': '0123abcd' }))).size).toBe(1);
  });

  test('weights that count only the held prompt keep it where it is, and others do not', async () => {
    const body = Buffer.from(JSON.stringify(chat(words('kept', 6000), 'x')));
    const ask = async (): Promise<string> => {
      const { pod } = await through.ask({ path: '/v1/chat/completions', body, headers: {} });
      return pod!;
    };
    await started.change((plane) => {
      plane.policy = POLICY_CODES.weighted;
      plane.weights = { prefix: 1, queue: 0, kv: 0 };
    });
    const home = await ask();
    for (let i = 0; i < 8; i++) expect(await ask()).toBe(home);
    // Nothing waits, so all pods are alike.
    await started.change((plane) => (plane.weights = { prefix: 0, queue: 1, kv: 0 }));
    const seen = new Set<string>();
    for (let i = 0; i < 24; i++) seen.add(await ask());
    expect(seen.size).toBe(3);
  });
});
