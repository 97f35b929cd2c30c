// Long work in pieces: what is not urgent lets others have a turn as soon as it has gone on for a while, so that no sync waits for all of it.
import { setImmediate as othersTurn } from 'node:timers/promises';

const PIECE_MS = 2;

export class Breaks {
  #sinceMs = performance.now();

  /** Called between steps; waits for a turn of the event loop when one is due. */
  async between(): Promise<void> {
    if (performance.now() - this.#sinceMs < PIECE_MS) return;
    await othersTurn();
    this.#sinceMs = performance.now();
  }
}
