// A plugin in a VM, that is a root context: configured once, ticking, parent of streams. As in Envoy a new configuration
// makes a new root in the same VM, and the old one ticks on, streams or not, until the drain time has passed.

import { BufferKind, utf8 } from './abi.ts';
import type { PropertyValue } from './abi.ts';
import { Context } from './context.ts';
import type { RootState } from './context.ts';
import { Stream } from './stream.ts';
import type { StreamOptions } from './stream.ts';
import type { Vm } from './vm.ts';

/** Text as it is; anything else as JSON. */
export type Configuration = string | object;

/** The filter returned false from proxy_on_vm_start or proxy_on_configure. */
export class ConfigurationRefused extends Error {
  override name = 'ConfigurationRefused';
}

export class Root extends Context implements RootState {
  readonly vm: Vm;
  readonly name: string;
  readonly configuration: string;
  readonly #streams = new Set<Stream>();
  #isRetired = false;
  #isGone = false;
  tickPeriodMs = 0;
  tickDueMs = Number.POSITIVE_INFINITY;
  /** When a retired root goes. */
  goesAtMs = Number.POSITIVE_INFINITY;

  constructor(id: number, vm: Vm, name: string, configuration: Configuration) {
    super(id);
    this.vm = vm;
    this.name = name;
    this.configuration = typeof configuration === 'string' ? configuration : JSON.stringify(configuration);
  }

  get root(): RootState {
    return this;
  }

  get isGone(): boolean {
    return this.#isGone;
  }

  get streams(): ReadonlySet<Stream> {
    return this.#streams;
  }

  /** Runs the start callbacks; throws ConfigurationRefused where the filter says no. */
  start(): void {
    const bytes = utf8(this.configuration);
    this.vm.invoke(this, 'proxy_on_context_create', this.id, 0);
    const buffers: [number, Uint8Array][] = [
      [BufferKind.vmConfiguration, new Uint8Array()],
      [BufferKind.pluginConfiguration, bytes],
    ];
    const isAccepted = this.during(
      { buffers },
      () =>
        this.vm.invokeOr(1, this, 'proxy_on_vm_start', this.id, 0) !== 0 &&
        this.vm.invokeOr(1, this, 'proxy_on_configure', this.id, bytes.length) !== 0,
    );
    if (isAccepted) return;
    this.#isGone = true;
    const said = this.vm.host.logs.filter(({ vm }) => vm === this.vm.name).slice(-3);
    throw new ConfigurationRefused(
      `plugin ${this.name} refused its configuration: ${said.map(({ message }) => message).join(' | ')}`,
    );
  }

  /** Starts a request; its header callback runs at once. */
  stream(options: StreamOptions = {}): Stream {
    if (this.#isRetired) throw new Error(`plugin ${this.name} (root ${this.id}) is retired and takes no new streams`);
    const stream = this.vm.create((id) => new Stream(id, this, options));
    this.#streams.add(stream);
    return stream;
  }

  /** A new configuration: the new root, with this one retired. A refused one leaves this root in service. */
  reconfigure(configuration: Configuration): Root {
    const next = this.vm.plugin(this.name, configuration);
    this.retire();
    return next;
  }

  /** Takes no more streams, and goes when the drain time has passed. */
  retire(): void {
    this.#isRetired = true;
    this.goesAtMs = this.vm.host.nowMs + this.vm.host.drainMs;
  }

  /** The end of the drain time: streams that are still open are cut, then the root is done and deleted. */
  go(): void {
    for (const stream of this.#streams) stream.finish();
    this.#isGone = true;
    this.goesAtMs = Number.POSITIVE_INFINITY;
    this.tick(0);
    this.vm.finish(this, () => this.vm.forget(this));
  }

  forget(stream: Stream): void {
    this.#streams.delete(stream);
  }

  tick(periodMs: number): void {
    this.tickPeriodMs = periodMs;
    this.tickDueMs = periodMs === 0 ? Number.POSITIVE_INFINITY : this.vm.host.nowMs + periodMs;
  }

  property(path: string): PropertyValue | undefined {
    if (path === 'plugin_name') return this.name;
    if (path === 'plugin_root_id' || path === 'plugin_vm_id') return '';
    return this.vm.host.properties[path];
  }

  setProperty(): boolean {
    return false;
  }
}
