// How often this VM ticks. Waking up costs more than what there is to do at most ticks, so the period follows what waits.
import { tickEvery } from './proxy-wasm/host';

/** The shortest period. */
export const TICK_MS_MIN: u32 = 5;

export class Ticker {
  private period: u32 = 0;

  /** A new root has no timer yet. */
  begin(period: u32): void {
    this.period = 0;
    this.every(period);
  }

  /** An old root ticks no more, and whatever it was set to says nothing of the newest one. */
  end(): void {
    this.period = 0;
    tickEvery(0);
  }

  every(period: u32): void {
    if (period == this.period) return;
    this.period = period;
    tickEvery(period);
  }

  /** Something waits for the next tick that should not wait for long. */
  soon(): void {
    this.every(TICK_MS_MIN);
  }
}
