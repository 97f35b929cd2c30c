// A VM that serves nothing while siblings do, as that of Envoy's main thread always and a worker's until its first connection, takes no part;
// with its first request, or when nobody serves any more, it is there again.
import { expect, test } from 'vitest';
import type { TouchRecord } from '../../control-plane/engine/frames.ts';
import { isAnswer } from './control-plane.ts';
import { chat, Gateway, words } from './gateway.ts';

const SYSTEM = words('known elsewhere', 8000);
const leaderOf = (gateway: Gateway): bigint => gateway.reports.at(-1)!.gateway!.incarnation;
const workersOf = (gateway: Gateway): number => gateway.reports.at(-1)!.gateway!.workers;

/** Worker 1 of three serves for `ms`; the first VM, which came before it and leads, does not. */
async function served(ms: number): Promise<Gateway> {
  const gateway = (await Gateway.start({ workers: 3 })).settle();
  for (let at = 0; at < ms; at += 200) {
    gateway.answer(gateway.request(1, chat(words(`s${at % 1000}`, 3000), 'x')));
    gateway.settle(200);
  }
  return gateway;
}

async function touchOf(system: string, podId: number, timeMs: number): Promise<TouchRecord> {
  const probe = (await Gateway.start()).settle();
  probe.request(0, chat(system, 'x'));
  probe.settle();
  return { ...probe.plane.touched()[0]!, podId, timeMs };
}

/** Host calls for shared data by a VM in a second. */
function reads(gateway: Gateway, worker: number): number {
  const { hostCalls } = gateway.roots[worker]!.vm;
  hostCalls.clear();
  gateway.settle(1000);
  return hostCalls.get('proxy_get_shared_data') ?? 0;
}

test('VMs without a request take part for ten seconds after others serve, then rest and leave the lead to one that serves', async () => {
  const gateway = await served(8000);
  expect(workersOf(gateway)).toBe(3);
  const before = leaderOf(gateway);
  for (let i = 0; i < 25; i++) {
    gateway.answer(gateway.request(1, chat(words('s', 3000), 'x')));
    gateway.settle(200);
  }
  expect(workersOf(gateway)).toBe(1);
  expect(leaderOf(gateway)).not.toBe(before);
  expect(gateway.metric('warmpath_leader_elections_total.pool.pool')).toBe(2);
  // It looks twice a second who is there.
  expect(reads(gateway, 0)).toBeLessThan(25);
});

test('nobody rests where nobody serves', async () => {
  const gateway = (await Gateway.start({ workers: 3 })).settle(30_000);
  expect(workersOf(gateway)).toBe(3);
  gateway.answer(gateway.request(1, chat(words('s', 3000), 'x')));
  gateway.settle(9000);
  expect(workersOf(gateway)).toBe(3);
});

test('the first request that comes to a VM at rest is picked for by what it knew, and those after the table has come by that', async () => {
  const gateway = await served(14_000);
  expect(workersOf(gateway)).toBe(1);
  gateway.plane.touches = [await touchOf(SYSTEM, 3, gateway.host.nowMs)];
  gateway.settle(200);
  // The control plane has it in its table, too.
  gateway.plane.table = [await touchOf(SYSTEM, 3, gateway.host.nowMs)];
  const matched = (): number => gateway.host.metrics.value('warmpath_matched_bytes_total.pool.pool') ?? 0;
  const before = matched();
  const first = gateway.request(2, chat(SYSTEM, 'first'));
  expect(gateway.picks(first)).toHaveLength(3);
  gateway.settle(50);
  expect(matched()).toBe(before);
  gateway.answer(first);
  gateway.settle(300);
  expect(gateway.picks(gateway.request(2, chat(SYSTEM, 'second')))).toContain('10.0.0.3:8000');
  gateway.settle(300);
  expect(matched()).toBeGreaterThan(before + 7000);
  expect(workersOf(gateway)).toBe(2);
});

test('nothing that is told while the lead changes hands is lost', async () => {
  const gateway = (await Gateway.start({ workers: 3 })).settle();
  const told = new Set<string>();
  const chains: string[] = [];
  for (let i = 0; i < 1400; i++) {
    const stream = gateway.request(1, chat(words(`n${i}`, 1500), 'x'));
    if (gateway.picks(stream).length > 0) chains.push(String(i));
    gateway.answer(stream);
    gateway.settle(10);
  }
  gateway.settle(200);
  expect(gateway.metric('warmpath_leader_elections_total.pool.pool')).toBe(2);
  for (const touch of gateway.plane.touched()) if (touch.parentKey === 0n) told.add(touch.keys.join());
  expect(chains).toHaveLength(1400);
  expect(told.size).toBe(1400);
});

test('VMs at rest take over when the one that served is gone', async () => {
  const gateway = await served(14_000);
  const before = leaderOf(gateway);
  gateway.roots[1]!.tick(0);
  gateway.settle(4000);
  expect(leaderOf(gateway)).not.toBe(before);
  expect(workersOf(gateway)).toBe(2);
  const reports = gateway.reports.length;
  gateway.settle(1000);
  expect(gateway.reports.length).toBeGreaterThan(reports + 15);
});

test('the first request that comes to a VM at rest is told to all others', async () => {
  const gateway = await served(14_000);
  gateway.reports.length = 0;
  const stream = gateway.request(2, chat(SYSTEM, 'first'));
  const [pod] = gateway.picks(stream);
  gateway.answer(stream);
  gateway.settle(300);
  const told = gateway.plane.touched().filter((touch) => !isAnswer(touch));
  expect(told.map(({ parentKey, keys }) => [parentKey, keys.length > 30])).toEqual([[0n, true]]);
  expect(gateway.picks(gateway.request(1, chat(SYSTEM, 'second')))[0]).toBe(pod);
});

test('what a pod loses while a VM rests, the VM does not take it to hold when it is there again', async () => {
  const gateway = (await Gateway.start({ workers: 3 })).settle();
  gateway.plane.touches = [await touchOf(SYSTEM, 3, gateway.host.nowMs)];
  for (let at = 0; at < 14_000; at += 200) {
    gateway.answer(gateway.request(1, chat(words(`s${at % 1000}`, 3000), 'x')));
    gateway.settle(200);
  }
  expect(workersOf(gateway)).toBe(1);
  gateway.plane.touches = [
    {
      podId: 3,
      clear: true,
      timeMs: gateway.host.nowMs,
      parentKey: 0n,
      keys: new BigUint64Array(),
      weights: new Uint32Array(),
    },
  ];
  gateway.settle(2000);
  const matched = (): number => gateway.metric('warmpath_matched_bytes_total.pool.pool');
  const before = matched();
  gateway.request(2, chat(SYSTEM, 'first'));
  expect(matched()).toBe(before);
});

test('a VM at rest that is told to serve another pool begins anew, and asks for no table again and again', async () => {
  const gateway = await served(14_000);
  gateway.roots.forEach((root, i) => (gateway.roots[i] = root.reconfigure(gateway.configuration({ pool: 'other' }))));
  const touch = await touchOf(SYSTEM, 3, gateway.host.nowMs);
  const tell = (ms: number): void => {
    for (let at = 0; at < ms; at += 50) {
      gateway.plane.touches = [{ ...touch, timeMs: gateway.host.nowMs }];
      gateway.settle(50);
    }
  };
  tell(1000);
  expect(workersOf(gateway)).toBe(3);
  tell(14_000);
  expect(workersOf(gateway)).toBe(1);
  expect(gateway.metric('warmpath_sibling_touches_lost_total.pool.other')).toBe(0);
  gateway.reports.length = 0;
  tell(5000);
  expect(gateway.reports.filter((report) => report.flags.includes('wantSnapshot'))).toEqual([]);
});

test('VMs that have served lead again after their plugin was removed and came back', async () => {
  const gateway = (await Gateway.start({ workers: 2 })).settle();
  for (const worker of [0, 1]) gateway.answer(gateway.request(worker, chat(SYSTEM, 'x')));
  gateway.settle();
  for (const root of gateway.roots) root.retire();
  gateway.settle(2000);
  gateway.roots.length = 0;
  gateway.addWorker('worker-1');
  gateway.addWorker('worker-2');
  gateway.settle(1000);
  gateway.reports.length = 0;
  gateway.settle(20_000);
  expect(gateway.reports.length).toBeGreaterThan(300);
  expect(workersOf(gateway)).toBe(2);
});

test('a leader does not come to rest with what a control plane that is away has not been told', async () => {
  const gateway = await served(6000);
  gateway.answers = false;
  gateway.reports.length = 0;
  for (let i = 0; i < 40; i++) {
    gateway.answer(gateway.request(1, chat(words(`away${i}`, 3000), 'x')));
    gateway.settle(200);
  }
  gateway.answers = true;
  gateway.settle(12_000);
  const whole = gateway.plane.touched().filter((touch) => touch.parentKey === 0n);
  expect(new Set(whole.map((touch) => touch.keys.join())).size).toBe(40);
  expect(workersOf(gateway)).toBe(1);
});
