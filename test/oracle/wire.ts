// The wire format a second time, written for clearness from docs/WIRE.md and sharing nothing with the engine: the encoder
// that golden vectors and the engine are held against.
import {
  FRAME_FLAGS,
  FRAME_KINDS,
  KEY_SOURCES,
  POOL_MODES,
  TOOLS_POSITIONS,
} from '../../control-plane/engine/frames.ts';
import type { Frame } from '../../control-plane/engine/frames.ts';
import { KIND_APIS, KIND_COUNTERS, LANGUAGES, OUTCOME_COUNTERS } from '../../control-plane/engine/outcomes.ts';

const M = (1n << 64n) - 1n;
const P1 = 0x9e3779b185ebca87n;
const P2 = 0xc2b2ae3d27d4eb4fn;
const P3 = 0x165667b19e3779f9n;
const P4 = 0x85ebca77c2b2ae63n;
const P5 = 0x27d4eb2f165667c5n;
const rotl = (x: bigint, r: bigint): bigint => ((x << r) | (x >> (64n - r))) & M;
const round = (accumulator: bigint, lane: bigint): bigint => (rotl((accumulator + lane * P2) & M, 31n) * P1) & M;

/** XXH64 after its specification, for any length. */
export function xxh64(bytes: Uint8Array, seed: bigint): bigint {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  let hash: bigint;
  if (bytes.length >= 32) {
    const lanes = [(seed + P1 + P2) & M, (seed + P2) & M, seed, (seed - P1) & M];
    for (; at + 32 <= bytes.length; at += 32) {
      lanes.forEach((lane, i) => (lanes[i] = round(lane, view.getBigUint64(at + i * 8, true))));
    }
    const [a = 0n, b = 0n, c = 0n, d = 0n] = lanes;
    hash = (rotl(a, 1n) + rotl(b, 7n) + rotl(c, 12n) + rotl(d, 18n)) & M;
    for (const lane of lanes) hash = ((hash ^ round(0n, lane)) * P1 + P4) & M;
  } else {
    hash = (seed + P5) & M;
  }
  hash = (hash + BigInt(bytes.length)) & M;
  for (; at + 8 <= bytes.length; at += 8) {
    hash = (rotl(hash ^ round(0n, view.getBigUint64(at, true)), 27n) * P1 + P4) & M;
  }
  if (at + 4 <= bytes.length) {
    hash = (rotl(hash ^ ((BigInt(view.getUint32(at, true)) * P1) & M), 23n) * P2 + P3) & M;
    at += 4;
  }
  for (; at < bytes.length; at++) hash = (rotl(hash ^ ((BigInt(bytes[at] ?? 0) * P5) & M), 11n) * P1) & M;
  hash = ((hash ^ (hash >> 33n)) * P2) & M;
  hash = ((hash ^ (hash >> 29n)) * P3) & M;
  return hash ^ (hash >> 32n);
}

/** Writes length and check into a frame, for tests that changed something in it. */
export function seal(frame: Uint8Array): Uint8Array {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  view.setUint32(8, frame.length, true);
  view.setUint32(12, Number(xxh64(frame.subarray(16), view.getBigUint64(0, true)) & 0xffff_ffffn), true);
  return frame;
}

class Bytes {
  #bytes: number[] = [];
  #scratch = new DataView(new ArrayBuffer(8));
  get length(): number {
    return this.#bytes.length;
  }
  #take(count: number): this {
    for (let i = 0; i < count; i++) this.#bytes.push(this.#scratch.getUint8(i));
    return this;
  }
  u8(...values: number[]): this {
    this.#bytes.push(...values);
    return this;
  }
  u16(...values: number[]): this {
    for (const value of values) {
      this.#scratch.setUint16(0, value, true);
      this.#take(2);
    }
    return this;
  }
  u32(...values: number[]): this {
    for (const value of values) {
      this.#scratch.setUint32(0, value, true);
      this.#take(4);
    }
    return this;
  }
  u64(...values: bigint[]): this {
    for (const value of values) {
      this.#scratch.setBigUint64(0, value, true);
      this.#take(8);
    }
    return this;
  }
  f32(...values: number[]): this {
    for (const value of values) {
      this.#scratch.setFloat32(0, value, true);
      this.#take(4);
    }
    return this;
  }
  f64(value: number): this {
    this.#scratch.setFloat64(0, value, true);
    return this.#take(8);
  }
  all(bytes: Iterable<number>): this {
    for (const byte of bytes) this.#bytes.push(byte);
    return this;
  }
  pad(): this {
    while (this.#bytes.length % 8 !== 0) this.#bytes.push(0);
    return this;
  }
  done(): Uint8Array {
    return Uint8Array.from(this.#bytes);
  }
}

function section(out: Bytes, type: number, fill: (body: Bytes) => void): void {
  const body = new Bytes();
  fill(body);
  body.pad();
  out.u16(type, 0).u32(body.length).all(body.done());
}

/** A frame's bytes. */
export function encodeWire(frame: Frame): Uint8Array {
  const out = new Bytes();
  out
    .u32(0x46504d57)
    .u16(2, FRAME_KINDS.indexOf(frame.kind) + 1)
    .u32(0, 0);
  out.u64(frame.epoch, frame.sequence, frame.poolHash).u32(frame.settingsVersion);
  out.u32(frame.flags.reduce((bits, flag) => bits + FRAME_FLAGS[flag], 0));
  const { pool, secret, endpoints, load, metrics, touches, outcomes, gateway, adapters, aliases } = frame;
  if (pool) {
    section(out, 1, (b) => {
      b.u8(POOL_MODES.indexOf(pool.mode), pool.policy, TOOLS_POSITIONS.indexOf(pool.toolsPosition), 0);
      b.u32(pool.blockBytes, pool.windowBytes, pool.syncIntervalMs);
      b.f32(pool.bytesPerToken, pool.weights.prefix, pool.weights.queue, pool.weights.kv);
      if (pool.policyKey === undefined) return;
      const { source, name } = pool.policyKey;
      b.u8(KEY_SOURCES.indexOf(source) + 1, 0, 0, 0).u32(name.length);
      b.all(new TextEncoder().encode(name));
    });
  }
  if (secret) section(out, 2, (b) => b.all(secret));
  if (endpoints) {
    section(out, 3, (b) => {
      for (const e of endpoints) {
        b.u32(e.podId)
          .u16(e.port, (e.ready ? 1 : 0) + (e.drain ? 2 : 0))
          .all(e.address);
        b.f32(e.weight).u32(e.capacityTokens).f64(e.startedSeconds);
      }
    });
  }
  if (load) {
    section(out, 4, (b) => {
      for (const l of load) b.u32(l.podId, l.inFlight, l.prefillTokens, l.usedTokens, l.ageMs).f32(l.slowness);
    });
  }
  if (metrics) {
    section(out, 5, (b) => {
      for (const m of metrics) {
        const known = (m.running === null ? 0 : 1) + (m.waiting === null ? 0 : 2) + (m.kvUsage === null ? 0 : 4);
        b.u32(m.podId, m.running ?? 0, m.waiting ?? 0)
          .f32(m.kvUsage ?? 0)
          .u32(m.ageMs, known + (m.stale ? 8 : 0));
        b.f32(m.ttftMs).u32(m.ttftRequests);
      }
    });
  }
  if (touches) {
    section(out, 6, (b) => {
      b.u32(
        touches.length,
        touches.reduce((sum, t) => sum + t.keys.length, 0),
      );
      for (const t of touches) {
        b.u32(t.podId)
          .u16(t.clear ? 1 : 0, t.keys.length)
          .f64(t.timeMs)
          .u64(t.parentKey);
        b.u64(...t.keys)
          .u32(...t.weights)
          .pad();
      }
    });
  }
  if (outcomes) {
    section(out, 7, (b) => {
      const { pods, kinds, bytesPerToken, ratioTokens } = outcomes;
      b.u32(pods.length, kinds.length).f32(bytesPerToken).u32(ratioTokens);
      for (const pod of pods) {
        b.u32(pod.podId, pod.resets)
          .u64(...OUTCOME_COUNTERS.map((counter) => BigInt(pod[counter])))
          .f64(pod.ttftMsSum);
      }
      for (const kind of kinds) {
        b.u8(KIND_APIS.indexOf(kind.api), LANGUAGES.indexOf(kind.language)).u16(0).u32(0);
        b.u64(...KIND_COUNTERS.map((counter) => BigInt(kind[counter]))).u64(...kind.errors.map(BigInt));
      }
    });
  }
  if (gateway) {
    section(out, 8, (b) => {
      const name = new TextEncoder().encode(gateway.name);
      b.u64(gateway.incarnation, gateway.touchesNext).u32(gateway.workers, name.length).all(name);
    });
  }
  if (adapters) section(out, 9, (b) => adapters.forEach(({ podId, hash }) => b.u32(podId, hash)));
  if (aliases) section(out, 10, (b) => aliases.forEach(({ name, group }) => b.u32(name, group)));
  return seal(out.done());
}

/** FNV-1a over a pool's name. */
export function poolHashWire(name: string): bigint {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(name)) hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & M;
  return hash === 0n ? 1n : hash;
}

/** A frame as JSON has it: bigints as decimal text with an n, bytes and typed arrays as lists. */
export function frameToJson(frame: Frame): unknown {
  return JSON.parse(
    JSON.stringify(frame, (_key, value: unknown) => {
      if (typeof value === 'bigint') return `${value}n`;
      if (value instanceof Uint8Array || value instanceof Uint32Array || value instanceof BigUint64Array) {
        return [...(value as Iterable<number | bigint>)];
      }
      return value;
    }),
  );
}

export function frameFromJson(json: unknown): Frame {
  return JSON.parse(JSON.stringify(json), (key: string, value: unknown) => {
    if (typeof value === 'string' && /^\d+n$/.test(value)) return BigInt(value.slice(0, -1));
    if (key === 'keys') return BigUint64Array.from(value as bigint[]);
    if (key === 'weights' && Array.isArray(value)) return Uint32Array.from(value as number[]);
    if (key === 'address' || key === 'secret') return Uint8Array.from(value as number[]);
    return value;
  }) as Frame;
}
