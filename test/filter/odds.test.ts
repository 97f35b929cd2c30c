// What fuzzing and real clients have found, each as the shortest story that shows it.

import { expect, test } from 'vitest';
import { chat, Gateway, PATH, podAddress, words } from './gateway.ts';

const sum = (numbers: number[]): number => numbers.reduce((all, one) => all + one, 0);

test('a request whose answer comes before its own end is counted once, and not picked for', async () => {
  const gateway = (await Gateway.start()).settle();
  const stream = gateway.roots[0]!.stream({ headers: { ':method': 'POST', ':path': PATH } });
  stream.requestBody('{"messages":');
  stream.properties['upstream.address'] = podAddress(1);
  stream.responseHeaders({ ':status': '200' });
  stream.requestBody('[]}', true);
  gateway.settle();
  expect(gateway.inFlight()).toEqual([0, 1, 0, 0]);
  expect(gateway.picks(stream)).toEqual([]);
  stream.finish();
  gateway.settle();
  expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
});

test('an empty body is told from a truncated one, however its end comes', async () => {
  const gateway = (await Gateway.start()).settle();
  const headers = { ':method': 'POST', ':path': PATH };
  gateway.roots[0]!.stream({ headers, end: true }).finish();
  const byBody = gateway.roots[0]!.stream({ headers });
  byBody.requestBody('', true);
  byBody.finish();
  const byTrailers = gateway.roots[0]!.stream({ headers });
  byTrailers.requestTrailers({});
  byTrailers.finish();
  expect([gateway.fallbacks('no-body'), gateway.fallbacks('truncated')]).toEqual([3, 0]);
});

test('a worker that died with its shared data unreadable is forgotten all the same', async () => {
  for (const spoil of [(): undefined => undefined, (): Uint8Array => Uint8Array.of(1, 2, 3)]) {
    const gateway = (await Gateway.start({ workers: 2 })).settle();
    gateway.request(1, chat(words('s', 3000), 'x'));
    gateway.settle();
    expect(sum(gateway.inFlight())).toBe(1);
    gateway.roots[1]!.tick(0);
    const { shared } = gateway.host;
    const kept = new Map(shared.keys().map((key) => [key, shared.get(key)!.bytes]));
    shared.clear();
    for (const [key, bytes] of kept) {
      const value = /\/H..$/s.test(key) ? spoil() : bytes;
      if (value) shared.set(key, value);
    }
    gateway.settle(5000);
    expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
  }
});

test('after the clock was set back by an hour a dead leader is followed and its counters are forgotten', async () => {
  const gateway = (await Gateway.start({ workers: 2 })).settle();
  gateway.request(0, chat(words('s', 3000), 'x'));
  gateway.settle();
  expect(sum(gateway.inFlight())).toBe(1);
  expect(gateway.metric('warmpath_leader_elections_total.pool.pool')).toBe(1);
  gateway.host.nowMs -= 3_600_000;
  for (const root of gateway.roots) root.tickDueMs = gateway.host.nowMs;
  const before = gateway.reports.length;
  gateway.settle(2000);
  // Both are alive: reports go on, and what is in hand is still counted.
  expect(gateway.reports.length).toBeGreaterThan(before + 10);
  expect(sum(gateway.inFlight())).toBe(1);
  gateway.roots[0]!.tick(0);
  gateway.host.nowMs -= 3_600_000;
  gateway.roots[1]!.tickDueMs = gateway.host.nowMs;
  gateway.settle(5000);
  expect(gateway.reports.at(-1)!.gateway!.workers).toBe(1);
  expect(gateway.metric('warmpath_leader_elections_total.pool.pool')).toBe(2);
  expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
});

test('a callback for context 0, which no stream has, meets nobody', async () => {
  const gateway = (await Gateway.start()).settle();
  const { vm } = gateway.roots[0]!;
  const stream = gateway.request(0, chat(words('s', 3000), 'x'));
  gateway.answer(stream);
  stream.properties['upstream.address'] = podAddress(2);
  vm.invoke(stream, 'proxy_on_response_headers', 0, 10, 0);
  gateway.settle();
  expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
});
