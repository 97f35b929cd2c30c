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
    expect(await matchedAfter(100, worker)).toBeGreaterThan(7000);
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

test('a new leader goes on where the one before stood, so that a control plane that starts meanwhile is told the table', async () => {
  const gateway = (await Gateway.start({ workers: 2 })).settle(1000);
  for (let i = 0; i < 5; i++) gateway.answer(gateway.request(i % 2, chat(words(`t${i}`, 3000), 'x')));
  gateway.settle();
  const held = new Set(gateway.plane.touched().flatMap((touch) => [...touch.keys]));
  const before = gateway.reports.at(-1)!;
  // Leader and control plane go together.
  gateway.answers = false;
  gateway.roots[0]!.tick(0);
  gateway.settle(3000);
  gateway.reports.length = 0;
  gateway.plane.epoch = 8n;
  gateway.plane.wantsTable = true;
  gateway.answers = true;
  gateway.settle(1500);
  const [first] = gateway.reports;
  expect(first!.gateway!.incarnation).not.toBe(before.gateway!.incarnation);
  expect(first).toMatchObject({ epoch: 7n, sequence: before.sequence + 1n });
  expect(first!.endpoints).toEqual(gateway.endpoints);
  const table = gateway.reports.filter((report) => report.flags.includes('table'));
  const sent = table.flatMap((report) => (report.touches ?? []).flatMap((touch) => [...touch.keys]));
  expect(new Set(sent)).toEqual(held);
  expect(gateway.reports.at(-1)).toMatchObject({ epoch: 8n, flags: [] });
  expect(gateway.reports.at(-1)!.endpoints).toBeUndefined();
});

test('a gateway that starts steers nothing before it has the table, and a VM that starts later neither', async () => {
  const gateway = await Gateway.start({ workers: 1 });
  const { nowMs } = gateway.host;
  // The table that is wanted comes last of a snapshot that takes many ticks to apply.
  const large = Array.from({ length: 10 }, (_, i) => filler(nowMs, i * 8000, 8000));
  gateway.plane.table = [...large, await touchOfPodThree(nowMs)];
  let steered: string[] = [];
  for (let tick = 0; tick < 100 && steered.length === 0; tick++) {
    gateway.host.advance(5);
    const stream = gateway.request(0, chat(SYSTEM, 'x'));
    steered = gateway.picks(stream);
    stream.finish();
  }
  expect(steered[0]).toBe('10.0.0.3:8000');

  gateway.addWorker('late');
  steered = [];
  let unsteered = 0;
  for (let tick = 0; tick < 200 && steered.length === 0; tick++, unsteered++) {
    gateway.host.advance(5);
    const stream = gateway.request(1, chat(SYSTEM, 'y'));
    steered = gateway.picks(stream);
    stream.finish();
  }
  expect(unsteered).toBeGreaterThan(2);
  expect(steered[0]).toBe('10.0.0.3:8000');

  // Where no table comes, it goes without.
  gateway.answers = false;
  gateway.addWorker('alone');
  gateway.settle(2500);
  expect(gateway.picks(gateway.request(2, chat(SYSTEM, 'z')))).toHaveLength(3);
});

test('a VM that missed touches asks for the table', async () => {
  const gateway = (await Gateway.start({ workers: 2 })).settle(1000);
  gateway.roots[1]!.tick(0);
  for (let i = 0; i < 70; i++) {
    gateway.plane.touches = [filler(gateway.host.nowMs, i * 10, 1)];
    gateway.settle(50);
  }
  gateway.plane.table = [await touchOfPodThree(gateway.host.nowMs)];
  gateway.reports.length = 0;
  gateway.roots[1]!.tick(5);
  gateway.settle(1000);
  expect(gateway.reports.some((report) => report.flags.includes('wantSnapshot'))).toBe(true);
  expect(podOf(gateway, 1)).toBe('10.0.0.3:8000');
});

test('a new secret lets go of touches that wait to be told', async () => {
  const touchedAfter = async (isNew: boolean): Promise<number> => {
    const gateway = (await Gateway.start()).settle();
    const { host, plane } = gateway;
    const { onCall } = host;
    host.onCall = () => undefined;
    gateway.settle(60);
    // A report is under way: what is touched now waits for the next one.
    gateway.answer(gateway.request(0, chat(SYSTEM, 'x')));
    if (isNew) gateway.change(() => (plane.secret = Uint8Array.from({ length: 32 }, (_, i) => 99 - i)));
    const [call] = host.calls;
    call!.answer({ body: plane.answer(call!.body) });
    plane.reports.length = 0;
    host.onCall = onCall;
    host.advance(5);
    gateway.settle(500);
    return plane.touched().length;
  };
  expect(await touchedAfter(false)).toBe(2);
  expect(await touchedAfter(true)).toBe(0);
});

test('the gauge of a pod that goes together with the leader goes to zero', async () => {
  const gateway = (await Gateway.start({ workers: 3 })).settle(1000);
  const streams = Array.from({ length: 8 }, (_, i) => gateway.request(1, chat(words(`g${i}`, 2000), 'x')));
  gateway.settle();
  expect(gateway.inFlight().every((n) => n > 0)).toBe(true);
  const gauge = 'warmpath_in_flight.pool.pool.pod.10_0_0_4_8000';
  gateway.change((plane) => plane.endpoints.pop());
  // The leader's own thread stops as soon as it has passed the settings on.
  gateway.settle(55);
  gateway.roots[0]!.tick(0);
  gateway.settle(3000);
  expect(gateway.metric(gauge)).toBe(0);
  for (const stream of streams) stream.finish();
});

test("a pod's slowness comes from other gateways; its engine's mean time to first token, which has the queue in it, is not taken for it", async () => {
  const gateway = (await Gateway.start()).settle();
  // What is not streamed shows no first token; 2,000 tokens are to be computed for each.
  for (let i = 0; i < 4; i++) {
    gateway.answer(gateway.request(0, chat(words(`n${i}`, 8000), 'x', { stream: false })), { sse: false });
  }
  const { frames } = gateway.plane;
  const none = { running: 0, waiting: 0, kvUsage: 0, ageMs: 10, stale: false, ttftMs: 0, ttftRequests: 0 };
  gateway.plane.spoil = (body) => {
    const { epoch, sequence, poolHash, settingsVersion } = frames.decode(body).frame;
    const head = { kind: 'delta', epoch, sequence, poolHash, settingsVersion, flags: [] } as const;
    const load = [{ podId: 1, inFlight: 1, prefillTokens: 0, usedTokens: 0, ageMs: 5, slowness: 0.25 }];
    const metrics = [
      { ...none, podId: 2, ttftMs: 1000, ttftRequests: 5 },
      { ...none, podId: 3 },
    ];
    return Buffer.concat([body, frames.encode({ ...head, flags: [], load, metrics })]);
  };
  gateway.settle();
  const slowness = gateway.reports.at(-1)!.load!.map((load) => load.slowness);
  expect(slowness[0]).toBe(0.25);
  expect(slowness.slice(1)).toEqual([0, 0, 0]);
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

test('of the touches that a control plane away for long cannot be told the oldest go, and are counted', async () => {
  const gateway = (await Gateway.start()).settle();
  gateway.answers = false;
  const untold = (): number => gateway.metric('warmpath_untold_touches_total.pool.pool');
  let sent = 0;
  let newest = 0;
  // A look at the counter takes a tick, so it is not looked at after each request.
  while (sent < 2000 && (sent % 100 !== 0 || untold() === 0)) {
    newest = gateway.host.nowMs;
    gateway.answer(gateway.request(0, chat(words(`t${sent++}-`, 60_000), 'x')));
  }
  gateway.reports.length = 0;
  gateway.answers = true;
  gateway.settle(3000);
  // A request is told of twice: when it is picked for and when it has ended.
  expect(untold()).toBeGreaterThan(1);
  expect(gateway.plane.touched()).toHaveLength(sent * 2 - untold());
  expect(gateway.plane.touched().at(-1)!.timeMs).toBeCloseTo(newest, 2);
});
