// The load of all gateways on each pod, as running sums in plain arrays: what "everybody but you" have in hand is asked for by each gateway
// many times a second, and must not cost an object a pod.
import type { PutLoad } from './engine/frames.ts';
import { LIMITS } from './limits.ts';

/** What one gateway has in hand on a pod. */
export interface Counted {
  inFlight: number;
  prefillTokens: number;
  usedTokens: number;
  /** Weight of this entry in the mean age and in the mean slowness. */
  weight: number;
  /** When the numbers were true, in ms since the gateways' base. */
  atMs: number;
  slowness: number;
}

const CAP = 0xffff_ffff;

// Fields of a pod's row of sums.
const IN_FLIGHT = 0;
const PREFILL = 1;
const USED = 2;
const WEIGHT = 3;
const WEIGHTED_AT = 4;
const SLOWNESS_WEIGHT = 5;
const WEIGHTED_SLOWNESS = 6;
const FIELDS = 7;

export class LoadSums {
  readonly #rows = new Map<number, number>();
  #count = 0;
  #podIds = new Uint32Array(LIMITS.pods);
  #sums = new Float64Array(LIMITS.pods * FIELDS);
  /** Whether each row is of a pod in `#pool`. */
  #isInPool = new Uint8Array(LIMITS.pods);
  #pool: ReadonlySet<number> = new Set();
  #row = new Float64Array(FIELDS);

  add(podId: number, counted: Counted): void {
    this.#shift(this.#rows.get(podId) ?? this.#open(podId), counted, 1);
  }

  remove(podId: number, counted: Counted): void {
    const row = this.#rows.get(podId);
    if (row === undefined) return;
    this.#shift(row, counted, -1);
    // Sums of fractions drift: a pod without load starts again from nothing.
    if (this.#at(row, WEIGHT) <= 0) this.#close(row);
  }

  /** The sums without what `own` has, of the pods in `pool` on which anything is left. */
  withoutOwn(own: ReadonlyMap<number, Counted> | null, pool: ReadonlySet<number>, nowAtMs: number, put: PutLoad): void {
    this.#know(pool);
    const podIds = this.#podIds;
    for (let row = 0; row < this.#count; row++) {
      if (this.#isInPool[row] === 0) continue;
      const podId = podIds[row] as number;
      const counted = own?.get(podId);
      if (counted === undefined) {
        this.#put(podId, this.#sums, row * FIELDS, nowAtMs, put);
        continue;
      }
      this.#row.set(this.#sums.subarray(row * FIELDS, (row + 1) * FIELDS));
      shift(this.#row, 0, counted, -1);
      if ((this.#row[WEIGHT] as number) > 0) this.#put(podId, this.#row, 0, nowAtMs, put);
    }
  }

  #put(podId: number, sums: Float64Array, at: number, nowAtMs: number, put: PutLoad): void {
    const weight = sums[at + WEIGHT] as number;
    const slownessWeight = sums[at + SLOWNESS_WEIGHT] as number;
    const ageMs = Math.round(nowAtMs - (sums[at + WEIGHTED_AT] as number) / weight);
    put(
      podId,
      Math.min(sums[at + IN_FLIGHT] as number, CAP),
      Math.min(sums[at + PREFILL] as number, CAP),
      Math.min(sums[at + USED] as number, CAP),
      Math.min(Math.max(0, ageMs), CAP),
      slownessWeight > 0 ? Math.max(0, (sums[at + WEIGHTED_SLOWNESS] as number) / slownessWeight) : 0,
    );
  }

  #at(row: number, field: number): number {
    return this.#sums[row * FIELDS + field] as number;
  }

  #shift(row: number, counted: Counted, sign: 1 | -1): void {
    shift(this.#sums, row * FIELDS, counted, sign);
  }

  #open(podId: number): number {
    const row = this.#count++;
    if (row >= this.#podIds.length) this.#grow();
    this.#rows.set(podId, row);
    this.#podIds[row] = podId;
    this.#isInPool[row] = this.#pool.has(podId) ? 1 : 0;
    this.#sums.fill(0, row * FIELDS, (row + 1) * FIELDS);
    return row;
  }

  /** The last row takes the place of one that is done with. */
  #close(row: number): void {
    const last = --this.#count;
    const podId = this.#podIds[last] as number;
    this.#rows.delete(this.#podIds[row] as number);
    if (row === last) return;
    this.#rows.set(podId, row);
    this.#podIds[row] = podId;
    this.#isInPool[row] = this.#isInPool[last] as number;
    this.#sums.copyWithin(row * FIELDS, last * FIELDS, (last + 1) * FIELDS);
  }

  #grow(): void {
    const room = this.#podIds.length * 2;
    const [podIds, sums, isInPool] = [this.#podIds, this.#sums, this.#isInPool];
    this.#podIds = new Uint32Array(room);
    this.#sums = new Float64Array(room * FIELDS);
    this.#isInPool = new Uint8Array(room);
    this.#podIds.set(podIds);
    this.#sums.set(sums);
    this.#isInPool.set(isInPool);
  }

  /** A set of pod ids never changes; another one is another object. */
  #know(pool: ReadonlySet<number>): void {
    if (pool === this.#pool) return;
    this.#pool = pool;
    for (let row = 0; row < this.#count; row++) this.#isInPool[row] = pool.has(this.#podIds[row] as number) ? 1 : 0;
  }
}

function shift(sums: Float64Array, at: number, counted: Counted, sign: 1 | -1): void {
  const plus = (field: number, amount: number): void => {
    sums[at + field] = (sums[at + field] as number) + sign * amount;
  };
  plus(IN_FLIGHT, counted.inFlight);
  plus(PREFILL, counted.prefillTokens);
  plus(USED, counted.usedTokens);
  plus(WEIGHT, counted.weight);
  plus(WEIGHTED_AT, counted.weight * counted.atMs);
  if (counted.slowness === 0) return;
  plus(SLOWNESS_WEIGHT, counted.weight);
  plus(WEIGHTED_SLOWNESS, counted.weight * counted.slowness);
}
