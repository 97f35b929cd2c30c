// A gateway to which anything may happen, in any order: several VMs with two plugins each share data in the Node host, while requests,
// callbacks, answers of the control plane, settings, restarts and foreign writes come as a random run of steps says.

import type { Frame, Frames } from '../../control-plane/engine/frames.ts';
import { Status } from '../host/abi.ts';
import { ConfigurationRefused, WasmHost } from '../host/host.ts';
import type { PendingCall, Root, Stream, Vm } from '../host/host.ts';
import { mappedAddress, SECRET } from './control-plane.ts';
import type { Content, Step } from './fuzz-steps.ts';
import { chat, PATH, words } from './gateway.ts';

const plugins = ['alpha', 'beta'] as const;
const vmNames = ['vm-0', 'vm-1', 'vm-2'] as const;
/** Fewer records than there are streams at times. */
const bounds = { pods: 4, blocks: 1024, streams: 16 };
/** Longer than every lease, timeout and drain time together. */
const settleMs = 4800;
/** Within which the leaders report again. */
const reportMs = 500;

export class World {
  readonly host: WasmHost;
  readonly #frames: Frames;
  readonly #roots = new Map<string, Root>();
  readonly #streams = new Set<Stream>();
  readonly #ended: { vm: Vm; stream: Stream }[] = [];
  readonly #vmOf = new Map<Stream, Vm>();
  #generation = 0;
  /** Shared data is neither read nor written, as if the host failed. */
  #isDeaf = false;
  /** Load in the newest report of each pool. */
  readonly #load = new Map<bigint, Frame['load']>();
  #sequence = 1n;
  picks = 0;

  /** `isSettled`: every VM has settings and pods when the run begins. */
  constructor(module: WebAssembly.Module, frames: Frames, isSettled: boolean) {
    this.#frames = frames;
    this.host = new WasmHost(module, { drainMs: 500, logLevel: 'error' });
    const { shared } = this.host;
    const [get, set] = [shared.get.bind(shared), shared.set.bind(shared)];
    shared.get = (key) => (this.#isDeaf ? undefined : get(key));
    shared.set = (...args) => (this.#isDeaf ? Status.internalFailure : set(...args));
    for (const name of vmNames) this.#start(name);
    for (let i = 0; isSettled && i < 4; i++) {
      this.host.advance(20);
      this.#syncWell();
    }
  }

  do(one: Step): void {
    switch (one.do) {
      case 'open':
        this.#begin(one);
        return;
      case 'chat': {
        const stream = this.#begin({ at: one.at, path: PATH, method: 'POST', encoding: undefined, end: false });
        stream?.requestBody(JSON.stringify(chat(words(`s${one.seed}-`, 3000), `user ${one.at}`)), true);
        if (stream?.filterState('warmpath.pick')) this.picks++;
        return;
      }
      case 'request': {
        const stream = this.#pick(this.#open, one.at);
        if (!stream) return;
        const bytes = new TextEncoder().encode(one.body);
        for (let i = 0; i < one.cuts; i++)
          stream.requestBody(bytes.subarray((bytes.length * i) / one.cuts, (bytes.length * (i + 1)) / one.cuts));
        if (one.cuts === 0 || one.end) stream.requestBody(one.cuts === 0 ? bytes : '', one.end);
        if (one.trailers) stream.requestTrailers({ a: 'b' });
        if (stream.filterState('warmpath.pick')) this.picks++;
        return;
      }
      case 'head': {
        const stream = this.#pick(this.#open, one.at);
        if (!stream) return;
        if (one.upstream !== undefined) stream.properties['upstream.address'] = one.upstream;
        stream.responseHeaders({ ':status': one.status, 'content-type': one.type });
        return;
      }
      case 'answer':
        return void this.#pick(this.#open, one.at)?.responseBody(one.body, one.end);
      case 'finish': {
        const stream = this.#pick(this.#open, one.at);
        if (stream)
          this.#finish(stream, {
            ...(one.upstream === undefined ? {} : { 'upstream.address': one.upstream }),
            ...(one.flags === undefined ? {} : { 'response.flags': one.flags }),
          });
        return;
      }
      case 'odd': {
        const among = [
          ...[...this.#streams].map((stream) => ({ vm: this.#vmOf.get(stream)!, stream })),
          ...this.#ended.slice(-5),
        ];
        const found = this.#pick(among, one.at);
        if (found) found.vm.invoke(found.stream, one.callback, one.context ?? found.stream.id, one.bytes, one.end);
        return;
      }
      case 'odd-root': {
        const root = this.#pick(this.#roots.values(), one.at);
        root?.vm.invoke(root, 'proxy_on_http_call_response', one.context ?? root.id, one.call, 0, 0, 0);
        root?.vm.invoke(root, 'proxy_on_tick', one.context ?? root.id);
        return;
      }
      case 'wait':
        return this.host.advance(one.ms);
      case 'clock':
        return this.#setClock(one.ms);
      case 'sync': {
        const call = this.#pick(this.host.calls, one.at);
        if (!call) return;
        this.#read(call);
        const all = one.frames.map((frame) => this.#encode(frame));
        call.answer({ status: one.status, body: this.#spoil(Buffer.concat(all), one.spoil) });
        return;
      }
      case 'good-sync':
        return this.#syncWell();
      case 'configure':
        return this.#configure(one.at, plugins[one.plugin]!, one.text);
      case 'retire': {
        const key = `${this.#vmAt(one.at)}/${plugins[one.plugin]!}`;
        this.#roots.get(key)?.retire();
        this.#roots.delete(key);
        return;
      }
      case 'restart':
        return this.#restart(this.#vmAt(one.at));
      case 'write': {
        const keys = this.host.shared.keys();
        const key = this.#pick(keys, one.at);
        if (key === undefined) return;
        const value =
          one.value instanceof Uint8Array
            ? one.value
            : typeof one.value === 'number'
              ? (this.host.shared.get(this.#pick(keys, one.value)!)?.bytes ?? new Uint8Array())
              : this.#encode(one.value);
        this.host.shared.set(key, this.#spoil(value, one.spoil));
        return;
      }
      case 'deaf':
        this.#isDeaf = one.isDeaf;
        return;
      case 'wipe':
        return this.host.shared.clear();
    }
  }

  /** Everything that was opened ends, and a sound control plane answers for a while. */
  rest(): void {
    this.#isDeaf = false;
    for (const stream of this.#streams) this.#finish(stream);
    for (const plugin of plugins) {
      for (const name of vmNames)
        this.#configureVm(name, plugin, '{"pool":"POOL","sync":{"cluster":"warmpath","intervalMs":50}}');
    }
    this.host.onCall = (call) => ({ body: this.#settingsFor(call) });
    this.host.advance(settleMs);
    this.#load.clear();
    this.host.advance(reportMs);
  }

  /** What is still counted as in flight, by name: nothing, at rest. */
  counted(): Record<string, number> {
    // A gauge of a pod or a pool that is gone keeps its last value when the leader that wrote it went at the same time.
    const isHere = /\.pool\.(alpha|beta)\.pod\.10_0_0_[1-4]_8000$/;
    const gauges = Object.entries(this.host.metrics.matching('warmpath_in_flight')).filter(
      ([name, value]) => value !== 0 && isHere.test(name),
    );
    const load = [...this.#load].flatMap(([pool, records]) =>
      (records ?? []).flatMap(({ podId: pod, inFlight, prefillTokens, usedTokens }) =>
        inFlight + prefillTokens + usedTokens === 0
          ? []
          : [[`report ${pool} ${pod}`, inFlight + prefillTokens + usedTokens] as [string, number]],
      ),
    );
    return Object.fromEntries([...gauges, ...load]);
  }

  /** How many pools have reported since everything had ended. */
  get reports(): number {
    return this.#load.size;
  }

  /** Streams that are open; those of a root whose drain time has passed are not. */
  get #open(): Stream[] {
    return [...this.#streams].filter((stream) => !stream.isFinished);
  }

  #pick<T>(all: Iterable<T>, at: number): T | undefined {
    const items = [...all];
    return items[at % Math.max(1, items.length)];
  }

  #vmAt(at: number): (typeof vmNames)[number] {
    return vmNames[at % vmNames.length]!;
  }

  /** The VM of a slot has another name after each restart, as its successor in Envoy has no memory of it. */
  #start(slot: string): void {
    const vm = this.host.vm(`${slot}#${this.#generation++}`);
    for (const plugin of plugins) {
      const text = `{"pool":"${plugin}","sync":{"cluster":"warmpath"},"bounds":${JSON.stringify(bounds)}}`;
      this.#roots.set(`${slot}/${plugin}`, vm.plugin(plugin, text));
    }
  }

  #restart(slot: string): void {
    const vm = [...this.#roots].find(([key]) => key.startsWith(slot))?.[1].vm;
    if (!vm) return this.#start(slot);
    for (const plugin of plugins) this.#roots.delete(`${slot}/${plugin}`);
    for (const stream of this.#streams) if (this.#vmOf.get(stream) === vm) this.#streams.delete(stream);
    this.host.dropVm(vm.name);
    this.#start(slot);
  }

  #configure(at: number, plugin: string, text: string): void {
    this.#configureVm(this.#vmAt(at), plugin, text);
  }

  #configureVm(slot: string, plugin: string, text: string): void {
    const key = `${slot}/${plugin}`;
    const full = text.replace('POOL', plugin);
    const root = this.#roots.get(key);
    const vm = root?.vm ?? [...this.#roots].find(([other]) => other.startsWith(slot))?.[1].vm;
    if (!vm) return this.#start(slot);
    try {
      this.#roots.set(key, root ? root.reconfigure(full) : vm.plugin(plugin, full));
    } catch (error) {
      if (!(error instanceof ConfigurationRefused)) throw error;
    }
  }

  #begin(one: {
    at: number;
    path: string;
    method: string;
    encoding: string | undefined;
    end: boolean;
  }): Stream | undefined {
    const root = this.#pick(this.#roots.values(), one.at);
    if (!root) return undefined;
    const stream = root.stream({
      headers: {
        ':method': one.method,
        ':path': one.path,
        ...(one.encoding === undefined ? {} : { 'content-encoding': one.encoding }),
      },
      properties: { 'xds.cluster_name': 'pool-cluster' },
      end: one.end,
    });
    this.#streams.add(stream);
    this.#vmOf.set(stream, root.vm);
    return stream;
  }

  #finish(stream: Stream, properties: Record<string, string | number> = {}): void {
    if (!stream.isFinished) stream.finish(properties);
    this.#streams.delete(stream);
    this.#ended.push({ vm: this.#vmOf.get(stream)!, stream });
  }

  /** Somebody sets the clock; what waits for its time waits on, since Envoy's timers run by another clock. */
  #setClock(ms: number): void {
    this.host.nowMs += ms;
    for (const vm of this.host.vms) {
      for (const root of vm.roots) {
        root.tickDueMs += ms;
        root.goesAtMs += ms;
      }
    }
  }

  #read(call: PendingCall): Frame {
    const { frame } = this.#frames.decode(call.body);
    this.#load.set(frame.poolHash, frame.load);
    return frame;
  }

  #encode(one: Content): Uint8Array {
    const { isOurs, pool, secret, endpoints, load, metrics, touches, gateway, ...head } = one;
    try {
      return this.#frames.encode({
        ...head,
        poolHash: isOurs ? this.#frames.poolHash('alpha') : this.#frames.poolHash('beta'),
        ...(pool ? { pool, secret, endpoints } : {}),
        ...(load ? { load } : {}),
        ...(metrics ? { metrics } : {}),
        ...(touches
          ? {
              touches: touches.map((record) => ({
                ...record,
                keys: new BigUint64Array(record.keys),
                weights: Uint32Array.from(record.keys, (_, i) => record.weights[i] ?? 256),
              })),
            }
          : {}),
        ...(gateway ? { gateway: { ...gateway, name: 'fuzz' } } : {}),
      });
    } catch {
      // The writer refuses what the format does not allow.
      return new Uint8Array(48).fill(1);
    }
  }

  #spoil(bytes: Uint8Array, { how, at }: { how: 'not' | 'cut' | 'flip' | 'twice' | 'tail'; at: number }): Uint8Array {
    if (how === 'not' || bytes.length === 0) return bytes;
    const index = Math.floor((bytes.length * at) / 1001);
    if (how === 'cut') return bytes.slice(0, index);
    if (how === 'twice') return Buffer.concat([bytes, bytes]);
    if (how === 'tail') return Buffer.concat([bytes, Uint8Array.of(1, 2, 3)]);
    const flipped = bytes.slice();
    flipped[index]! ^= 1 << (at % 8);
    return flipped;
  }

  #syncWell(): void {
    for (const call of this.host.calls) call.answer({ body: this.#settingsFor(call) });
  }

  #settingsFor(call: PendingCall): Uint8Array {
    const report = this.#read(call);
    return this.#frames.encode({
      kind: 'delta',
      epoch: 7n,
      sequence: this.#sequence++,
      poolHash: report.poolHash,
      settingsVersion: 1,
      flags: [],
      pool: {
        mode: 'active',
        policy: 0,
        toolsPosition: 'auto',
        blockBytes: 256,
        windowBytes: 0,
        syncIntervalMs: 50,
        bytesPerToken: 4,
        weights: { prefix: 3, queue: 2, kv: 2 },
      },
      secret: SECRET,
      endpoints: Array.from({ length: 4 }, (_, pod) => ({
        podId: pod + 1,
        address: mappedAddress(`10.0.0.${pod + 1}`),
        port: 8000,
        ready: true,
        drain: false,
        weight: 1,
        capacityTokens: 100_000,
        startedSeconds: 0,
      })),
      gateway: {
        incarnation: report.gateway!.incarnation,
        touchesNext: report.gateway!.touchesNext + BigInt(report.touches?.length ?? 0),
        workers: 0,
        name: 'control-plane',
      },
    });
  }
}
