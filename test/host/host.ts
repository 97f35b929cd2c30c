// A proxy-wasm host for Node: what an Envoy is to the filter, with a clock that stands still until a test moves it.
//
//   const envoy = new WasmHost(wasmModule('filter'));
//   const root = envoy.vm('worker-1').plugin('warmpath', { pool: 'p', ... });
//   const stream = root.stream({ headers: { ':path': '/v1/chat/completions' }, properties: { 'xds.cluster_name': 'p' } });
//   stream.requestBody('{...}', true);
//   stream.filterState('warmpath.pick');
//   envoy.advance(50);                       // ticks of all VMs, in the order they fall due
//   [...envoy.calls][0].answer({ body });    // or envoy.onCall = (call) => ({ body })
//
// A callback that traps throws in the test. Whatever Envoy forbids or forgets is answered as Envoy answers it.

import { readFileSync } from 'node:fs';
import { logLevels } from './abi.ts';
import type { HeaderPairs, LogLevel, PropertyValue } from './abi.ts';
import type { Root } from './plugin.ts';
import { Metrics, SharedData } from './store.ts';
import { PendingCall, Vm } from './vm.ts';
import type { CallAnswer } from './vm.ts';

export type { Headers, LogLevel, PropertyValue } from './abi.ts';
export { Action } from './abi.ts';
export { ConfigurationRefused, type Root } from './plugin.ts';
export type { Stream, StreamOptions } from './stream.ts';
export type { CallAnswer, PendingCall, Vm } from './vm.ts';

export interface HostOptions {
  nowMs?: number;
  /** Clusters that calls may name; a call to any other fails at once, as in Envoy. */
  clusters?: string[];
  environment?: Record<string, string>;
  logLevel?: LogLevel;
  /** Properties of the process, such as xds.node.id, by dotted path. */
  properties?: Record<string, PropertyValue>;
  /** How long an old root goes on after a change of configuration; Envoy's default. */
  drainMs?: number;
  /** Seed of the random bytes the VMs get. */
  seed?: number;
}

export interface LogLine {
  vm: string;
  level: LogLevel;
  message: string;
}

/** build/NAME.wasm, compiled. */
export function wasmModule(name: string): WebAssembly.Module {
  const file = new URL(`../../build/${name}.wasm`, import.meta.url);
  try {
    return new WebAssembly.Module(readFileSync(file));
  } catch (error) {
    throw new Error(`build/${name}.wasm cannot be loaded; "npm run build" makes it`, { cause: error });
  }
}

export class WasmHost {
  readonly #module: WebAssembly.Module;
  readonly #vms = new Map<string, Vm>();
  readonly #clusters: Set<string>;
  #later: (() => void)[] = [];
  #callIdNext = 1;
  #randomState: number;
  readonly shared = new SharedData();
  readonly metrics = new Metrics();
  readonly environment: Record<string, string>;
  readonly properties: Record<string, PropertyValue>;
  readonly logs: LogLine[] = [];
  readonly drainMs: number;
  readonly calls = new Set<PendingCall>();
  logLevel: LogLevel;
  nowMs: number;
  /** Answers calls by itself: at the next event, with what this returns; undefined leaves the call to time out. */
  onCall: ((call: PendingCall) => CallAnswer | undefined) | undefined;

  constructor(module: WebAssembly.Module, options: HostOptions = {}) {
    this.#module = module;
    this.#clusters = new Set(options.clusters ?? ['warmpath']);
    this.#randomState = (options.seed ?? 1) >>> 0;
    this.drainMs = options.drainMs ?? 600_000;
    this.environment = options.environment ?? {};
    this.properties = options.properties ?? {};
    this.logLevel = options.logLevel ?? 'info';
    this.nowMs = options.nowMs ?? 1_700_000_000_000;
  }

  /**
   * The VM of that name, made on first use. `ticks: false` makes Envoy's base VM, which starts and never ticks; another module
   * under another name is new code beside the old.
   */
  vm(name: string, options: { module?: WebAssembly.Module; ticks?: boolean } = {}): Vm {
    let vm = this.#vms.get(name);
    if (!vm) {
      vm = new Vm(this, name, options.module ?? this.#module, options.ticks ?? true);
      this.#vms.set(name, vm);
    }
    return vm;
  }

  get vms(): Iterable<Vm> {
    return this.#vms.values();
  }

  /** Takes a VM away without a word to it, as when a worker's VM is replaced after a trap. */
  dropVm(name: string): void {
    this.#vms.delete(name);
    for (const call of this.calls) if (call.vm.name === name) this.calls.delete(call);
  }

  /** Moves the clock on, and runs what falls due on the way: ticks, timeouts, answers of onCall. */
  advance(ms: number): void {
    const endMs = this.nowMs + ms;
    this.#settle();
    for (;;) {
      const dueMs = Math.min(...[...this.#vms.values()].map((vm) => vm.dueMs), ...[...this.calls].map((c) => c.dueMs));
      if (!(dueMs <= endMs)) break;
      this.nowMs = Math.max(this.nowMs, dueMs);
      for (const vm of this.#vms.values()) {
        vm.tick();
        vm.drain();
      }
      this.#settle();
      const timing = [...this.calls];
      for (const call of timing) {
        if (call.dueMs <= this.nowMs) call.answer({ status: 504, body: 'upstream request timeout' });
      }
      this.#settle();
    }
    this.nowMs = endMs;
  }

  /** Messages logged so far that contain `part`. */
  logged(part: string): string[] {
    return this.logs.map(({ message }) => message).filter((message) => message.includes(part));
  }

  // ---- for the VMs

  log(line: LogLine): void {
    if (logLevels.indexOf(line.level) >= logLevels.indexOf(this.logLevel)) this.logs.push(line);
  }

  /** Runs something after the callback that is running. */
  later(work: () => void): void {
    this.#later.push(work);
  }

  call(
    root: Root,
    request: { cluster: string; headers: HeaderPairs; body: Uint8Array; timeoutMs: number },
  ): number | undefined {
    const names = new Set(request.headers.map(([name]) => name));
    const isWhole = [':method', ':path', ':authority'].every((name) => names.has(name));
    if (!isWhole || !this.#clusters.has(request.cluster)) return undefined;
    const call = new PendingCall(this.#callIdNext++, root, { ...request, dueMs: this.nowMs + request.timeoutMs });
    this.calls.add(call);
    return call.id;
  }

  /** xorshift32, so that a run can be repeated from its seed. */
  random(bytes: number): Uint8Array {
    return Uint8Array.from({ length: bytes }, () => {
      this.#randomState ^= this.#randomState << 13;
      this.#randomState ^= this.#randomState >>> 17;
      this.#randomState ^= this.#randomState << 5;
      return this.#randomState & 0xff;
    });
  }

  #settle(): void {
    for (let work = this.#later.shift(); work; work = this.#later.shift()) work();
    if (!this.onCall) return;
    // Calls that the filter starts while it is answered wait for the next event.
    const waiting = [...this.calls];
    for (const call of waiting) {
      const answer = this.onCall(call);
      if (answer) call.answer(answer);
    }
  }
}
