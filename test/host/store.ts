// What the VMs of one Envoy share: keyed data with versions, and metrics. The rules are Envoy's, the surprising ones included.

import { Status } from './abi.ts';

/**
 * Shared data. One counter makes the versions of all keys. A compare-and-set looks at the version only where there is a value:
 * on an absent key it succeeds whatever version it names, and version 0 always overwrites.
 */
export class SharedData {
  readonly #values = new Map<string, { bytes: Uint8Array; cas: number }>();
  #casNext = 1;

  get(key: string): { bytes: Uint8Array; cas: number } | undefined {
    return this.#values.get(key);
  }

  set(key: string, bytes: Uint8Array, cas = 0): number {
    const old = this.#values.get(key);
    if (old && cas !== 0 && cas !== old.cas) return Status.casMismatch;
    this.#values.set(key, { bytes: bytes.slice(), cas: this.#casNext });
    this.#casNext = this.#casNext === 0xffff_ffff ? 1 : this.#casNext + 1;
    return Status.ok;
  }

  keys(): string[] {
    return [...this.#values.keys()];
  }

  clear(): void {
    this.#values.clear();
  }
}

const kinds = ['counter', 'gauge', 'histogram'] as const;
type MetricKind = (typeof kinds)[number];

export class Metrics {
  readonly #byName = new Map<string, { id: number; kind: MetricKind; value: bigint; observed: bigint[] }>();
  readonly #byId = new Map<number, { kind: MetricKind; value: bigint; observed: bigint[] }>();

  define(kind: number, name: string): number | undefined {
    const kindName = kinds[kind];
    if (kindName === undefined) return undefined;
    const key = `${kindName} ${name}`;
    let metric = this.#byName.get(key);
    if (!metric) {
      metric = { id: ((this.#byName.size + 1) << 2) | kind, kind: kindName, value: 0n, observed: [] };
      this.#byName.set(key, metric);
      this.#byId.set(metric.id, metric);
    }
    return metric.id;
  }

  add(id: number, offset: bigint): number {
    const metric = this.#byId.get(id);
    if (!metric) return Status.notFound;
    if (metric.kind === 'histogram' || (metric.kind === 'counter' && offset <= 0n)) return Status.badArgument;
    metric.value += offset;
    return Status.ok;
  }

  record(id: number, value: bigint): number {
    const metric = this.#byId.get(id);
    if (!metric) return Status.notFound;
    if (metric.kind === 'histogram') metric.observed.push(value);
    else if (metric.kind === 'counter') metric.value += value;
    else metric.value = value;
    return Status.ok;
  }

  read(id: number): bigint | undefined {
    const metric = this.#byId.get(id);
    return metric?.kind === 'histogram' ? undefined : metric?.value;
  }

  /** The value of a counter or gauge by its name; undefined if the filter never defined it. */
  value(name: string): number | undefined {
    for (const kind of ['counter', 'gauge']) {
      const metric = this.#byName.get(`${kind} ${name}`);
      if (metric) return Number(metric.value);
    }
    return undefined;
  }

  observed(name: string): number[] {
    return (this.#byName.get(`histogram ${name}`)?.observed ?? []).map(Number);
  }

  /** All counters and gauges whose name contains `part`. */
  matching(part: string): Record<string, number> {
    const found: Record<string, number> = {};
    for (const [key, metric] of this.#byName) {
      const name = key.slice(key.indexOf(' ') + 1);
      if (metric.kind !== 'histogram' && name.includes(part)) found[name] = Number(metric.value);
    }
    return found;
  }
}
