// Policies through the whole filter: keys from headers and cookies, weights and adapters from the control plane, and changes that are in force
// after one sync.
import { expect, test } from 'vitest';
import { adapterHash } from '../../control-plane/scrape.ts';
import { POLICY_CODES } from '../../control-plane/engine/frames.ts';
import { chat, Gateway, podAddress, words } from './gateway.ts';

const { session, weighted } = POLICY_CODES;
const prefixHeader = POLICY_CODES['prefix-header'];

/** Where 24 requests with these headers go; each is answered before the next. */
function pods(gateway: Gateway, headersOf: (i: number) => Record<string, string>, worker = 0): Set<string> {
  const seen = new Set<string>();
  for (let i = 0; i < 24; i++) {
    const stream = gateway.request(worker, chat(words(`s${i}-`, 3000), 'x'), headersOf(i));
    seen.add(gateway.picks(stream)[0]!);
    gateway.answer(stream);
  }
  return seen;
}

test('session goes by a header in every worker, and by a cookie one sync after it was told so', async () => {
  const gateway = await Gateway.start({ workers: 2, policy: session });
  gateway.plane.policyKey = { source: 'header', name: 'x-session-id' };
  gateway.settle();
  const mine = pods(gateway, () => ({ 'x-session-id': 'me' }));
  expect(mine.size).toBe(1);
  expect(pods(gateway, () => ({ 'x-session-id': 'me' }), 1)).toEqual(mine);
  expect(pods(gateway, (i) => ({ 'x-session-id': `user ${i}` })).size).toBe(4);
  expect(pods(gateway, () => ({})).size).toBe(4);

  gateway.change((plane) => (plane.policyKey = { source: 'cookie', name: 'sid' }));
  gateway.settle(2 * gateway.plane.syncIntervalMs);
  const home = pods(gateway, () => ({ cookie: 'sid=me' }));
  expect(home.size).toBe(1);
  for (const cookie of ['a=b; sid=me', 'sid=me; c=d', 'xsid=you; sid=me;', ' sid=me']) {
    expect(
      pods(gateway, () => ({ cookie })),
      cookie,
    ).toEqual(home);
  }
  // No cookie of that name, so no key.
  for (const cookie of ['a=b', 'sid', 'sid=', 'Sid=me', 'xsid=me', 'sidx=me', '', ';;;']) {
    expect(pods(gateway, () => ({ cookie, 'x-session-id': 'me' })).size, cookie).toBe(4);
  }
  expect(gateway.metric('warmpath_picks_total.pool.pool.policy.session')).toBeGreaterThan(100);
});

test("prefix-header goes by the client's hash as long as loads allow it", async () => {
  const gateway = await Gateway.start({ policy: prefixHeader });
  gateway.plane.policyKey = { source: 'header', name: 'x-prefix-hash' };
  gateway.settle();
  expect(pods(gateway, () => ({ 'x-prefix-hash': 'abc' })).size).toBe(1);
  // 40 at a time: no pod has more than 13 of them.
  const open = Array.from({ length: 40 }, (_, i) =>
    gateway.request(0, chat(words(`o${i}-`, 3000), 'x'), { 'x-prefix-hash': 'abc' }),
  );
  const counts = [0, 1, 2, 3].map((i) => open.filter((one) => gateway.picks(one)[0] === podAddress(i)).length);
  expect(Math.max(...counts)).toBe(13);
});

test('weights are in force after one sync', async () => {
  const gateway = (await Gateway.start({ policy: weighted })).settle();
  const system = words('shared', 8000);
  const first = gateway.request(0, chat(system, 'x'));
  const home = gateway.picks(first)[0]!;
  gateway.answer(first);
  // A long prompt that waits at home.
  gateway.change((plane) => (plane.weights = { prefix: 1, queue: 0, kv: 0 }));
  gateway.settle(2 * gateway.plane.syncIntervalMs);
  for (let i = 0; i < 8; i++) expect(gateway.picks(gateway.request(0, chat(system, `${i}`)))[0]).toBe(home);
  gateway.change((plane) => (plane.weights = { prefix: 1, queue: 2, kv: 0 }));
  gateway.settle(2 * gateway.plane.syncIntervalMs);
  expect(gateway.picks(gateway.request(0, chat(system, 'y')))[0]).not.toBe(home);
});

test('a pod that has the adapter in use is preferred, and the policy that is for replays only is not taken', async () => {
  const gateway = await Gateway.start({ policy: POLICY_CODES['prefill-cost-first'] });
  const known = { running: 1, waiting: 0, kvUsage: 0, ageMs: 0, stale: false, ttftMs: 0, ttftRequests: 0 };
  gateway.plane.metrics = [1, 2, 3, 4].map((podId) => ({ podId, ...known }));
  gateway.plane.adapters = [{ podId: 3, hash: adapterHash('sql') }];
  gateway.settle();
  for (let i = 0; i < 12; i++) {
    const stream = gateway.request(0, chat('short', `${i}`, { model: 'sql' }));
    expect(gateway.picks(stream)[0]).toBe(podAddress(2));
    gateway.answer(stream);
  }
  expect(pods(gateway, () => ({})).size).toBe(4);
  expect(gateway.metric('warmpath_picks_total.pool.pool.policy.prefill-cost')).toBe(36);
});
