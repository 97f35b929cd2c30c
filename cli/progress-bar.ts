// How far a long computation is, on standard error: a bar that is written over on a terminal, a plain line now and then otherwise.

import type { ProgressOutput } from './up/progress.ts';

const barColumns = 30;
const plainIntervalMs = 10_000;
const terminalIntervalMs = 100;

export class ProgressBar {
  readonly #output: ProgressOutput;
  readonly #title: string;
  readonly #now: () => number;
  readonly #startMs: number;
  #shownMs: number;
  #isOpen = false;

  constructor(output: ProgressOutput, title: string, now: () => number = Date.now) {
    this.#output = output;
    this.#title = title;
    this.#now = now;
    this.#startMs = now();
    this.#shownMs = this.#startMs;
  }

  show(doneShare: number): void {
    const now = this.#now();
    const isTerminal = this.#output.isTTY === true;
    if (now - this.#shownMs < (isTerminal ? terminalIntervalMs : plainIntervalMs)) return;
    this.#shownMs = now;
    const share = Math.min(Math.max(doneShare, 0), 1);
    const seconds = (now - this.#startMs) / 1000;
    const left = share > 0.02 ? `, ${((seconds * (1 - share)) / share).toFixed(0)} s left` : '';
    const full = Math.round(share * barColumns);
    const bar = isTerminal ? `[${'#'.repeat(full)}${'.'.repeat(barColumns - full)}] ` : '';
    const line = `${this.#title} ${bar}${(share * 100).toFixed(0)} %, ${seconds.toFixed(0)} s${left}`;
    this.#output.write(isTerminal ? `\r\u001b[K${line.slice(0, (this.#output.columns ?? 80) - 1)}` : `${line}\n`);
    this.#isOpen = isTerminal;
  }

  /** Leaves the line empty again. */
  end(): void {
    if (this.#isOpen) this.#output.write('\r\u001b[K');
    this.#isOpen = false;
  }
}
