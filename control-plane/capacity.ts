// How much an engine's cache holds, guessed from what usage says of matches, for engines that do not tell. A match that is contradicted makes
// the guess 2 % smaller, one that is confirmed 0.2 % larger: at the right size some matches always fail, those of what is just about to be
// forgotten, and too small a guess costs more than too large a one. One that is exceeded, since the table had forgotten what the engine
// kept, makes it 2 % larger. What makes it larger counts only where the table is full: before, it had nothing to forget.

const SHRINK = 0.98;
const GROW = 1.002;
const GROW_EXCEEDED = 1.02;
const TOKENS_MIN = 4_096;
const TOKENS_MAX = 16_000_000;
/** The table is full when it holds this share of what it may. */
const FULL_SHARE = 0.95;
/** Tables are sized anew when the guess has moved by so much. */
const DRIFT_MAX = 0.02;

/** What is taken for an engine that tells nothing, before anything is learned; the filter takes the same. */
export const CAPACITY_TOKENS_UNKNOWN = 400_000;

/** Matches by what usage said of them. */
export interface Matches {
  confirmed: number;
  contradicted: number;
  exceeded: number;
}

export class LearnedCapacity {
  #tokens: number;
  #told: number;

  constructor(tokens = CAPACITY_TOKENS_UNKNOWN) {
    this.#tokens = tokens;
    this.#told = tokens;
  }

  get tokens(): number {
    return Math.round(this.#tokens);
  }

  /** Learns from so many matches, and from how full the table was then, 1 = full. */
  learn({ confirmed, contradicted, exceeded }: Matches, filledShare: number): void {
    const grown = filledShare >= FULL_SHARE ? GROW ** confirmed * GROW_EXCEEDED ** exceeded : 1;
    this.#tokens = Math.min(Math.max(this.#tokens * SHRINK ** contradicted * grown, TOKENS_MIN), TOKENS_MAX);
  }

  /** Whether the guess has moved so far that tables must be sized anew; it then counts as told. */
  moved(): boolean {
    if (Math.abs(this.#tokens / this.#told - 1) <= DRIFT_MAX) return false;
    this.#told = this.#tokens;
    return true;
  }
}
