// Runs one replica's engine against the wall clock. Timers fire late, and a busy process fires them later, so each step starts where the one
// before it should have ended: lateness does not add up. Only a delay too long to catch up with is forgotten, and then it is counted.

import type { ReplicaEngine, Sequence } from './engine.ts';

/** Lateness above this is not caught up: a burst of steps at no distance would be no engine's behaviour. */
const LATE_MS_MAX = 100;

export class RealtimeEngine {
  readonly engine: ReplicaEngine;
  /** Every step takes so many times longer. */
  slowFactor = 1;
  /** Milliseconds by which the process was too late to keep the engine's pace. */
  lostMs = 0;
  #frozen = false;
  #closed = false;
  #endMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #scheduled = false;

  constructor(engine: ReplicaEngine) {
    this.engine = engine;
  }

  get frozen(): boolean {
    return this.#frozen;
  }

  /** A frozen engine takes requests and answers nothing. */
  set frozen(frozen: boolean) {
    this.#frozen = frozen;
    if (!frozen) this.#kick();
  }

  nowMs(): number {
    return performance.timeOrigin + performance.now();
  }

  add(sequence: Sequence): void {
    this.engine.add(sequence, this.nowMs());
    this.#kick();
  }

  abort(sequence: Sequence): void {
    this.engine.abort(sequence);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #kick(): void {
    if (this.#scheduled || this.engine.inStep || this.#closed) return;
    this.#scheduled = true;
    // What arrives in the same turn of the loop is planned together.
    setImmediate(() => {
      this.#scheduled = false;
      if (!this.engine.inStep && !this.#closed) this.#begin(this.nowMs());
    });
  }

  #begin(startMs: number): void {
    if (this.#frozen) return;
    const seconds = this.engine.begin(startMs);
    if (seconds === 0) return;
    this.#endMs = startMs + seconds * 1000 * this.slowFactor;
    this.#timer = setTimeout(() => this.#end(), this.#waitMs());
  }

  #waitMs(): number {
    return Math.max(0, this.#endMs - this.nowMs());
  }

  #end(): void {
    // A timer may fire up to a millisecond early.
    const nowMs = this.nowMs();
    if (nowMs < this.#endMs - 0.5) {
      this.#timer = setTimeout(() => this.#end(), this.#waitMs());
      return;
    }
    this.engine.end(nowMs);
    const lateMs = nowMs - this.#endMs;
    let startMs = this.#endMs;
    if (lateMs > LATE_MS_MAX) {
      this.lostMs += lateMs;
      startMs = nowMs;
    }
    if (!this.#closed) this.#begin(startMs);
  }
}
