// Cache events of engines: read as a real vLLM sent them, counted, and followed over real sockets to what a gateway is told.
import { encode } from '@msgpack/msgpack';
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { afterEach, describe, expect, test } from 'vitest';
import { KvFeed } from '../../control-plane/kv-events/feed.ts';
import { readBatch, readFrames, RefusedMessage } from '../../control-plane/kv-events/message.ts';
import { readKvEvents, readSources, showKvEvents } from '../../control-plane/kv-events/sources.ts';
import { LIMITS } from '../../control-plane/limits.ts';
import { startControlPlane } from '../../control-plane/server.ts';
import type { ControlPlane } from '../../control-plane/server.ts';
import { FakeGateway, loadFrames, metricsText, touch, until } from './fakes.ts';
import { cleared, removed, startKvPublisher, stored } from './kv-publisher.ts';
import type { KvPublisher } from './kv-publisher.ts';

const folder = new URL('../vectors/kv-events/', import.meta.url);
const recorded = (name: string): Buffer[] =>
  readFileSync(new URL(`${name}.hex`, folder), 'utf8')
    .trim()
    .split('\n')
    .map((line) => Buffer.from(line, 'hex'));
const recording = (name: string): Buffer[][] =>
  gunzipSync(readFileSync(new URL(`${name}_all_events.jsonl.gz`, folder)))
    .toString()
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as { frames_hex: string[] }).frames_hex.map((hex) => Buffer.from(hex, 'hex')));

const nowMs = 1_795_954_700_000;

interface Noted {
  feed: KvFeed;
  cleared: number[];
  refused: string[];
  gaps: string[];
}

function noting(replay: (from: number) => Promise<Buffer[][]> = async () => []): Noted {
  const noted: Omit<Noted, 'feed'> = { cleared: [], refused: [], gaps: [] };
  const feed = new KvFeed({
    replay,
    cleared: (timeMs) => noted.cleared.push(timeMs),
    held: () => undefined,
    refused: (reason) => noted.refused.push(reason),
    gap: (result, messages) => noted.gaps.push(`${result} ${messages}`),
    nowMs: () => nowMs,
  });
  return { feed, ...noted };
}

const message = (sequence: number, events: unknown[], timeMs = nowMs): Buffer[] => {
  const number = Buffer.alloc(8);
  number.writeBigUInt64BE(BigInt(sequence));
  return [Buffer.from('kv'), number, Buffer.from(encode([timeMs / 1000, events, 0]))];
};

describe('a message', () => {
  test.each([
    ['a_stored_root_int_hash', 0, [{ kind: 'stored', blocks: 16, blockTokens: 32, group: 0 }]],
    ['a_stored_child', 38, [{ kind: 'stored', blocks: 1, blockTokens: 32, group: 0 }]],
    ['b_stored_root_bytes_hash', 0, [{ kind: 'stored', blocks: 2, blockTokens: 128, group: 0 }]],
    ['b_stored_lora', 1, [{ kind: 'stored', blocks: 2, blockTokens: 128, group: 0 }]],
    ['b_stored_cache_salt', 13, [{ kind: 'stored', blocks: 2, blockTokens: 128, group: 0 }]],
    ['synthetic_0.20.2_array_a_stored_root_int_hash', 0, [{ kind: 'stored', blocks: 16, blockTokens: 32, group: 0 }]],
  ])('%s is read as recorded', (name, sequence, events) => {
    const read = readFrames(recorded(name));
    expect(read.sequence).toBe(sequence);
    expect(readBatch(read.payload).events).toEqual(events);
  });

  test('removals and clears are read, maps and lists alike', () => {
    const map = readBatch(recorded('a_removed')[2]!).events;
    expect(map[0]).toEqual({ kind: 'removed', blocks: 1, group: 0 });
    expect(readBatch(recorded('synthetic_0.20.2_array_a_removed')[2]!).events).toEqual(map);
    expect(readBatch(recorded('b_removed_bytes')[2]!).events[0]).toEqual({ kind: 'removed', blocks: 1, group: 0 });
    expect(readBatch(recorded('a_all_cleared_then_stored')[2]!).events.map(({ kind }) => kind)).toEqual([
      'cleared',
      'stored',
    ]);
  });

  test('blocks outside of the engine are no part of its cache', () => {
    expect(readBatch(encode([1, [{ ...removed(3), medium: 'CPU' }], null])).events).toEqual([]);
  });

  test.each([
    ['encoding', Buffer.from([0xc1])],
    ['encoding', Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff])],
    ['encoding', recorded('a_removed')[2]!.subarray(0, 100)],
    ['encoding', Buffer.concat([recorded('a_removed')[2]!, Buffer.from([1])])],
    ['too-large', Buffer.alloc(LIMITS.kvMessageBytes + 1)],
    ['batch', encode({ events: [] })],
    ['batch', encode([1])],
    ['batch', encode(['now', []])],
    ['batch', encode([1, [], -1])],
    ['event', encode([1, [null]])],
    ['event', encode([1, [{ type: 'BlockMoved' }]])],
    ['event', encode([1, [{ ...removed(1), block_hashes: ['a'] }]])],
    ['event', encode([1, [{ ...stored(1), block_size: 0 }]])],
    ['event', encode([1, [{ ...stored(1), group_idx: LIMITS.kvGroups }]])],
    ['event', encode([1, [['BlockStored', 5]]])],
  ])('is refused: %s', (reason, payload) => {
    let error: unknown;
    try {
      readBatch(payload);
    } catch (caught) {
      error = caught;
    }
    expect(error).toBeInstanceOf(RefusedMessage);
    expect((error as RefusedMessage).reason).toBe(reason);
  });

  test('no cut or changed byte of a recorded message does anything but be read or be refused', () => {
    const payload = recorded('a_all_cleared_then_stored')[2]!;
    for (let at = 0; at < payload.length; at += 3) {
      const changed = Buffer.from(payload);
      changed[at] = changed[at]! ^ 0xff;
      for (const bytes of [changed, payload.subarray(0, at)]) {
        try {
          readBatch(bytes);
        } catch (error) {
          expect(error).toBeInstanceOf(RefusedMessage);
        }
      }
    }
  });
});

describe('a feed', () => {
  test.each([
    // Blocks of the recorded engines: 256 and 64, of which each keeps one for itself.
    ['a', 255 * 32, 1],
    ['b', 63 * 128, 0],
  ])('counts in recording %s what the engine can hold', async (name, tokens, clears) => {
    const { feed, cleared: clearedMs, refused, gaps } = noting();
    for (const frames of recording(name)) await feed.take(frames);
    expect({ refused, gaps, isWhole: feed.isWhole, clears: clearedMs.length }).toEqual({
      refused: [],
      gaps: [],
      isWhole: true,
      clears,
    });
    expect(feed.peakTokens).toBeLessThanOrEqual(tokens);
    expect(feed.peakTokens).toBeGreaterThan(tokens * 0.95);
  });

  test('asks for what is missing, and is whole again', async () => {
    const all = recording('a');
    const { feed, gaps, refused } = noting(async (from) => all.slice(from));
    for (const [index, frames] of all.entries()) if (index % 100 < 50) await feed.take(frames);
    expect(refused).toEqual([]);
    expect(gaps.length).toBeGreaterThan(0);
    expect(gaps.every((gap) => gap.startsWith('filled'))).toBe(true);
    expect(feed.isWhole).toBe(true);
    expect(feed.sequence).toBe(all.length - 1);
  });

  test('counts from below when messages are lost, until the engine is known to be empty', async () => {
    const { feed, gaps, cleared: clearedMs } = noting();
    await feed.take(message(7, [stored(10)]));
    expect(gaps).toEqual(['lost 7']);
    expect(feed.isWhole).toBe(false);
    await feed.take(message(8, [removed(4)]));
    expect(feed.peakTokens).toBe(160);
    await feed.take(message(9, [cleared, stored(2)]));
    expect(feed.isWhole).toBe(true);
    expect(clearedMs).toEqual([nowMs]);
  });

  test.each([
    ['of our time', 0],
    ['of a clock that is an hour behind', -3_600_000],
  ])('a cache was dropped a moment before the batch that tells so: %s', async (_, offMs) => {
    const { feed, cleared: clearedMs } = noting();
    await feed.take(message(0, [stored(4)], nowMs - 60_000 + offMs));
    await feed.take(message(1, [cleared, stored(1)], nowMs + offMs));
    expect(clearedMs).toEqual([nowMs - LIMITS.kvClearedBeforeMs]);
  });

  test('numbers that begin again are another process, whose cache is empty', async () => {
    const { feed, cleared: clearedMs } = noting();
    for (const sequence of [0, 1, 2]) await feed.take(message(sequence, [stored(4)]));
    await feed.take(message(0, [stored(4)]));
    expect(clearedMs).toEqual([nowMs]);
    await feed.take(message(1, [removed(1)]));
    expect(feed.peakTokens).toBe(64);
  });

  test('a refused message is left out and the rest goes on', async () => {
    const { feed, refused } = noting();
    await feed.take([Buffer.from('kv'), Buffer.alloc(7), Buffer.alloc(0)]);
    await feed.take([Buffer.from('kv')]);
    await feed.take([...message(0, []).slice(0, 2), Buffer.from([0xc1])]);
    await feed.take(message(1, [stored(4)]));
    expect(refused).toEqual(['sequence', 'frames', 'encoding']);
    expect([feed.sequence, feed.isWhole]).toEqual([1, false]);
  });

  test('groups of layers share the blocks: a prefix is as long as the group that keeps most', async () => {
    const { feed } = noting();
    await feed.take(
      message(0, [
        { ...stored(100), group_idx: 0 },
        { ...stored(20), group_idx: 1 },
      ]),
    );
    await feed.take(message(1, [{ ...removed(1), group_idx: 1 }]));
    expect(feed.peakTokens).toBe(1600);
  });
});

test('settings and what engines say of themselves', () => {
  for (const text of ['off', 'on', '5557', '5557/5558']) expect(showKvEvents(readKvEvents(text)!)).toBe(text);
  for (const text of ['', 'On', '0', '05', '5557/', '70000', '5557/70000', '5557/5558/1'])
    expect(readKvEvents(text)).toBeUndefined();
  const source = { publisher: 'zmq', endpoint: 'tcp://*:5557', replay_endpoint: 'tcp://[::1]:5558' };
  expect(readSources(JSON.stringify({ 0: source, 1: { ...source, replay_endpoint: null } }))).toEqual([
    [5557, 5558],
    [5557, null],
  ]);
  for (const text of ['{}', '[', 'null', '{"0":{"publisher":"zmq","endpoint":"ipc:///tmp/a"}}'])
    expect(() => readSources(text)).toThrow();
});

describe('the control plane', () => {
  const open: { close(): Promise<void> }[] = [];
  afterEach(async () => {
    for (const part of open.splice(0).reverse()) await part.close();
  });

  async function begin(blocks = 100): Promise<{ engine: KvPublisher; controlPlane: ControlPlane }> {
    const engine = await startKvPublisher(metricsText({ blocks }));
    open.push(engine);
    const pools = [{ name: 'chat', endpoints: [engine.endpoint], kvEvents: 'on' }];
    const controlPlane = await startControlPlane({ host: '127.0.0.1', port: 0, pools });
    open.push(controlPlane);
    // A subscription takes effect some time after it was made: what comes before is asked for again.
    await until(async () => {
      await engine.publish([]);
      return endpoint(controlPlane).kvEvents.batches > 0;
    }, 'events to be listened to');
    return { engine, controlPlane };
  }

  interface Shown {
    podId: number;
    capacityTokens: number;
    table: { blocks: number };
    kvEvents: { batches: number; sequence: number; whole: boolean; heldTokens: number };
  }
  const endpoint = (controlPlane: ControlPlane): Shown =>
    (controlPlane.state() as { pools: { endpoints: Shown[] }[] }).pools[0]!.endpoints[0]!;

  test('a cleared cache is forgotten in the table, and each gateway is told', async () => {
    const { engine, controlPlane } = await begin();
    const frames = await loadFrames();
    const gateway = new FakeGateway(frames, 'gw', 'chat');
    await gateway.sync(controlPlane.url);
    const { podId } = endpoint(controlPlane);
    await gateway.sync(controlPlane.url, { touches: [touch(podId, Date.now() - 60_000, [1n, 2n, 3n])] });
    expect(endpoint(controlPlane).table.blocks).toBe(3);
    await engine.publish([cleared]);
    await until(() => endpoint(controlPlane).table.blocks === 0, 'the table to be cleared');
    const told = (await gateway.sync(controlPlane.url)).flatMap((frame) => frame.touches ?? []);
    expect(told).toMatchObject([{ podId, clear: true }]);
  });

  test('capacity is what the engine held when it evicted, and a gateway hears of it', async () => {
    const { engine, controlPlane } = await begin(400);
    expect(endpoint(controlPlane)).toMatchObject({ capacityTokens: 6400, kvEvents: { whole: true } });
    await engine.publish([stored(100)]);
    await engine.publish([removed(1), stored(1)]);
    await until(() => endpoint(controlPlane).capacityTokens === 1600, 'the capacity to follow');
    const answer = await new FakeGateway(await loadFrames(), 'gw', 'chat').sync(controlPlane.url);
    expect(answer[0]?.endpoints?.[0]?.capacityTokens).toBe(1600);
  });

  test('lost messages are asked for again; a bad one is counted', async () => {
    const { engine, controlPlane } = await begin();
    const before = engine.replays;
    await engine.publish([cleared], { lost: true });
    await engine.publish([stored(10)], { lost: true });
    await engine.raw(Buffer.from([0xc1]));
    await engine.publish([removed(1)]);
    await until(() => endpoint(controlPlane).kvEvents.heldTokens === 160, 'the gap to be filled');
    expect(engine.replays).toBe(before + 1);
    expect(endpoint(controlPlane).kvEvents.whole).toBe(false);
    const text = await (await fetch(`${controlPlane.url}/metrics`)).text();
    expect(text).toContain('warmpath_kv_events_refused_total{pool="chat",reason="encoding"} 1');
    expect(text).toMatch(/warmpath_kv_events_gaps_total\{pool="chat",result="filled"\} [1-9]/);
    expect(text).toContain('warmpath_kv_events_engines{pool="chat"} 1');
  });
});
