// Seeded randomness for workloads. A run must be repeatable from its seed, so every draw comes from here and nothing from Math.random.

import { nextState, spread } from './tokens.ts';

export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = spread(seed) || 1;
  }

  /** A number from 0 up to, not including, 1. */
  unit(): number {
    this.#state = nextState(this.#state);
    const high = this.#state >>> 5;
    this.#state = nextState(this.#state);
    return (high * 67_108_864 + (this.#state >>> 6)) / 9_007_199_254_740_992;
  }

  /** A number from low up to high. */
  between(low: number, high: number): number {
    return low + (high - low) * this.unit();
  }

  /** A whole number from low to high, both included. */
  whole(low: number, high: number): number {
    return low + Math.floor(this.unit() * (high - low + 1));
  }

  below(limit: number): number {
    return Math.floor(this.unit() * limit);
  }

  /** The time to the next event of a Poisson process with that mean. */
  exponential(mean: number): number {
    return -Math.log(1 - this.unit()) * mean;
  }

  /** Log-normal with that median and that deviation of the logarithm. */
  logNormal(median: number, sigma: number): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.unit()));
    return median * Math.exp(sigma * radius * Math.cos(2 * Math.PI * this.unit()));
  }

  /** A seed for something of its own. */
  seed(): number {
    this.#state = nextState(this.#state);
    return this.#state;
  }

  shuffled<T>(items: readonly T[]): T[] {
    const copy = [...items];
    for (let i = copy.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [copy[i], copy[j]] = [copy[j]!, copy[i]!];
    }
    return copy;
  }
}
