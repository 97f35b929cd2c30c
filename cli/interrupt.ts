// Ctrl-C and its relatives, for commands that hold things open: the first one asks for an orderly end, the second one is not discussed.

export interface Interrupt {
  /** Aborted at the first signal. */
  signal: AbortSignal;
  /** Stops listening, so that the process can end by itself. */
  stop(): void;
}

/** One Ctrl-C can arrive several times: from the terminal, from npm, from the script above. Those are not a second one. */
const repeatMs = 1_000;

const signalNames = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export function watchInterrupt(): Interrupt {
  const controller = new AbortController();
  let firstMs = 0;
  const onSignal = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) {
      if (performance.now() - firstMs > repeatMs) process.exit(1);
      return;
    }
    firstMs = performance.now();
    controller.abort(new Interrupted(name));
  };
  for (const name of signalNames) process.on(name, onSignal);
  return {
    signal: controller.signal,
    stop: () => {
      for (const name of signalNames) process.off(name, onSignal);
    },
  };
}

export class Interrupted extends Error {
  override name = 'Interrupted';

  constructor(signal: string) {
    super(`interrupted by ${signal}`);
  }
}

/** Waits for a promise, but no longer than until the signal. */
export function orInterrupted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
