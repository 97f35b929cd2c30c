// The load of all gateways on each pod, as running sums in plain arrays: what "everybody but you" have in hand is asked for by each gateway
// many times a second, and neither that nor taking in a gateway's own may cost an object a pod.
import { LOAD_FIELDS } from './engine/records.ts';
import type { LoadRows } from './engine/records.ts';
import { LIMITS } from './limits.ts';

const CAP = 0xffff_ffff;

// Fields of a pod's row of sums, and of what one gateway has there. An age is kept as the time when the numbers were true, in ms since the
// gateways' base.
const IN_FLIGHT = 0;
const PREFILL = 1;
const USED = 2;
/** Weight in the mean age. */
const WEIGHT = 3;
const WEIGHTED_AT = 4;
/** Weight in the mean slowness: of those who know any. */
const SLOWNESS_WEIGHT = 5;
const WEIGHTED_SLOWNESS = 6;
const FIELDS = 7;

/** What one gateway has in hand, pod by pod. */
export class OwnLoad {
  size = 0;
  podIds = new Uint32Array(16);
  sums = new Float64Array(16 * FIELDS);

  /** Room for one more. */
  open(): void {
    if (this.size < this.podIds.length) return;
    const [podIds, sums] = [this.podIds, this.sums];
    this.podIds = new Uint32Array(podIds.length * 2);
    this.sums = new Float64Array(sums.length * 2);
    this.podIds.set(podIds);
    this.sums.set(sums);
  }
}

export class LoadSums {
  readonly #rows = new Map<number, number>();
  #count = 0;
  #podIds = new Uint32Array(LIMITS.pods);
  #sums = new Float64Array(LIMITS.pods * FIELDS);
  /** Whether each row is of a pod in `#pool`. */
  #isInPool = new Uint8Array(LIMITS.pods);
  #pool: ReadonlySet<number> = new Set();
  /** Where the gateway that is looked at has a pod, by row, counted from 1; 0 outside of a call. */
  #ownAt = new Uint32Array(LIMITS.pods);
  #emptied: number[] = [];

  /** Puts what a gateway has in hand now into the place of what it had. Pods with nothing to tell of are left out; the first of a pod's counts. */
  replace(own: OwnLoad, { count, numbers }: LoadRows, nowAtMs: number): void {
    this.#takeOut(own);
    for (let i = 0; i < count && own.size < LIMITS.pods; i++) {
      const at = i * LOAD_FIELDS;
      const podId = numbers[at] as number;
      const inFlight = numbers[at + 1] as number;
      const prefillTokens = numbers[at + 2] as number;
      const usedTokens = numbers[at + 3] as number;
      const slowness = Math.min(numbers[at + 5] as number, LIMITS.loadSlowness);
      if (inFlight === 0 && prefillTokens === 0 && usedTokens === 0 && slowness === 0) continue;
      const row = this.#rows.get(podId) ?? this.#open(podId);
      if (this.#ownAt[row] !== 0) continue;
      own.open();
      const [to, weight] = [own.size * FIELDS, Math.min(Math.max(1, inFlight), LIMITS.loadWeight)];
      const atMs = Math.round(nowAtMs - Math.min(numbers[at + 4] as number, LIMITS.gatewayStaleMs));
      own.podIds[own.size++] = podId;
      own.sums[to + IN_FLIGHT] = inFlight;
      own.sums[to + PREFILL] = prefillTokens;
      own.sums[to + USED] = usedTokens;
      own.sums[to + WEIGHT] = weight;
      own.sums[to + WEIGHTED_AT] = weight * atMs;
      own.sums[to + SLOWNESS_WEIGHT] = slowness === 0 ? 0 : weight;
      own.sums[to + WEIGHTED_SLOWNESS] = weight * slowness;
      this.#ownAt[row] = own.size;
      const from = row * FIELDS;
      for (let field = 0; field < FIELDS; field++) {
        this.#sums[from + field] = (this.#sums[from + field] as number) + (own.sums[to + field] as number);
      }
    }
    this.#mark(own, false);
    for (const podId of this.#emptied) {
      const row = this.#rows.get(podId);
      if (row !== undefined && this.#sums[row * FIELDS + WEIGHT] === 0) this.#close(row);
    }
    this.#emptied.length = 0;
  }

  /** The sums without what `own` has, of the pods in `pool` on which anything is left, as of a time. */
  withoutOwn(own: OwnLoad | null, pool: ReadonlySet<number>, nowAtMs: number, into: LoadRows): void {
    this.#know(pool);
    const room = this.#count * LOAD_FIELDS;
    if (into.numbers.length < room) into.numbers = new Float64Array(room * 2);
    if (own !== null) this.#mark(own, true);
    const [sums, podIds, isInPool, ownAt, numbers] = [
      this.#sums,
      this.#podIds,
      this.#isInPool,
      this.#ownAt,
      into.numbers,
    ];
    let to = 0;
    for (let row = 0; row < this.#count; row++) {
      if (isInPool[row] === 0) continue;
      const at = row * FIELDS;
      let inFlight = sums[at + IN_FLIGHT] as number;
      let prefill = sums[at + PREFILL] as number;
      let used = sums[at + USED] as number;
      let weight = sums[at + WEIGHT] as number;
      let weightedAt = sums[at + WEIGHTED_AT] as number;
      let slownessWeight = sums[at + SLOWNESS_WEIGHT] as number;
      let weightedSlowness = sums[at + WEIGHTED_SLOWNESS] as number;
      if (own !== null && ownAt[row] !== 0) {
        const ownSums = own.sums;
        const ownRow = ((ownAt[row] as number) - 1) * FIELDS;
        inFlight -= ownSums[ownRow + IN_FLIGHT] as number;
        prefill -= ownSums[ownRow + PREFILL] as number;
        used -= ownSums[ownRow + USED] as number;
        weight -= ownSums[ownRow + WEIGHT] as number;
        weightedAt -= ownSums[ownRow + WEIGHTED_AT] as number;
        slownessWeight -= ownSums[ownRow + SLOWNESS_WEIGHT] as number;
        weightedSlowness -= ownSums[ownRow + WEIGHTED_SLOWNESS] as number;
        if (weight <= 0) continue;
      }
      numbers[to] = podIds[row] as number;
      numbers[to + 1] = Math.min(inFlight, CAP);
      numbers[to + 2] = Math.min(prefill, CAP);
      numbers[to + 3] = Math.min(used, CAP);
      numbers[to + 4] = Math.min(Math.max(0, Math.round(nowAtMs - weightedAt / weight)), CAP);
      numbers[to + 5] = slownessWeight > 0 ? Math.max(0, weightedSlowness / slownessWeight) : 0;
      to += LOAD_FIELDS;
    }
    into.count = to / LOAD_FIELDS;
    if (own !== null) this.#mark(own, false);
  }

  #takeOut(own: OwnLoad): void {
    for (let i = 0; i < own.size; i++) {
      const podId = own.podIds[i] as number;
      const at = (this.#rows.get(podId) as number) * FIELDS;
      for (let field = 0; field < FIELDS; field++) {
        this.#sums[at + field] = (this.#sums[at + field] as number) - (own.sums[i * FIELDS + field] as number);
      }
      if ((this.#sums[at + WEIGHT] as number) > 0) continue;
      // Sums of fractions drift: a pod without load starts again from nothing.
      this.#sums.fill(0, at, at + FIELDS);
      this.#emptied.push(podId);
    }
    own.size = 0;
  }

  #mark(own: OwnLoad, isMarked: boolean): void {
    for (let i = 0; i < own.size; i++) {
      this.#ownAt[this.#rows.get(own.podIds[i] as number) as number] = isMarked ? i + 1 : 0;
    }
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
    const [podIds, sums, isInPool, ownAt] = [this.#podIds, this.#sums, this.#isInPool, this.#ownAt];
    this.#podIds = new Uint32Array(room);
    this.#sums = new Float64Array(room * FIELDS);
    this.#isInPool = new Uint8Array(room);
    this.#ownAt = new Uint32Array(room);
    this.#podIds.set(podIds);
    this.#sums.set(sums);
    this.#isInPool.set(isInPool);
    this.#ownAt.set(ownAt);
  }

  /** A set of pod ids never changes; another one is another object. */
  #know(pool: ReadonlySet<number>): void {
    if (pool === this.#pool) return;
    this.#pool = pool;
    for (let row = 0; row < this.#count; row++) this.#isInPool[row] = pool.has(this.#podIds[row] as number) ? 1 : 0;
  }
}
