// The naive table: plain maps and sorted arrays, slow and obvious, to hold the engine's against.
export interface Held {
  key: bigint;
  parent: bigint;
  weight: number;
  depth: number;
  timeMs: number;
}

interface Known {
  parent: bigint;
  weight: number;
  depth: number;
}

interface Pod {
  pool: number;
  capacityBytes: number;
  clearedMs: number;
  held: Map<bigint, number>;
  /** The newest place that capacity has cut off; what is not newer is not let in again. */
  edge: Place | undefined;
}

interface Place {
  key: bigint;
  depth: number;
  timeMs: number;
}

/** Order from newest to oldest. */
function byAge(a: Place, b: Place): number {
  return b.timeMs - a.timeMs || a.depth - b.depth || (a.key < b.key ? 1 : a.key > b.key ? -1 : 0);
}

export class ResidencyOracle {
  readonly #pods = new Map<number, Pod>();
  readonly #known = new Map<bigint, Known>();

  add(pod: number, pool: number, capacityBytes: number): void {
    this.remove(pod);
    this.#pods.set(pod, { pool, capacityBytes, clearedMs: 0, held: new Map(), edge: undefined });
  }

  remove(pod: number): void {
    this.#pods.delete(pod);
    this.#forget();
  }

  capacity(pod: number, capacityBytes: number): void {
    const state = this.#pods.get(pod);
    if (state === undefined) return;
    if (capacityBytes > state.capacityBytes) state.edge = undefined;
    state.capacityBytes = capacityBytes;
    this.#evict(pod);
  }

  clear(pod: number, timeMs: number): void {
    const state = this.#pods.get(pod);
    if (state === undefined) return;
    state.clearedMs = Math.max(state.clearedMs, timeMs);
    for (const [key, time] of state.held) if (time <= timeMs) state.held.delete(key);
    this.#forget();
  }

  touch(pod: number, timeMs: number, parentKey: bigint, keys: readonly bigint[], weights: readonly number[]): void {
    const state = this.#pods.get(pod);
    if (state === undefined || timeMs <= state.clearedMs) return;
    const depth = this.#known.has(parentKey) ? this.#known.get(parentKey)!.depth + 1 : 0;
    const renew = (key: bigint): void => {
      const place = { key, timeMs, depth: this.#known.get(key)!.depth };
      if (!state.held.has(key) && state.edge !== undefined && byAge(place, state.edge) >= 0) return;
      state.held.set(key, Math.max(state.held.get(key) ?? 0, timeMs));
    };
    for (const [i, key] of keys.entries()) {
      const parent = i === 0 ? parentKey : keys[i - 1]!;
      if (!this.#known.has(key)) this.#known.set(key, { parent, weight: weights[i]!, depth: depth + i });
      renew(key);
    }
    for (let key = parentKey; this.#known.has(key); key = this.#known.get(key)!.parent) renew(key);
    this.#evict(pod);
  }

  /** What a pod holds, newest first. */
  list(pod: number): Held[] {
    const state = this.#pods.get(pod);
    const held = [...(state?.held ?? [])].map(([key, timeMs]) => ({ key, timeMs, ...this.#known.get(key)! }));
    return held.toSorted(byAge);
  }

  bytes(pod: number): number {
    return this.list(pod).reduce((sum, held) => sum + held.weight, 0);
  }

  /** Prompt bytes that each pod of a pool holds from the start. */
  lookup(pool: number, keys: readonly bigint[], ends: readonly number[]): Map<number, number> {
    const found = new Map<number, number>();
    for (const [pod, state] of this.#pods) {
      if (state.pool !== pool) continue;
      const missing = keys.findIndex((key) => !state.held.has(key));
      const count = missing === -1 ? keys.length : missing;
      found.set(pod, count === 0 ? 0 : ends[count - 1]!);
    }
    return found;
  }

  #evict(pod: number): void {
    const state = this.#pods.get(pod)!;
    let room = state.capacityBytes;
    for (const { key, weight, depth, timeMs } of this.list(pod)) {
      room -= weight;
      if (room >= 0) continue;
      state.held.delete(key);
      if (state.edge === undefined || byAge({ key, depth, timeMs }, state.edge) < 0)
        state.edge = { key, depth, timeMs };
    }
    this.#forget();
  }

  /** A key that nobody holds is not known. */
  #forget(): void {
    for (const key of this.#known.keys()) {
      if (![...this.#pods.values()].some((pod) => pod.held.has(key))) this.#known.delete(key);
    }
  }
}
