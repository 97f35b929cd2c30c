// One VM: an instance of the filter's module with its roots and streams. Several VMs of one host share data and metrics,
// as the main thread and the workers of one Envoy do.

import { MapKind, BufferKind, toPairs, utf8 } from './abi.ts';
import type { HeaderPairs, Headers, LogLevel } from './abi.ts';
import type { Context } from './context.ts';
import type { WasmHost } from './host.ts';
import { envImports, wasiImports } from './imports.ts';
import type { VmState } from './imports.ts';
import { VmMemory } from './memory.ts';
import { ConfigurationRefused, Root } from './plugin.ts';
import type { Configuration } from './plugin.ts';
import type { Metrics, SharedData } from './store.ts';
import type { Body } from './stream.ts';

type WasmFunction = (...args: number[]) => number | undefined;

export interface CallAnswer {
  status?: number;
  headers?: Headers;
  body?: Body;
}

/** A call the filter made that has no answer yet. */
export class PendingCall {
  readonly id: number;
  readonly vm: Vm;
  readonly root: Root;
  readonly cluster: string;
  readonly headers: HeaderPairs;
  readonly body: Uint8Array;
  readonly dueMs: number;
  #isAnswered = false;

  constructor(
    id: number,
    root: Root,
    request: { cluster: string; headers: HeaderPairs; body: Uint8Array; dueMs: number },
  ) {
    this.id = id;
    this.vm = root.vm;
    this.root = root;
    this.cluster = request.cluster;
    this.headers = request.headers;
    this.body = request.body;
    this.dueMs = request.dueMs;
  }

  header(name: string): string | undefined {
    return this.headers.find(([key]) => key === name)?.[1];
  }

  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** Hands the answer to the filter. A root that has gone in the meantime is not told. */
  answer({ status = 200, headers = {}, body = '' }: CallAnswer = {}): void {
    if (this.#isAnswered) throw new Error(`call ${this.id} to ${this.cluster} is already answered`);
    this.#isAnswered = true;
    this.vm.host.calls.delete(this);
    if (this.root.isGone || this.vm.trap) return;
    const pairs: HeaderPairs = [[':status', String(status)], ...toPairs(headers)];
    const bytes = typeof body === 'string' ? utf8(body) : body;
    const readable = {
      maps: [[MapKind.callHeaders, pairs]] as [number, HeaderPairs][],
      buffers: [[BufferKind.callBody, bytes]] as [number, Uint8Array][],
    };
    this.root.during(readable, () =>
      this.vm.invoke(this.root, 'proxy_on_http_call_response', this.root.id, this.id, pairs.length, bytes.length, 0),
    );
  }
}

export class Vm implements VmState {
  readonly host: WasmHost;
  readonly name: string;
  readonly ticks: boolean;
  readonly memory: VmMemory;
  readonly exports: Record<string, unknown>;
  /** Host calls so far, by name. */
  readonly hostCalls = new Map<string, number>();
  readonly #contexts = new Map<number, Context>();
  readonly #waitingForDone = new Map<Context, () => void>();
  readonly #roots = new Set<Root>();
  #contextIdNext = 1;
  #current: Context | undefined;
  #effective: Context | undefined;
  /** The error that ended this VM, if one did. It then takes no more callbacks. */
  trap: Error | undefined;

  constructor(host: WasmHost, name: string, module: WebAssembly.Module, ticks: boolean) {
    this.host = host;
    this.name = name;
    this.ticks = ticks;
    // A host provides more than a module imports; instantiation picks what it names and refuses what is missing.
    const instance = new WebAssembly.Instance(module, {
      env: this.#counting(envImports(this)) as WebAssembly.ModuleImports,
      wasi_snapshot_preview1: wasiImports(this) as WebAssembly.ModuleImports,
    });
    this.exports = instance.exports;
    if (typeof this.exports['proxy_abi_version_0_2_1'] !== 'function') {
      throw new Error('the module does not export proxy_abi_version_0_2_1');
    }
    const allocate = this.exports['proxy_on_memory_allocate'] as (bytes: number) => number;
    this.memory = new VmMemory(this.exports['memory'] as WebAssembly.Memory, allocate);
    (this.exports['_start'] as (() => void) | undefined)?.();
  }

  /** Each call a filter makes has its price in Envoy, so tests can ask how many there were. */
  #counting(imports: Record<string, unknown>): Record<string, unknown> {
    const counting = ([name, call]: [string, unknown]): [string, unknown] => [
      name,
      (...args: unknown[]) => {
        this.hostCalls.set(name, (this.hostCalls.get(name) ?? 0) + 1);
        return (call as (...args: unknown[]) => unknown)(...args);
      },
    ];
    return Object.fromEntries(Object.entries(imports).map(counting));
  }

  get shared(): SharedData {
    return this.host.shared;
  }

  get metrics(): Metrics {
    return this.host.metrics;
  }

  get environment(): Record<string, string> {
    return this.host.environment;
  }

  get logLevel(): LogLevel {
    return this.host.logLevel;
  }

  get context(): Context {
    const context = this.#effective ?? this.#current;
    if (!context) throw new Error('a host call was made outside any callback');
    return context;
  }

  nowMs(): number {
    return this.host.nowMs;
  }

  random(bytes: number): Uint8Array {
    return this.host.random(bytes);
  }

  log(level: LogLevel, message: string): void {
    this.host.log({ vm: this.name, level, message });
  }

  /** Lets the host calls that follow act for another context, until the callback returns. */
  act(contextId: number): boolean {
    const context = this.#contexts.get(contextId);
    if (context) this.#effective = context;
    return context !== undefined;
  }

  call(cluster: string, headers: HeaderPairs, body: Uint8Array, timeoutMs: number): number | undefined {
    const root = this.context.root as Root;
    return this.host.call(root, { cluster, headers, body, timeoutMs });
  }

  get roots(): ReadonlySet<Root> {
    return this.#roots;
  }

  /** Starts a plugin; throws ConfigurationRefused if it refuses its configuration. */
  plugin(name: string, configuration: Configuration = ''): Root {
    const root = this.create((id) => new Root(id, this, name, configuration));
    try {
      root.start();
    } catch (error) {
      if (error instanceof ConfigurationRefused) this.#contexts.delete(root.id);
      throw error;
    }
    this.#roots.add(root);
    return root;
  }

  /** Makes a context with the next id. It is known before its constructor runs callbacks. */
  create<T extends Context>(make: (id: number) => T): T {
    const id = this.#contextIdNext++;
    const context = make(id);
    this.#contexts.set(id, context);
    return context;
  }

  /** Runs a callback for a context, if the module exports it and the VM is alive; 0 if not. */
  invoke(context: Context, name: string, ...args: number[]): number {
    return this.invokeOr(0, context, name, ...args);
  }

  invokeOr(otherwise: number, context: Context, name: string, ...args: number[]): number {
    const callback = this.exports[name] as WasmFunction | undefined;
    if (!callback || this.trap) return otherwise;
    this.#contexts.set(context.id, context);
    const saved = [this.#current, this.#effective];
    [this.#current, this.#effective] = [context, undefined];
    try {
      return callback(...args) ?? 0;
    } catch (error) {
      this.trap = error as Error;
      const said = this.host.logs.at(-1);
      throw new Error(`${name} trapped in VM ${this.name}: ${(error as Error).message}; last log: ${said?.message}`, {
        cause: error,
      });
    } finally {
      [this.#current, this.#effective] = saved;
    }
  }

  /** Done and deleted, at once or when the filter calls proxy_done. */
  finish(context: Context, after: () => void): void {
    const remove = (): void => {
      this.invoke(context, 'proxy_on_delete', context.id);
      this.#contexts.delete(context.id);
      after();
    };
    if (this.invokeOr(1, context, 'proxy_on_done', context.id) !== 0) remove();
    else this.#waitingForDone.set(context, remove);
  }

  contextDone(): boolean {
    const { context } = this;
    const remove = this.#waitingForDone.get(context);
    if (!remove) return false;
    this.#waitingForDone.delete(context);
    // Envoy deletes the context after the callback that said so.
    this.host.later(remove);
    return true;
  }

  forget(root: Root): void {
    this.#roots.delete(root);
  }

  /** Runs every tick that is due. */
  tick(): void {
    if (!this.#isTicking) return;
    for (const root of this.#roots) {
      if (root.tickDueMs > this.host.nowMs) continue;
      root.tickDueMs = this.host.nowMs + root.tickPeriodMs;
      this.invoke(root, 'proxy_on_tick', root.id);
    }
  }

  /** Lets every root go whose drain time has passed. */
  drain(): void {
    for (const root of this.#roots) if (root.goesAtMs <= this.host.nowMs) root.go();
  }

  /** When something happens by itself next. */
  get dueMs(): number {
    const dues = [...this.#roots].map((root) => Math.min(root.goesAtMs, this.#isTicking ? root.tickDueMs : Infinity));
    return Math.min(Number.POSITIVE_INFINITY, ...dues);
  }

  get #isTicking(): boolean {
    return this.ticks && !this.trap;
  }
}
