// What the VMs of one gateway are to each other: workers that know each other's picks, one leader, changes of configuration and
// code under open streams, a control plane that comes, goes and lies.

import { describe, expect, test } from 'vitest';
import { ConfigurationRefused } from '../host/host.ts';
import { chat, Gateway, words } from './gateway.ts';

const podOf = (gateway: Gateway, worker: number, body: object): string =>
  gateway.picks(gateway.request(worker, body))[0]!;

describe('workers', () => {
  test("know each other's picks a millisecond later, without a tick in between", async () => {
    const gateway = (await Gateway.start({ workers: 4, policy: 1 })).settle();
    for (let i = 0; i < 4; i++) {
      const pods = [0, 1, 2, 3].map((worker) => {
        gateway.host.advance(1.2);
        return podOf(gateway, worker, chat(words(`p${i}-${worker}-`, 1000), 'x'));
      });
      expect(new Set(pods).size).toBe(4);
      gateway.settle(295.2);
    }
  });

  test("go where a sibling's prompt went", async () => {
    const gateway = (await Gateway.start({ workers: 4 })).settle();
    for (let i = 0; i < 12; i++) {
      const system = words(`w${i}-`, 8000);
      const first = gateway.request(i % 4, chat(system, 'x'));
      const home = gateway.picks(first)[0];
      gateway.answer(first);
      for (let worker = 0; worker < 4; worker++) {
        gateway.host.advance(7);
        const stream = gateway.request(worker, chat(system, `w${worker}`));
        expect(gateway.picks(stream)[0]).toBe(home);
        gateway.answer(stream);
      }
    }
  });

  test("count each other's requests in flight", async () => {
    const gateway = (await Gateway.start({ workers: 4, policy: 1 })).settle();
    const pods = Array.from({ length: 16 }, (_, i) => {
      gateway.host.advance(1.2);
      return podOf(gateway, i % 4, chat(words(`l${i}`, 2000), 'x'));
    });
    for (const pod of new Set(pods)) expect(pods.filter((other) => other === pod)).toHaveLength(4);
    gateway.settle();
    expect(gateway.inFlight()).toEqual([4, 4, 4, 4]);
  });

  test('64 clients that start the same new prefix at once cause at most 2 more cold prefills than with one worker', async () => {
    const cold: number[] = [];
    for (const workers of [1, 4]) {
      const gateway = (await Gateway.start({ workers, pods: 8 })).settle();
      const system = words('burst', 32_000);
      const pods = Array.from({ length: 64 }, (_, i) => podOf(gateway, i % workers, chat(system, `user ${i}`)));
      cold.push(new Set(pods).size);
    }
    expect(cold[1]! - cold[0]!).toBeLessThanOrEqual(2);
  });

  test('forget a sibling that no longer ticks, and its counters with it', async () => {
    const gateway = (await Gateway.start({ workers: 2 })).settle();
    gateway.request(1, chat(words('s', 3000), 'x'));
    gateway.settle();
    expect(gateway.inFlight().reduce((sum, n) => sum + n)).toBe(1);
    gateway.roots[1]!.tick(0); // the thread hangs
    gateway.settle(5000);
    expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
  });

  test('a VM that never ticks takes no part', async () => {
    const gateway = await Gateway.start({ workers: 2 });
    gateway.host.vm('base', { ticks: false }).plugin('warmpath', JSON.stringify(gateway.configuration()));
    gateway.settle();
    expect(gateway.reports.at(-1)!.gateway!.workers).toBe(2);
  });
});

describe('the leader', () => {
  test('is one, reports every sync interval, and is followed within its lease', async () => {
    const gateway = (await Gateway.start({ workers: 4 })).settle(2000);
    const leaders = new Set(gateway.reports.map((report) => report.gateway!.incarnation));
    expect(leaders.size).toBe(1);
    expect(gateway.reports.length).toBeGreaterThan(30);
    expect(gateway.reports.length).toBeLessThan(45);
    expect(gateway.metric('warmpath_leader_elections_total.pool.pool')).toBe(1);
    const leader = gateway.roots.find((root) => [...root.vm.host.calls].length >= 0 && root.vm.name === 'worker-1')!;
    leader.tick(0);
    const before = gateway.reports.length;
    gateway.settle(2000);
    expect(gateway.reports.length).toBeGreaterThan(before + 10);
    expect(gateway.metric('warmpath_leader_elections_total.pool.pool')).toBe(2);
    expect(
      new Set(gateway.reports.slice(before).map((report) => report.gateway!.incarnation)).size,
    ).toBeLessThanOrEqual(2);
  });

  test("tells every worker's touches to the control plane, once", async () => {
    const gateway = (await Gateway.start({ workers: 4 })).settle();
    for (let i = 0; i < 40; i++) gateway.answer(gateway.request(i % 4, chat(words(`t${i}`, 3000), 'x')));
    gateway.settle();
    const touches = gateway.plane.touched();
    // Each request is told when it is picked for, and once more, by its deepest key and its answer, when it has ended.
    expect(touches.filter(({ parentKey }) => parentKey === 0n)).toHaveLength(40);
    const answers = touches.filter(({ parentKey }) => parentKey !== 0n);
    expect(answers).toHaveLength(40);
    for (const { keys } of answers) expect(keys).toHaveLength(1);
    const numbers = gateway.reports.map((report) => Number(report.gateway!.touchesNext));
    expect(numbers.at(-1)).toBe(80);
  });

  test("applies other gateways' touches in every worker", async () => {
    const gateway = (await Gateway.start({ workers: 2 })).settle();
    const system = words('elsewhere', 8000);
    const probe = (await Gateway.start({ workers: 1 })).settle();
    probe.answer(probe.request(0, chat(system, 'x')));
    probe.settle();
    const [touch] = probe.plane.touched();
    gateway.plane.touches = [{ ...touch!, podId: 3, timeMs: gateway.host.nowMs }];
    gateway.settle();
    for (const worker of [0, 1]) expect(podOf(gateway, worker, chat(system, `w${worker}`))).toBe('10.0.0.3:8000');
  });
});

describe('a change under open streams', () => {
  test('of configuration keeps the table, the counters and the one leader', async () => {
    const gateway = (await Gateway.start({ workers: 2 })).settle();
    const system = words('kept', 8000);
    const first = gateway.request(0, chat(system, 'x'));
    const home = gateway.picks(first)[0];
    gateway.answer(first);
    const open = Array.from({ length: 100 }, (_, i) => gateway.request(i % 2, chat(words(`o${i}`, 2000), 'x')));
    gateway.roots.forEach((root, i) => {
      gateway.roots[i] = root.reconfigure(JSON.stringify(gateway.configuration({ gateway: 'renamed' })));
    });
    gateway.settle();
    expect(gateway.reports.at(-1)!.gateway!.name).toBe('renamed');
    expect(gateway.inFlight().reduce((sum, n) => sum + n)).toBe(100);
    for (const stream of open) gateway.answer(stream);
    gateway.settle();
    expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
    expect(podOf(gateway, 1, chat(system, 'y'))).toBe(home);
    expect(gateway.metric('warmpath_leader_elections_total.pool.pool')).toBe(1);
  });

  test('of code: old and new VMs run side by side, streams of the old end on it, and there is one leader', async () => {
    const gateway = (await Gateway.start({ workers: 2 })).settle();
    const open = Array.from({ length: 100 }, (_, i) => gateway.request(i % 2, chat(words(`o${i}`, 2000), 'x')));
    const old = [...gateway.roots];
    gateway.roots.length = 0;
    gateway.addWorker('new-1');
    gateway.addWorker('new-2');
    for (const root of old) root.retire();
    gateway.settle();
    expect(gateway.inFlight().reduce((sum, n) => sum + n)).toBe(100);
    const fresh = gateway.request(0, chat(words('fresh', 2000), 'x'));
    expect(gateway.picks(fresh)).toHaveLength(3);
    gateway.answer(fresh);
    for (const stream of open) gateway.answer(stream);
    const before = gateway.reports.length;
    gateway.settle(3000);
    expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
    expect(new Set(gateway.reports.slice(before + 30).map((report) => report.gateway!.incarnation)).size).toBe(1);
    expect(gateway.reports.at(-1)!.gateway!.workers).toBe(2);
  });
});

describe('a control plane', () => {
  test('that never came: requests pass, nothing is picked, and it is counted', async () => {
    const gateway = await Gateway.start();
    gateway.answers = false;
    gateway.settle(5000);
    const stream = gateway.request(0, chat(words('s', 2000), 'x'));
    expect(gateway.picks(stream)).toEqual([]);
    gateway.answer(stream);
    expect(gateway.metric('warmpath_syncs_total.pool.pool.result.failed')).toBeGreaterThan(1);
    expect(gateway.metric('warmpath_syncs_total.pool.pool.result.failed')).toBeLessThan(10);
  });

  test('that stopped: gateways go on with what they know', async () => {
    const gateway = (await Gateway.start({ workers: 2 })).settle();
    gateway.answers = false;
    gateway.settle(10_000);
    const system = words('alone', 8000);
    const first = gateway.request(0, chat(system, 'x'));
    const home = gateway.picks(first)[0];
    gateway.answer(first);
    gateway.host.advance(7);
    expect(podOf(gateway, 1, chat(system, 'y'))).toBe(home);
    gateway.answers = true;
    const before = gateway.reports.length;
    gateway.settle(3000);
    expect(gateway.reports.length).toBeGreaterThan(before + 10);
  });

  test('that sends rubbish is counted and changes nothing', async () => {
    const gateway = (await Gateway.start()).settle();
    gateway.plane.spoil = (body) => body.map((byte, i) => (i === 60 ? byte ^ 1 : byte));
    gateway.change((plane) => (plane.endpoints = []));
    gateway.settle(2000);
    expect(gateway.metric('warmpath_syncs_total.pool.pool.result.rejected')).toBeGreaterThan(0);
    expect(gateway.picks(gateway.request(0, chat(words('s', 2000), 'x')))).toHaveLength(3);
  });

  test('that has no secret yet: picks are made by load', async () => {
    const gateway = await Gateway.start();
    gateway.plane.secret = undefined;
    gateway.settle();
    expect(gateway.picks(gateway.request(0, chat(words('s', 2000), 'x')))).toHaveLength(3);
    expect(gateway.fallbacks('no-secret')).toBe(1);
  });
});

describe('a table', () => {
  const prompts = (gateway: Gateway, count: number): void => {
    for (let i = 0; i < count; i++) gateway.answer(gateway.request(0, chat(words(`p${i}-`, 6000), 'x')));
    gateway.settle();
  };

  test('is sent up, whole and once, to a control plane that is new and asks', async () => {
    const gateway = (await Gateway.start({ workers: 2 })).settle();
    prompts(gateway, 12);
    const held = new Set(gateway.plane.touched().flatMap((touch) => [...touch.keys]));
    expect(held.size).toBeGreaterThan(12 * 10);
    gateway.reports.length = 0;
    gateway.plane.epoch = 8n;
    gateway.plane.wantsTable = true;
    prompts(gateway, 1);
    gateway.settle(1000);
    const table = gateway.reports.filter((report) => report.flags.includes('table'));
    const sent = table.flatMap((report) => (report.touches ?? []).flatMap((touch) => [...touch.keys]));
    expect(new Set(sent)).toEqual(held);
    expect(sent.length).toBe(held.size);
    expect(gateway.reports.at(-1)!.flags).toEqual([]);
    expect(
      gateway.reports.filter((report) => !report.flags.includes('table')).flatMap((r) => r.touches ?? []),
    ).toHaveLength(2);
  });

  test('comes to a VM that starts later', async () => {
    const gateway = (await Gateway.start()).settle();
    const system = words('before', 8000);
    const first = gateway.request(0, chat(system, 'x'));
    const home = gateway.picks(first)[0];
    gateway.answer(first);
    gateway.settle();
    gateway.plane.table = gateway.plane.touched();
    gateway.addWorker('late');
    // Nothing of the ring is left to read: what the late one knows came with the snapshot.
    for (let i = 0; i < 300; i++) gateway.answer(gateway.request(0, chat(words(`r${i}-`, 600), 'x')));
    gateway.settle(1000);
    expect(podOf(gateway, 1, chat(system, 'y'))).toBe(home);
  });
});

describe('outcomes', () => {
  test('of all workers are added up by pod, also when a worker goes', async () => {
    const gateway = (await Gateway.start({ workers: 3 })).settle();
    const usage = { prompt_tokens: 500, completion_tokens: 7, prompt_tokens_details: { cached_tokens: 0 } };
    const round = (worker: number): void => {
      gateway.answer(gateway.request(worker, chat(words(`o${worker}`, 2000), 'x')), { usage });
      gateway.answer(gateway.request(worker, chat(words(`o${worker}`, 2000), 'x')), { status: 400, sse: false });
    };
    for (let i = 0; i < 30; i++) round(i % 3);
    gateway.settle(3000);
    gateway.roots[2]!.tick(0);
    gateway.settle(3000);
    for (let i = 0; i < 10; i++) round(1);
    gateway.settle(3000);
    const outcomes = gateway.reports.findLast((report) => report.outcomes)!.outcomes!.pods;
    const sum = (name: 'ok' | 'clientErrors' | 'promptTokens' | 'completionTokens' | 'ttftCount'): number =>
      outcomes.reduce((total, pod) => total + pod[name], 0);
    expect([sum('ok'), sum('clientErrors')]).toEqual([40, 40]);
    expect([sum('promptTokens'), sum('completionTokens'), sum('ttftCount')]).toEqual([40 * 500, 40 * 7, 40]);
  });
});

describe('configuration', () => {
  test.each([
    ['{"pool":"p","blocks":1}', 'unknown key "blocks"'],
    ['{"pool":"p","bounds":{"pod":1}}', 'unknown key "pod"'],
    ['{"pool":"p","bounds":{"pods":0}}', 'bounds.pods'],
    ['{"pool":"p","bounds":{"pods":"64"}}', 'bounds.pods'],
    ['{"pool":"","sync":{"cluster":"c"}}', 'pool'],
    ['{"sync":{"cluster":"c"}}', 'pool'],
    ['{"pool":"p","sync":{"intervalMs":50}}', 'sync.cluster'],
    ['{"pool":"p"', 'comma'],
    ['{"pool":"p"} x', 'after the closing brace'],
    ['{"pool":"p","pool":"q"}', 'twice'],
    ['[]', 'object'],
    ['', 'object'],
  ])('%s is refused with %s', async (text, message) => {
    const gateway = await Gateway.start();
    expect(() => gateway.host.vm('other').plugin('other', text)).toThrow(ConfigurationRefused);
    expect(
      gateway.host.logs
        .filter(({ level }) => level === 'error')
        .map(({ message: line }) => line)
        .join(),
    ).toContain(message);
  });

  test('a refused change keeps the last good one', async () => {
    const gateway = (await Gateway.start()).settle();
    expect(() => gateway.roots[0]!.reconfigure('{"pool":"pool","oops":1}')).toThrow(ConfigurationRefused);
    gateway.settle();
    expect(gateway.picks(gateway.request(0, chat(words('s', 2000), 'x')))).toHaveLength(3);
  });
});
