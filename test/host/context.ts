// What a filter can see during one callback. A context is a root (a plugin) or a stream; the host calls of imports.ts read
// it and nothing else, so a test that asks for what Envoy would no longer have gets "not found" here too.

import type { HeaderPairs, PropertyValue } from './abi.ts';

export abstract class Context {
  readonly id: number;
  /** Header maps by their kind, while they are readable. */
  readonly maps = new Map<number, HeaderPairs>();
  /** Buffers by their kind, while they are readable. */
  readonly buffers = new Map<number, Uint8Array>();

  constructor(id: number) {
    this.id = id;
  }

  abstract get root(): RootState;

  abstract property(path: string): PropertyValue | undefined;

  /** Keeps a property that the filter sets; false where there is nothing to keep it in. */
  abstract setProperty(path: string, value: Uint8Array): boolean;

  /** Gives a map or buffer for the time of one callback. */
  during<T>(what: { maps?: [number, HeaderPairs][]; buffers?: [number, Uint8Array][] }, callback: () => T): T {
    for (const [kind, pairs] of what.maps ?? []) this.maps.set(kind, pairs);
    for (const [kind, bytes] of what.buffers ?? []) this.buffers.set(kind, bytes);
    try {
      return callback();
    } finally {
      for (const [kind] of what.maps ?? []) this.maps.delete(kind);
      for (const [kind] of what.buffers ?? []) this.buffers.delete(kind);
    }
  }
}

/** The part of a root context that host calls change. */
export interface RootState {
  readonly id: number;
  tick(periodMs: number): void;
}

/** The part of a stream that host calls change. */
export interface StreamState {
  respondLocally(response: { status: number; details: string; body: string; headers: HeaderPairs }): void;
  resume(stream: number): void;
}
