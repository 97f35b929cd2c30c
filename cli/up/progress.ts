// Shows on standard error how far the arms are: one line that is written over on a terminal, a plain line now and then otherwise, so that
// a log of it stays short and standard output stays free for the result.

export interface ArmProgress {
  done: number;
  inFlight: number;
  failed: number;
}

export interface ProgressOutput {
  write(text: string): unknown;
  isTTY?: boolean;
  columns?: number;
}

const plainIntervalMs = 10_000;
const terminalIntervalMs = 200;

export class Progress {
  readonly #output: ProgressOutput;
  readonly #now: () => number;
  readonly #arms = new Map<string, ArmProgress>();
  #title = '';
  #startMs = 0;
  #shownMs = 0;
  #lineOpen = false;

  constructor(output: ProgressOutput, now: () => number = Date.now) {
    this.#output = output;
    this.#now = now;
  }

  /** A line of its own, for what happens once. */
  say(text: string): void {
    this.#closeLine();
    this.#output.write(`warmpath: ${text}\n`);
  }

  begin(title: string): void {
    this.#title = title;
    this.#arms.clear();
    this.#startMs = this.#now();
    this.#shownMs = this.#startMs;
  }

  update(arm: string, progress: ArmProgress): void {
    this.#arms.set(arm, progress);
    const now = this.#now();
    if (now - this.#shownMs < (this.#output.isTTY ? terminalIntervalMs : plainIntervalMs)) return;
    this.#shownMs = now;
    if (this.#output.isTTY) {
      const width = (this.#output.columns ?? 80) - 1;
      this.#output.write(`\r\u001b[K${this.#line(now).slice(0, width)}`);
      this.#lineOpen = true;
    } else {
      this.#output.write(`${this.#line(now)}\n`);
    }
  }

  end(): void {
    this.#closeLine();
  }

  #line(now: number): string {
    const arms = [...this.#arms].map(([name, { done, inFlight, failed }]) => {
      return `${name} ${done} done, ${inFlight} in flight${failed > 0 ? `, ${failed} failed` : ''}`;
    });
    return `${this.#title} ${((now - this.#startMs) / 1000).toFixed(0)} s: ${arms.join(' | ')}`;
  }

  #closeLine(): void {
    if (this.#lineOpen) this.#output.write('\r\u001b[K');
    this.#lineOpen = false;
  }
}
