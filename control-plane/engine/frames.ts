// Frames as plain objects. The bytes are written and validated by the engine itself, so that this side of the wire cannot
// drift from the filter's; here they are only carried in and out of its memory.
import type { FrameExports } from './frame-exports.ts';
import { KEY_SOURCES } from './policies.ts';
import { readOutcomes, writeOutcomes } from './outcomes.ts';
import type { OutcomesRecord } from './outcomes.ts';
import { LOAD_FIELDS, POOL_MODES, TOOLS_POSITIONS } from './records.ts';
import type {
  AdapterRecord,
  AliasRecord,
  EndpointRecord,
  GatewayRecord,
  LoadRecord,
  LoadRows,
  MetricsKnown,
  MetricsRecord,
  PoolRecord,
  PutMetrics,
  TouchChunk,
  TouchRecord,
} from './records.ts';

export const FRAME_KINDS = ['report', 'delta', 'snapshot', 'segment'] as const;
export type FrameKind = (typeof FRAME_KINDS)[number];

export const FRAME_ERRORS = [
  'ok',
  'short',
  'magic',
  'version',
  'kind',
  'length',
  'check',
  'flags',
  'section',
  'section-length',
  'count',
  'value',
  'not-allowed',
  'no-gateway',
] as const;
export type FrameErrorName = (typeof FRAME_ERRORS)[number];

export const FRAME_FLAGS = { wantSnapshot: 1, more: 2, wantTable: 4, table: 8 } as const;
export type FrameFlag = keyof typeof FRAME_FLAGS;
const FRAME_FLAG_NAMES = Object.keys(FRAME_FLAGS) as FrameFlag[];

export * from './policies.ts';
export * from './records.ts';

export interface FrameHead {
  kind: FrameKind;
  epoch: bigint;
  sequence: bigint;
  poolHash: bigint;
  settingsVersion: number;
  flags: FrameFlag[];
}

export interface Frame extends FrameHead {
  pool?: PoolRecord;
  secret?: Uint8Array;
  endpoints?: EndpointRecord[];
  load?: LoadRecord[];
  metrics?: MetricsRecord[];
  touches?: TouchRecord[];
  outcomes?: OutcomesRecord;
  gateway?: GatewayRecord;
  adapters?: AdapterRecord[];
  aliases?: AliasRecord[];
}

/** A frame to be written; touches may also be given as chunks of frames that were read, load as rows, and metrics record by record. */
export interface FrameToWrite extends Frame {
  touchChunks?: TouchChunk[];
  loadRows?: LoadRows;
  putMetrics?: (put: PutMetrics) => void;
}

export class FrameError extends Error {
  readonly code: FrameErrorName;
  constructor(code: FrameErrorName) {
    super(`frame refused: ${code}`);
    this.name = 'FrameError';
    this.code = code;
  }
}

const SECTION = { endpoints: 3, load: 4, metrics: 5, touches: 6, outcomes: 7, adapters: 9, aliases: 10 } as const;
const SECTION_POOL = 1;
const SECTION_GATEWAY = 8;
const METRICS = { running: 1, waiting: 2, kvUsage: 4, stale: 8 } as const;
const ENDPOINT = { ready: 1, drain: 2 } as const;
const TOUCH_CLEAR = 1;
export const FRAME_BYTES_MAX = 1 << 20;

const u64 = (value: bigint): bigint => BigInt.asUintN(64, value);
const u32 = (value: number): number => value >>> 0;
const text = new TextDecoder();
const bytesOf = new TextEncoder();

function fits(written: number): void {
  if (written === 0) throw new RangeError('the frame is full');
}

export class Frames {
  readonly #wasm: FrameExports;
  readonly #input: number;
  readonly #output: number;
  readonly #scratch: number;

  constructor(exports: FrameExports) {
    this.#wasm = exports;
    this.#input = exports.frameInput();
    this.#output = exports.frameOutput();
    this.#scratch = exports.frameScratch();
  }

  #view(address: number, bytes: number): Uint8Array {
    return new Uint8Array(this.#wasm.memory.buffer, address, bytes);
  }

  #copy(address: number, bytes: number): Uint8Array {
    return this.#view(address, bytes).slice();
  }

  #put(address: number, bytes: Uint8Array): void {
    this.#view(address, bytes.length).set(bytes);
  }

  poolHash(name: string): bigint {
    const bytes = bytesOf.encode(name).subarray(0, 1024);
    this.#put(this.#scratch, bytes);
    return u64(this.#wasm.framePoolHashOf(this.#scratch, bytes.length));
  }

  /** Validates the first frame of a body and makes it the current one. */
  check(body: Uint8Array): FrameErrorName {
    const part = body.subarray(0, FRAME_BYTES_MAX);
    this.#put(this.#input, part);
    return FRAME_ERRORS[this.#wasm.frameCheck(this.#input, part.length)] ?? 'value';
  }

  /** Sets back touches of the current frame that claim to be later than that. */
  clampTouchTimes(maxMs: number): number {
    return u32(this.#wasm.touchesClampTime(maxMs));
  }

  /** The bytes of the current frame: where the next one of a body begins. */
  bytes(): number {
    return u32(this.#wasm.frameBytes());
  }

  /** The touch records of the current frame as one piece. */
  touchChunk(): TouchChunk | null {
    const address = u32(this.#wasm.touchesRecords());
    if (address === 0) return null;
    return {
      bytes: this.#copy(address, this.#wasm.touchesRecordsBytes()),
      records: this.#wasm.touchesCount(),
      keys: this.#wasm.touchesKeyCount(),
    };
  }

  /** Reads the first frame of a body; throws FrameError. */
  decode(body: Uint8Array): { frame: Frame; bytes: number } {
    const code = this.check(body);
    if (code !== 'ok') throw new FrameError(code);
    return { frame: this.read(), bytes: this.bytes() };
  }

  decodeAll(body: Uint8Array): Frame[] {
    const frames: Frame[] = [];
    for (let at = 0; at < body.length;) {
      const { frame, bytes } = this.decode(body.subarray(at));
      frames.push(frame);
      at += bytes;
    }
    return frames;
  }

  /** The header of the current frame. */
  head(): FrameHead {
    const wasm = this.#wasm;
    const flags = wasm.frameFlags();
    return {
      kind: FRAME_KINDS[wasm.frameKind() - 1] ?? 'report',
      epoch: u64(wasm.frameEpoch()),
      sequence: u64(wasm.frameSequence()),
      poolHash: u64(wasm.framePool()),
      settingsVersion: u32(wasm.frameSettingsVersion()),
      flags: FRAME_FLAG_NAMES.filter((flag) => (flags & FRAME_FLAGS[flag]) !== 0),
    };
  }

  /** The one touch that says that a pod has lost what it held before that time. */
  clearChunk(podId: number, timeMs: number): TouchChunk {
    const head = { kind: 'delta', epoch: 0n, sequence: 0n, poolHash: 1n, settingsVersion: 0, flags: [] } as const;
    const nothing = { parentKey: 0n, keys: new BigUint64Array(0), weights: new Uint32Array(0) };
    this.check(this.encode({ ...head, flags: [], touches: [{ podId, clear: true, timeMs, ...nothing }] }));
    return this.touchChunk() ?? { bytes: new Uint8Array(0), records: 0, keys: 0 };
  }

  /** Takes touches into the table that shares this engine; answers how many spoke of pods that are not known. */
  takeTouches(pool: number, chunk: TouchChunk): number {
    this.#wasm.frameForget();
    this.#put(this.#input, chunk.bytes);
    return u32(this.#wasm.touchesTake(pool, this.#input, chunk.records));
  }

  /** The current frame as an object, without its touches and its load where they are wanted as a chunk and as rows. */
  read(isWhole = true): Frame {
    const wasm = this.#wasm;
    const frame: Frame = this.head();
    if (wasm.frameHas(SECTION_POOL)) frame.pool = this.#readPool();
    const secret = wasm.frameSecret();
    if (secret !== 0) frame.secret = this.#copy(secret, 32);
    if (wasm.frameHas(SECTION.endpoints)) frame.endpoints = this.#list(SECTION.endpoints, (i) => this.#readEndpoint(i));
    if (isWhole && wasm.frameHas(SECTION.load)) frame.load = this.#list(SECTION.load, (i) => this.#readLoad(i));
    if (wasm.frameHas(SECTION.metrics)) frame.metrics = this.#list(SECTION.metrics, (i) => this.#readMetrics(i));
    if (isWhole && wasm.frameHas(SECTION.touches)) frame.touches = this.readTouches();
    if (wasm.frameHas(SECTION.outcomes)) frame.outcomes = readOutcomes(wasm);
    if (wasm.frameHas(SECTION_GATEWAY)) frame.gateway = this.#readGateway();
    if (wasm.frameHas(SECTION.aliases)) {
      frame.aliases = this.#list(SECTION.aliases, (i) => ({
        name: u32(wasm.aliasName(i)),
        group: u32(wasm.aliasGroupName(i)),
      }));
    }
    if (wasm.frameHas(SECTION.adapters)) {
      frame.adapters = this.#list(SECTION.adapters, (i) => ({
        podId: u32(wasm.adapterPodId(i)),
        hash: u32(wasm.adapterHash(i)),
      }));
    }
    return frame;
  }

  #list<T>(section: number, read: (index: number) => T): T[] {
    return Array.from({ length: this.#wasm.frameCount(section) }, (_, index) => read(index));
  }

  #readPool(): PoolRecord {
    const wasm = this.#wasm;
    const source = KEY_SOURCES[wasm.framePolicyKeySource() - 1];
    return {
      mode: POOL_MODES[wasm.frameMode()] ?? 'off',
      policy: wasm.framePolicy(),
      toolsPosition: TOOLS_POSITIONS[wasm.frameToolsPosition()] ?? 'auto',
      blockBytes: u32(wasm.frameBlockBytes()),
      windowBytes: u32(wasm.frameWindowBytes()),
      syncIntervalMs: u32(wasm.frameSyncIntervalMs()),
      bytesPerToken: wasm.frameBytesPerToken(),
      weights: { prefix: wasm.frameWeightPrefix(), queue: wasm.frameWeightQueue(), kv: wasm.frameWeightKv() },
      ...(source === undefined ? {} : { policyKey: { source, name: this.#readPolicyKeyName() } }),
    };
  }

  #readPolicyKeyName(): string {
    return text.decode(this.#copy(this.#wasm.framePolicyKeyName(), this.#wasm.framePolicyKeyNameBytes()));
  }

  #readEndpoint(i: number): EndpointRecord {
    const wasm = this.#wasm;
    const flags = wasm.endpointFlags(i);
    return {
      podId: u32(wasm.endpointPodId(i)),
      address: this.#copy(wasm.endpointAddress(i), 16),
      port: wasm.endpointPort(i),
      ready: (flags & ENDPOINT.ready) !== 0,
      drain: (flags & ENDPOINT.drain) !== 0,
      weight: wasm.endpointWeight(i),
      capacityTokens: u32(wasm.endpointCapacityTokens(i)),
      startedSeconds: wasm.endpointStartedSeconds(i),
    };
  }

  #readLoad(i: number): LoadRecord {
    const wasm = this.#wasm;
    return {
      podId: u32(wasm.loadPodId(i)),
      inFlight: u32(wasm.loadInFlight(i)),
      prefillTokens: u32(wasm.loadPrefillTokens(i)),
      usedTokens: u32(wasm.loadUsedTokens(i)),
      ageMs: u32(wasm.loadAgeMs(i)),
      slowness: wasm.loadSlowness(i),
    };
  }

  /** The load of the current frame; false when it says nothing of it. */
  readLoad(into: LoadRows): boolean {
    const wasm = this.#wasm;
    if (!wasm.frameHas(SECTION.load)) return false;
    const count = wasm.frameCount(SECTION.load);
    if (into.numbers.length < count * LOAD_FIELDS) into.numbers = new Float64Array(count * LOAD_FIELDS * 2);
    into.count = count;
    const { numbers } = into;
    for (let i = 0, at = 0; i < count; i++, at += LOAD_FIELDS) {
      numbers[at] = u32(wasm.loadPodId(i));
      numbers[at + 1] = u32(wasm.loadInFlight(i));
      numbers[at + 2] = u32(wasm.loadPrefillTokens(i));
      numbers[at + 3] = u32(wasm.loadUsedTokens(i));
      numbers[at + 4] = u32(wasm.loadAgeMs(i));
      numbers[at + 5] = wasm.loadSlowness(i);
    }
    return true;
  }

  #readMetrics(i: number): MetricsRecord {
    const wasm = this.#wasm;
    const flags = wasm.metricsFlags(i);
    return {
      podId: u32(wasm.metricsPodId(i)),
      running: flags & METRICS.running ? u32(wasm.metricsRunning(i)) : null,
      waiting: flags & METRICS.waiting ? u32(wasm.metricsWaiting(i)) : null,
      kvUsage: flags & METRICS.kvUsage ? wasm.metricsKvUsage(i) : null,
      ageMs: u32(wasm.metricsAgeMs(i)),
      stale: (flags & METRICS.stale) !== 0,
      ttftMs: wasm.metricsTtftMs(i),
      ttftRequests: u32(wasm.metricsTtftRequests(i)),
    };
  }

  /** The touches of the current frame. */
  readTouches(): TouchRecord[] {
    const wasm = this.#wasm;
    const touches: TouchRecord[] = [];
    wasm.touchesRewind();
    while (wasm.touchesNext()) {
      const count = wasm.touchCount();
      touches.push({
        podId: u32(wasm.touchPodId()),
        clear: (wasm.touchFlags() & TOUCH_CLEAR) !== 0,
        timeMs: wasm.touchTimeMs(),
        parentKey: u64(this.#wasm.touchParentKey()),
        keys: new BigUint64Array(this.#copy(wasm.touchKeys(), count * 8).buffer),
        weights: new Uint32Array(this.#copy(wasm.touchWeights(), count * 4).buffer),
      });
    }
    return touches;
  }

  #readGateway(): GatewayRecord {
    return {
      incarnation: u64(this.#wasm.gatewayIncarnation()),
      touchesNext: u64(this.#wasm.gatewayTouchesNext()),
      workers: u32(this.#wasm.gatewayWorkers()),
      name: text.decode(this.#copy(this.#wasm.gatewayName(), this.#wasm.gatewayNameBytes())),
    };
  }

  /** Writes a frame; throws RangeError when it would be longer than a frame may be. */
  encode(frame: FrameToWrite): Uint8Array {
    return this.write(frame).slice();
  }

  /** The same, as it lies in the engine's memory until the next call. */
  write(frame: FrameToWrite): Uint8Array {
    const wasm = this.#wasm;
    const kind = FRAME_KINDS.indexOf(frame.kind) + 1;
    const flags = frame.flags.reduce((bits, flag) => bits | FRAME_FLAGS[flag], 0);
    const { epoch, sequence, poolHash, settingsVersion } = frame;
    fits(wasm.frameBegin(this.#output, FRAME_BYTES_MAX, kind, epoch, sequence, poolHash, settingsVersion, flags));
    if (frame.pool) this.#writePool(frame.pool);
    if (frame.secret) this.#writeSecret(frame.secret);
    if (frame.endpoints) this.#section(SECTION.endpoints, frame.endpoints, (r) => this.#writeEndpoint(r));
    if (frame.load) this.#section(SECTION.load, frame.load, (r) => this.#writeLoad(r));
    if (frame.loadRows) this.#writeLoadRows(frame.loadRows);
    if (frame.metrics)
      this.#section(SECTION.metrics, frame.metrics, (r) => this.#writeMetrics(r.podId, r, r.ageMs, r.stale));
    if (frame.putMetrics) this.#putAll(SECTION.metrics, frame.putMetrics, this.#putMetrics);
    if (frame.touches) this.#section(SECTION.touches, frame.touches, (r) => this.#writeTouch(r));
    for (const chunk of frame.touchChunks ?? []) this.#writeChunk(chunk);
    if (frame.outcomes) fits(Number(writeOutcomes(wasm, frame.outcomes)));
    if (frame.gateway) this.#writeGateway(frame.gateway);
    if (frame.adapters) {
      this.#section(SECTION.adapters, frame.adapters, ({ podId, hash }) => wasm.writeAdapter(podId, hash));
    }
    if (frame.aliases) {
      this.#section(SECTION.aliases, frame.aliases, ({ name, group }) => wasm.writeAlias(name, group));
    }
    return this.#view(this.#output, wasm.frameEnd());
  }

  #section<T>(type: number, records: T[], write: (record: T) => number): void {
    fits(this.#wasm.writeSection(type));
    for (const record of records) fits(write(record));
  }

  #putAll<Put>(type: number, all: (put: Put) => void, put: Put): void {
    fits(this.#wasm.writeSection(type));
    all(put);
  }

  readonly #putMetrics: PutMetrics = (podId, known, ageMs, stale) =>
    fits(this.#writeMetrics(podId, known, ageMs, stale));

  #writePool(pool: PoolRecord): void {
    const { weights } = pool;
    fits(
      this.#wasm.writePool(
        POOL_MODES.indexOf(pool.mode),
        pool.policy,
        TOOLS_POSITIONS.indexOf(pool.toolsPosition),
        pool.blockBytes,
        pool.windowBytes,
        pool.syncIntervalMs,
        pool.bytesPerToken,
        weights.prefix,
        weights.queue,
        weights.kv,
      ),
    );
    if (pool.policyKey === undefined) return;
    const name = bytesOf.encode(pool.policyKey.name);
    if (name.length > 64) throw new RangeError('the name of a header or cookie has at most 64 bytes');
    this.#put(this.#scratch, name);
    fits(this.#wasm.writePolicyKey(KEY_SOURCES.indexOf(pool.policyKey.source) + 1, this.#scratch, name.length));
  }

  #writeSecret(secret: Uint8Array): void {
    if (secret.length !== 32) throw new RangeError('a secret has 32 bytes');
    this.#put(this.#scratch, secret);
    fits(this.#wasm.writeSecret(this.#scratch));
  }

  #writeEndpoint(r: EndpointRecord): number {
    if (r.address.length !== 16) throw new RangeError('an address has 16 bytes');
    this.#put(this.#scratch, r.address);
    const flags = (r.ready ? ENDPOINT.ready : 0) | (r.drain ? ENDPOINT.drain : 0);
    const { podId, port, weight, capacityTokens, startedSeconds } = r;
    return this.#wasm.writeEndpoint(podId, port, flags, this.#scratch, weight, capacityTokens, startedSeconds);
  }

  #writeLoad(r: LoadRecord): number {
    return this.#wasm.writeLoad(r.podId, r.inFlight, r.prefillTokens, r.usedTokens, r.ageMs, r.slowness);
  }

  #writeLoadRows({ count, numbers: n }: LoadRows): void {
    const wasm = this.#wasm;
    fits(wasm.writeSection(SECTION.load));
    for (let i = 0, at = 0; i < count; i++, at += LOAD_FIELDS) {
      const podId = n[at] as number;
      const inFlight = n[at + 1] as number;
      const prefillTokens = n[at + 2] as number;
      const usedTokens = n[at + 3] as number;
      fits(wasm.writeLoad(podId, inFlight, prefillTokens, usedTokens, n[at + 4] as number, n[at + 5] as number));
    }
  }

  #writeMetrics(podId: number, r: MetricsKnown, ageMs: number, stale: boolean): number {
    const flags =
      (r.running === null ? 0 : METRICS.running) |
      (r.waiting === null ? 0 : METRICS.waiting) |
      (r.kvUsage === null ? 0 : METRICS.kvUsage) |
      (stale ? METRICS.stale : 0);
    const running = r.running ?? 0;
    const waiting = r.waiting ?? 0;
    const kvUsage = r.kvUsage ?? 0;
    return this.#wasm.writeMetrics(podId, running, waiting, kvUsage, ageMs, flags, r.ttftMs, r.ttftRequests);
  }

  #writeTouch(r: TouchRecord): number {
    const flags = r.clear ? TOUCH_CLEAR : 0;
    if (this.#wasm.writeTouch(r.podId, flags, r.timeMs, r.parentKey, r.keys.length) === 0) return 0;
    r.keys.forEach((key, index) => {
      this.#wasm.writeTouchKey(index, key, r.weights[index] ?? 0);
    });
    return 1;
  }

  #writeChunk(chunk: TouchChunk): void {
    // The chunk passes through the input region, where the current frame lay.
    this.#wasm.frameForget();
    this.#put(this.#input, chunk.bytes);
    fits(this.#wasm.writeTouchRecords(this.#input, chunk.bytes.length, chunk.records, chunk.keys));
  }

  #writeGateway(r: GatewayRecord): void {
    const name = bytesOf.encode(r.name);
    if (name.length > 256) throw new RangeError('a gateway name has at most 256 bytes');
    this.#put(this.#scratch, name);
    fits(this.#wasm.writeGateway(r.incarnation, r.touchesNext, r.workers, this.#scratch, name.length));
  }
}
