// What the leader keeps right when something changes under it: answers of any size, another leader, another pool, a plugin that
// goes and comes back.
import { expect, test } from 'vitest';
import type { TouchRecord } from '../../control-plane/engine/frames.ts';
import { ConfigurationRefused } from '../host/host.ts';
import { chat, Gateway, words } from './gateway.ts';

const SYSTEM = words('known elsewhere', 8000);

/** The touch by which another gateway tells that pod 3 holds the system text. */
async function touchOfPodThree(nowMs: number): Promise<TouchRecord> {
  const probe = (await Gateway.start()).settle();
  probe.answer(probe.request(0, chat(SYSTEM, 'x')));
  probe.settle();
  return { ...probe.plane.touched()[0]!, podId: 3, timeMs: nowMs };
}

const podOf = (gateway: Gateway, worker: number): string | undefined => {
  const stream = gateway.request(worker, chat(SYSTEM, `w${worker}`));
  const [pod] = gateway.picks(stream);
  gateway.answer(stream);
  return pod;
};

/** Adds frames with these touches to the next answer. Returns whether that has been sent. */
function addFrames(gateway: Gateway, lists: TouchRecord[][]): () => boolean {
  const { frames } = gateway.plane;
  let hasSent = false;
  gateway.plane.spoil = (body) => {
    if (hasSent) return body;
    hasSent = true;
    const { epoch, sequence, poolHash, settingsVersion } = frames.decode(body).frame;
    const head = { kind: 'snapshot', epoch, sequence, poolHash, settingsVersion } as const;
    const more = lists.map((touches, i) =>
      frames.encode({ ...head, flags: i < lists.length - 1 ? ['more'] : [], touches }),
    );
    return Buffer.concat([body, ...more]);
  };
  return () => hasSent;
}

/** A touch of pod 4 with so many keys that nobody knows, from one number on. */
const filler = (timeMs: number, from: number, count: number): TouchRecord => ({
  podId: 4,
  clear: false,
  timeMs,
  parentKey: 0n,
  keys: BigUint64Array.from({ length: count }, (_, i) => BigInt(from + i + 1)),
  weights: new Uint32Array(count).fill(1),
});

test('an answer of several MiB is taken in frame by frame', async () => {
  const gateway = await Gateway.start({ workers: 2 });
  const { nowMs } = gateway.host;
  const large = (from: number): TouchRecord[] =>
    Array.from({ length: 10 }, (_, i) => filler(nowMs, from + i * 8000, 8000));
  const hasSent = addFrames(gateway, [large(0), large(80_000), [await touchOfPodThree(nowMs)]]);
  gateway.settle();
  expect(hasSent()).toBe(true);
  expect(gateway.metric('warmpath_syncs_total.pool.pool.result.rejected')).toBe(0);
  expect([podOf(gateway, 0), podOf(gateway, 1)]).toEqual(['10.0.0.3:8000', '10.0.0.3:8000']);
});

test('a large snapshot is applied over several ticks, in order, and to its end', async () => {
  const matchedAfter = async (ms: number, worker: number): Promise<number> => {
    const gateway = (await Gateway.start({ workers: 2, pods: 1 })).settle();
    const { nowMs } = gateway.host;
    const large = Array.from({ length: 10 }, (_, i) => ({ ...filler(nowMs, i * 8000, 8000), podId: 1 }));
    const hasSent = addFrames(gateway, [large, [{ ...(await touchOfPodThree(nowMs)), podId: 1 }]]);
    while (!hasSent()) gateway.host.advance(5);
    gateway.host.advance(ms);
    gateway.request(worker, chat(SYSTEM, 'x'));
    return gateway.metric('warmpath_matched_bytes_total.pool.pool');
  };
  for (const worker of [0, 1]) {
    expect(await matchedAfter(10, worker)).toBe(0);
    expect(await matchedAfter(50, worker)).toBeGreaterThan(7000);
  }
});

test('all that a new leader brings at once is read by VMs that read from the old one before', async () => {
  const gateway = (await Gateway.start({ workers: 3 })).settle(1000);
  const { nowMs } = gateway.host;
  const leader = gateway.reports.at(-1)!.gateway!.incarnation;
  // More frames than the old leader wrote, with what matters first: counted from 0 again, the first ones would look read.
  const rest = Array.from({ length: 9 }, (_, i) => [filler(nowMs, i * 10, 10)]);
  gateway.roots[0]!.tick(0);
  const hasSent = addFrames(gateway, [[await touchOfPodThree(nowMs)], ...rest]);
  gateway.settle(3000);
  expect(hasSent()).toBe(true);
  expect(gateway.reports.at(-1)!.gateway!.incarnation).not.toBe(leader);
  expect([podOf(gateway, 1), podOf(gateway, 2)]).toEqual(['10.0.0.3:8000', '10.0.0.3:8000']);
});

test('another pool is begun anew: nothing of the old one is said to the control plane', async () => {
  const gateway = (await Gateway.start()).settle();
  gateway.answers = false;
  for (let i = 0; i < 5; i++) gateway.answer(gateway.request(0, chat(words(`old${i}`, 3000), 'x')));
  gateway.reports.length = 0;
  gateway.answers = true;
  gateway.roots[0] = gateway.roots[0]!.reconfigure(JSON.stringify(gateway.configuration({ pool: 'other' })));
  gateway.settle();
  const [report] = gateway.reports;
  expect(report).toMatchObject({ poolHash: gateway.plane.frames.poolHash('other'), epoch: 0n, sequence: 0n });
  expect(report!.flags).toEqual(['wantSnapshot']);
  expect(gateway.plane.touched()).toEqual([]);
  expect(gateway.picks(gateway.request(0, chat(SYSTEM, 'x')))).toHaveLength(3);
});

test('a plugin that was removed and comes back asks for the table that it let go of', async () => {
  const gateway = (await Gateway.start()).settle();
  gateway.plane.table = [await touchOfPodThree(gateway.host.nowMs)];
  gateway.roots[0]!.retire();
  gateway.settle(2000);
  expect(gateway.roots[0]!.isGone).toBe(true);
  gateway.roots.length = 0;
  gateway.addWorker('worker-1');
  gateway.settle();
  expect(podOf(gateway, 0)).toBe('10.0.0.3:8000');
});

test('a VM that is no longer told where the control plane is leaves the lead to another', async () => {
  const gateway = (await Gateway.start({ workers: 2 })).settle();
  const leader = gateway.reports.at(-1)!.gateway!.incarnation;
  gateway.roots[0] = gateway.roots[0]!.reconfigure({
    pool: 'pool',
    bounds: { pods: 64, blocks: 65536, streams: 1024 },
  });
  gateway.reports.length = 0;
  gateway.settle(200);
  expect(gateway.reports.length).toBeGreaterThan(1);
  expect(gateway.reports.every((report) => report.gateway!.incarnation !== leader)).toBe(true);
});

test('a configuration that finds no place beside the old ones is refused, and accepted when they have gone', async () => {
  const gateway = (await Gateway.start()).settle();
  const change = (i: number): void => {
    gateway.roots[0] = gateway.roots[0]!.reconfigure(gateway.configuration({ gateway: `g${i}` }));
  };
  for (let i = 1; i < 64; i++) change(i);
  expect(() => change(64)).toThrow(ConfigurationRefused);
  expect(gateway.host.logged('more than 64 configurations')).toHaveLength(1);
  expect(gateway.picks(gateway.request(0, chat(SYSTEM, 'x')))).toHaveLength(3);
  gateway.settle(3000);
  change(65);
  gateway.settle();
  expect(gateway.reports.at(-1)!.gateway!.name).toBe('g65');
});

test("reports come at the interval that the pool's settings say, unless the plugin's own configuration says one", async () => {
  const gateway = (await Gateway.start()).settle();
  gateway.change((plane) => (plane.syncIntervalMs = 500));
  gateway.settle(1000);
  const reportsIn = (ms: number): number => {
    gateway.reports.length = 0;
    gateway.settle(ms);
    return gateway.reports.length;
  };
  expect(reportsIn(5000)).toBeLessThanOrEqual(11);
  const sync = { cluster: 'warmpath', intervalMs: 50 };
  gateway.roots[0] = gateway.roots[0]!.reconfigure(gateway.configuration({ sync }));
  expect(reportsIn(1000)).toBeGreaterThan(15);
});

test('a VM beyond those that there are segments for says so, once', async () => {
  const gateway = (
    await Gateway.start({ workers: 65, config: { bounds: { pods: 1, blocks: 1024, streams: 16 } } })
  ).settle();
  expect(gateway.host.logged('SEGMENTS_MAX')).toHaveLength(1);
  expect(gateway.reports.at(-1)!.gateway!.workers).toBe(64);
});

test('a plugin that was removed makes room for another one, with a name of its own in shared data', async () => {
  const gateway = await Gateway.start({ workers: 0 });
  for (let i = 0; i < 10; i++) {
    const root = gateway.host.vm('worker').plugin(`plugin-${i}`, gateway.configuration());
    gateway.roots[0] = root;
    gateway.settle();
    expect(gateway.picks(gateway.request(0, chat(SYSTEM, 'x')))).toHaveLength(3);
    expect(gateway.host.shared.keys().some((key) => key.startsWith(`warmpath/2/plugin-${i}/R`))).toBe(true);
    root.retire();
    gateway.settle(2000);
  }
});

test.each([
  [
    401,
    'last HTTP status (0: no call could be made, 503 and 504: it was not reached, others are in docs/ERRORS.md): 401',
  ],
  [504, '504'],
])('calls that fail with %d are told once, with it', async (status, message) => {
  const gateway = await Gateway.start();
  gateway.host.onCall = () => ({ status, body: 'no' });
  gateway.settle(5000);
  const told = gateway.host.logged('no good answer');
  expect(told).toHaveLength(1);
  expect(told[0]!.endsWith(message)).toBe(true);
});

test('touches that a control plane away for long will never hear of are counted', async () => {
  const gateway = (await Gateway.start()).settle();
  gateway.answers = false;
  const untold = (): number => gateway.metric('warmpath_untold_touches_total.pool.pool');
  let sent = 0;
  for (; sent < 2000 && untold() === 0; sent++) {
    gateway.answer(gateway.request(0, chat(words(`t${sent}-`, 60_000), 'x')));
  }
  expect(untold()).toBe(1);
  gateway.reports.length = 0;
  gateway.answers = true;
  gateway.settle(3000);
  // A request is told of twice: when it is picked for and when it has ended.
  expect(gateway.plane.touched()).toHaveLength(sent * 2 - 1);
});
