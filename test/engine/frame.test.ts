// The wire format of engine.wasm: against golden vectors that never change, against an encoder written a second time, and
// against everything that is not a frame.
import fc from 'fast-check';
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import type { FrameExports } from '../../control-plane/engine/frame-exports.ts';
import { FRAME_BYTES_MAX, FRAME_ERRORS, FrameError, Frames, KEY_SOURCES } from '../../control-plane/engine/frames.ts';
import type { Frame, FrameErrorName, TouchRecord } from '../../control-plane/engine/frames.ts';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import {
  ERROR_BOUNDS,
  KIND_APIS,
  KIND_COUNTERS,
  LANGUAGES,
  OUTCOME_COUNTERS,
} from '../../control-plane/engine/outcomes.ts';
import { encodeWire, frameFromJson, poolHashWire, seal, xxh64 } from '../oracle/wire.ts';

interface Vector {
  name: string;
  hex: string;
  frame: unknown;
}

const vectorsOf = (version: number): Vector[] => {
  const file = new URL(`../vectors/wire-${version}.json`, import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { vectors: Vector[] }).vectors;
};
const vectors = vectorsOf(2);

let frames: Frames;
let wasm: FrameExports;

beforeAll(async () => {
  const engine = await loadEngine<FrameExports>();
  wasm = engine.exports;
  frames = new Frames(engine.exports);
});

const bytesOf = (vector: Vector): Uint8Array => new Uint8Array(Buffer.from(vector.hex, 'hex'));

function codeOf(bytes: Uint8Array): FrameErrorName {
  try {
    frames.decode(bytes);
    return 'ok';
  } catch (error) {
    if (error instanceof FrameError) return error.code;
    throw error;
  }
}

test('the encoder that the engine is held against makes known hashes', () => {
  const ascii = (text: string): Uint8Array => new TextEncoder().encode(text);
  expect(xxh64(ascii(''), 0n)).toBe(0xef46db3751d8e999n);
  expect(xxh64(ascii('Nobody inspects the spammish repetition'), 0n)).toBe(0xfbcea83c8a378bf1n);
  expect(poolHashWire('foobar')).toBe(0x85944171f73967e8n);
  expect(frames.poolHash('foobar')).toBe(0x85944171f73967e8n);
});

describe('golden vectors of version 2', () => {
  test.each(vectors)('$name', (vector) => {
    const frame = frameFromJson(vector.frame);
    const bytes = bytesOf(vector);
    expect(Buffer.from(encodeWire(frame)).toString('hex')).toBe(vector.hex);
    expect(Buffer.from(frames.encode(frame)).toString('hex')).toBe(vector.hex);
    expect(frames.decode(bytes)).toEqual({ frame, bytes: bytes.length });
  });

  test('name every kind, every flag and every section', () => {
    const all = vectors.map((vector) => frameFromJson(vector.frame));
    expect(new Set(all.map((frame) => frame.kind)).size).toBe(4);
    expect(new Set(all.flatMap((frame) => frame.flags)).size).toBe(4);
    const keys = new Set(all.flatMap((frame) => Object.keys(frame)));
    for (const section of [
      'pool',
      'secret',
      'endpoints',
      'load',
      'metrics',
      'touches',
      'outcomes',
      'gateway',
      'adapters',
      'aliases',
    ]) {
      expect(keys).toContain(section);
    }
  });
});

const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const podId = fc.integer({ min: 1, max: 0xffff_ffff });
const u64 = fc.bigInt({ min: 0n, max: (1n << 64n) - 1n });
const key = fc.bigInt({ min: 1n, max: (1n << 64n) - 1n });
const f32 = fc.float({ min: 0, noNaN: true, noDefaultInfinity: true }).map(Math.abs);
const f64 = fc.double({ min: 0, noNaN: true, noDefaultInfinity: true }).map(Math.abs);
const count = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });

const touches: fc.Arbitrary<TouchRecord> = fc.oneof(
  fc
    .record({ podId, timeMs: f64, parentKey: u64, pairs: fc.array(fc.tuple(key, u32), { minLength: 1, maxLength: 9 }) })
    .map(({ pairs, ...rest }) => ({
      ...rest,
      clear: false,
      keys: BigUint64Array.from(pairs, ([k]) => k),
      weights: Uint32Array.from(pairs, ([, w]) => w),
    })),
  fc.record({ podId, timeMs: f64, parentKey: key }).map((rest) => ({
    ...rest,
    clear: false,
    keys: new BigUint64Array(0),
    weights: new Uint32Array(0),
  })),
);

const totals = <N extends string>(names: readonly N[]): Record<N, typeof count> =>
  Object.fromEntries(names.map((name) => [name, count])) as Record<N, typeof count>;

/** Visible ASCII. */
const visible = (maxLength: number): fc.Arbitrary<string> =>
  fc.string({
    unit: fc.integer({ min: 0x21, max: 0x7e }).map((c) => String.fromCharCode(c)),
    minLength: 1,
    maxLength,
  });
const list = <T>(one: fc.Arbitrary<T>): fc.Arbitrary<T[]> => fc.array(one, { maxLength: 5 });

const segment: fc.Arbitrary<Frame> = fc.record(
  {
    kind: fc.constant('segment' as const),
    epoch: u64,
    sequence: u64,
    poolHash: u64,
    settingsVersion: u32,
    flags: fc.subarray(['wantSnapshot', 'more', 'wantTable', 'table'] as const).map((flags) => [...flags]),
    pool: fc
      .record({
        mode: fc.constantFrom('off' as const, 'shadow' as const, 'active' as const),
        policy: fc.integer({ min: 0, max: 255 }),
        toolsPosition: fc.constantFrom('auto' as const, 'after-system' as const, 'first' as const),
        blockBytes: fc.integer({ min: 16, max: 65_536 }),
        windowBytes: u32,
        syncIntervalMs: fc.integer({ min: 1, max: 60_000 }),
        bytesPerToken: f32,
        weights: fc.record({ prefix: f32, queue: f32, kv: f32 }),
      })
      .chain((pool) =>
        fc
          .option(fc.record({ source: fc.constantFrom(...KEY_SOURCES), name: visible(64) }), { nil: undefined })
          .map((policyKey) => (policyKey === undefined ? pool : { ...pool, policyKey })),
      ),
    secret: fc.uint8Array({ minLength: 32, maxLength: 32 }),
    endpoints: list(
      fc.record({
        podId,
        address: fc.uint8Array({ minLength: 16, maxLength: 16 }),
        port: fc.integer({ min: 1, max: 65_535 }),
        ready: fc.boolean(),
        drain: fc.boolean(),
        weight: f32,
        capacityTokens: u32,
        startedSeconds: f64,
      }),
    ),
    load: list(fc.record({ podId, inFlight: u32, prefillTokens: u32, usedTokens: u32, ageMs: u32, slowness: f32 })),
    metrics: list(
      fc.record({
        podId,
        running: fc.option(u32),
        waiting: fc.option(u32),
        kvUsage: fc.option(f32),
        ageMs: u32,
        stale: fc.boolean(),
        ttftMs: f32,
        ttftRequests: u32,
      }),
    ),
    touches: list(touches),
    outcomes: fc.record({
      bytesPerToken: f32,
      ratioTokens: u32,
      pods: list(fc.record({ podId, resets: u32, ttftMsSum: f64, ...totals(OUTCOME_COUNTERS) })),
      kinds: list(
        fc.record({
          api: fc.constantFrom(...KIND_APIS),
          language: fc.constantFrom(...LANGUAGES),
          ...totals(KIND_COUNTERS),
          errors: fc.array(count, { minLength: ERROR_BOUNDS.length + 1, maxLength: ERROR_BOUNDS.length + 1 }),
        }),
      ),
    }),
    gateway: fc.record({
      incarnation: u64,
      touchesNext: u64,
      workers: u32,
      name: visible(256),
    }),
    adapters: list(fc.record({ podId, hash: podId })),
    aliases: list(fc.record({ name: podId, group: podId })),
  },
  { requiredKeys: ['kind', 'epoch', 'sequence', 'poolHash', 'settingsVersion', 'flags'] },
);

test('any frame is written as the oracle writes it, and reads back the same', () => {
  fc.assert(
    fc.property(segment, (frame) => {
      const bytes = frames.encode(frame);
      expect(Buffer.from(bytes).equals(encodeWire(frame))).toBe(true);
      expect(frames.decode(bytes)).toEqual({ frame, bytes: bytes.length });
    }),
    { numRuns: 300 },
  );
});

test.each(vectorsOf(1))('version 1 is not spoken any more: $name', (vector) => {
  expect(codeOf(bytesOf(vector))).toBe('version');
});

describe('what is not a frame is refused, and never traps', () => {
  test('cut short anywhere, or with a bit flipped anywhere', () => {
    for (const vector of vectors) {
      const bytes = bytesOf(vector);
      for (let length = 0; length < bytes.length; length++) expect(codeOf(bytes.subarray(0, length))).not.toBe('ok');
      for (let bit = 0; bit < bytes.length * 8; bit++) {
        const flipped = bytes.slice();
        flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
        expect(codeOf(flipped)).not.toBe('ok');
      }
    }
  });

  test('what follows a frame is left alone', () => {
    for (const vector of vectors) {
      const bytes = bytesOf(vector);
      expect(frames.decode(Buffer.concat([bytes, Buffer.from('and more')])).bytes).toBe(bytes.length);
    }
    const body = Buffer.concat(vectors.map(bytesOf));
    expect(frames.decodeAll(body)).toHaveLength(vectors.length);
  });

  test('with any bytes changed and a check that fits: what is accepted can be read and written again', () => {
    let accepted = 0;
    const change = fc.record({
      vector: fc.constantFrom(...vectors),
      edits: fc.array(fc.tuple(fc.nat(2_000), fc.oneof(fc.nat(255), fc.constantFrom(0, 1, 8, 255))), { maxLength: 6 }),
      tail: fc.uint8Array({ maxLength: 64 }),
      cut: fc.nat(80),
    });
    fc.assert(
      fc.property(change, ({ vector, edits, tail, cut }) => {
        const whole = Buffer.concat([bytesOf(vector), tail]);
        const bytes = new Uint8Array(whole.subarray(0, Math.max(16, whole.length - cut) & ~7));
        for (const [at, value] of edits) bytes[(at < 8 ? at + 40 : at) % bytes.length] = value;
        seal(bytes);
        if (codeOf(bytes) !== 'ok') return;
        accepted++;
        const { frame } = frames.decode(bytes);
        expect(frames.decode(frames.encode(frame)).frame).toEqual(frame);
      }),
      { numRuns: 3_000 },
    );
    expect(accepted).toBeGreaterThan(100);
  });

  test('random bytes behind a sound header', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(1, 2, 3, 4),
        fc.nat(12),
        fc.uint8Array({ minLength: 8, maxLength: 400 }),
        (kind, type, tail) => {
          const bytes = new Uint8Array(48 + (tail.length & ~7));
          bytes.set(tail.subarray(0, tail.length & ~7), 48);
          const view = new DataView(bytes.buffer);
          view.setUint32(0, 0x46504d57, true);
          view.setUint16(4, 1, true);
          view.setUint16(6, kind, true);
          view.setUint16(48, type, true);
          view.setUint16(50, 0, true);
          view.setUint32(52, bytes.length - 56, true);
          codeOf(seal(bytes));
        },
      ),
      { numRuns: 3_000 },
    );
  });

  test('each fault has its code', () => {
    const report = frameFromJson(vectors.find((v) => v.name === 'a report of everything')?.frame);
    const delta = frameFromJson(vectors.find((v) => v.name === 'a delta with settings')?.frame);
    const edit = (frame: Frame, change: (view: DataView) => void): Uint8Array => {
      const bytes = encodeWire(frame);
      change(new DataView(bytes.buffer));
      return seal(bytes);
    };
    const { gateway: _gateway, ...anonymous } = report;
    const found: Record<string, FrameErrorName> = {
      short: codeOf(encodeWire(delta).subarray(0, 47)),
      magic: codeOf(edit(delta, (v) => v.setUint8(0, 1))),
      version: codeOf(edit(delta, (v) => v.setUint16(4, 3, true))),
      kind: codeOf(edit(delta, (v) => v.setUint16(6, 5, true))),
      length: codeOf(encodeWire(delta).subarray(0, 56)),
      check: codeOf(encodeWire(delta).fill(9, 60, 61)),
      flags: codeOf(edit(delta, (v) => v.setUint32(44, 16, true))),
      section: codeOf(edit(delta, (v) => v.setUint16(48, 11, true))),
      'section-length': codeOf(edit(delta, (v) => v.setUint32(52, 4_096, true))),
      count: codeOf(edit(delta, (v) => v.setUint32(52, 40, true))),
      value: codeOf(edit(delta, (v) => v.setUint8(56, 3))),
      'not-allowed': codeOf(encodeWire({ ...report, pool: delta.pool as NonNullable<Frame['pool']> })),
      'no-gateway': codeOf(encodeWire(anonymous)),
    };
    expect(found).toEqual(Object.fromEntries(FRAME_ERRORS.filter((n) => n !== 'ok').map((name) => [name, name])));
  });

  test('values that would poison sums are refused: zero ids, NaN, infinity, negative numbers', () => {
    const good = (more: Partial<Frame>): Frame => ({
      kind: 'segment',
      epoch: 1n,
      sequence: 1n,
      poolHash: 1n,
      settingsVersion: 1,
      flags: [],
      ...more,
    });
    const touch = {
      podId: 1,
      clear: false,
      timeMs: 5,
      parentKey: 0n,
      keys: BigUint64Array.of(1n),
      weights: Uint32Array.of(1),
    };
    const load = { podId: 1, inFlight: 1, prefillTokens: 1, usedTokens: 1, ageMs: 1, slowness: 1 };
    expect(codeOf(encodeWire(good({ touches: [touch], load: [load] })))).toBe('ok');
    const bad: Partial<Frame>[] = [
      ...[Number.NaN, Infinity, -1].flatMap((x) => [
        { touches: [{ ...touch, timeMs: x }] },
        { load: [{ ...load, slowness: x }] },
      ]),
      { touches: [{ ...touch, podId: 0 }] },
      { touches: [{ ...touch, keys: BigUint64Array.of(0n) }] },
      { touches: [{ ...touch, clear: true }] },
      { touches: [{ ...touch, keys: new BigUint64Array(0), weights: new Uint32Array(0) }] },
      { load: [{ ...load, podId: 0 }] },
      { gateway: { incarnation: 1n, touchesNext: 0n, workers: 1, name: 'with space' } },
    ];
    for (const more of bad) expect(codeOf(encodeWire(good(more)))).toBe('value');
  });
});

test('the writer never leaves its region, and what it wrote before it was full is a sound frame', () => {
  const region = wasm.frameOutput();
  const canary = 0xa5;
  for (let room = 0; room < 700; room++) {
    new Uint8Array(wasm.memory.buffer, region, 1024).fill(canary);
    const began = wasm.frameBegin(region, room, 4, 1n, 2n, 3n, 4, 0) !== 0;
    expect(began).toBe(room >= 48);
    let written = 0;
    for (let i = 0; i < 5; i++) written += wasm.writeEndpoint(i + 1, 80, 1, region, 1, 5, 0);
    written += wasm.writeLoad(1, 1, 1, 1, 1, 1);
    for (let i = 0; i < 5; i++) {
      const fits = wasm.writeTouch(1, 0, 5, 0n, 3);
      for (let k = 0; fits !== 0 && k < 5; k++) wasm.writeTouchKey(k, BigInt(k + 1), 256);
      written += fits;
    }
    written += wasm.writeGateway(1n, 1n, 1, wasm.frameScratch(), 0);
    const bytes = wasm.frameEnd();
    expect(bytes).toBeLessThanOrEqual(room);
    expect(new Uint8Array(wasm.memory.buffer, region + room, 1024 - room).every((byte) => byte === canary)).toBe(true);
    if (!began) {
      expect([bytes, written]).toEqual([0, 0]);
      continue;
    }
    const { frame } = frames.decode(new Uint8Array(wasm.memory.buffer, region, bytes).slice());
    const records = [frame.endpoints, frame.load, frame.touches].map((section) => section?.length ?? 0);
    expect(records.reduce((sum, n) => sum + n)).toBe(written);
  }
});

test('sections out of order and records behind a closed section are not written', () => {
  const region = wasm.frameOutput();
  wasm.frameBegin(region, 4096, 4, 1n, 1n, 1n, 1, 0);
  expect(wasm.writeLoad(1, 1, 1, 1, 1, 1)).toBe(1);
  expect(wasm.writeEndpoint(1, 80, 1, region, 1, 5, 0)).toBe(0);
  expect(wasm.writeSection(6)).toBe(1);
  expect(wasm.writeLoad(1, 1, 1, 1, 1, 1)).toBe(0);
  wasm.writeTouchKey(0, 1n, 1);
  wasm.writeOutcomeTotal(0, 1n);
  expect(wasm.writeSection(1)).toBe(0);
  const { frame } = frames.decode(new Uint8Array(wasm.memory.buffer, region, wasm.frameEnd()).slice());
  expect([frame.load?.length, frame.touches?.length]).toEqual([1, 0]);
  expect(wasm.writeLoad(1, 1, 1, 1, 1, 1)).toBe(0);
  expect(wasm.frameEnd()).toBe(0);
});

test('after a refused frame, and beyond a count, every accessor reads zero', () => {
  const everything = vectors.find((v) => v.name === 'a report of everything') as Vector;
  const own = [
    'endpointPodId',
    'endpointPort',
    'endpointFlags',
    'endpointWeight',
    'endpointCapacityTokens',
    'endpointStartedSeconds',
    'loadPodId',
    'loadInFlight',
    'loadSlowness',
    'outcomePodId',
    'outcomeResets',
    'outcomeTtftMsSum',
  ] as const;
  const call = (name: (typeof own)[number], index: number): number => wasm[name](index);
  expect(frames.check(bytesOf(everything))).toBe('ok');
  for (const name of own)
    for (const index of [2, 1000, -1, 0x7fff_ffff]) expect([name, call(name, index)]).toEqual([name, 0]);
  expect(frames.check(new Uint8Array(48))).toBe('magic');
  for (const name of own) expect([name, call(name, 0)]).toEqual([name, 0]);
  expect([wasm.frameKind(), wasm.frameBytes(), wasm.touchesNext(), wasm.touchPodId(), wasm.touchKey(0)]).toEqual([
    0,
    0,
    0,
    0,
    0n,
  ]);
});

test('a frame of the largest size is written, checked and read; one byte more is not', () => {
  const keys = BigUint64Array.from({ length: 8_192 }, (_, i) => BigInt(i + 1));
  const touch = { podId: 1, clear: false, timeMs: 1, parentKey: 0n, keys, weights: new Uint32Array(8_192) };
  const base = { kind: 'segment', epoch: 1n, sequence: 1n, poolHash: 1n, settingsVersion: 1, flags: [] } as const;
  const frame: Frame = { ...base, flags: [], touches: Array.from({ length: 10 }, () => touch) };
  const bytes = frames.encode(frame);
  expect(bytes.length).toBeLessThanOrEqual(FRAME_BYTES_MAX);
  expect(frames.decode(bytes).frame.touches).toHaveLength(10);
  expect(() => frames.encode({ ...frame, touches: [...(frame.touches ?? []), touch] })).toThrow(RangeError);
  const tooLong = new Uint8Array(FRAME_BYTES_MAX + 8);
  tooLong.set(bytes.subarray(0, 48));
  expect(codeOf(seal(tooLong))).toBe('length');
});
