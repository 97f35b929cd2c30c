// One GET of a page with a bound on its length and one on its time, as a scrape needs it a thousand times a second: on the
// dispatcher itself, without the streams and signals that a request in general needs.
import type { Dispatcher } from 'undici';
import { LIMITS } from './limits.ts';

export type FetchFailure = 'timeout' | 'connect' | 'status' | 'too-large';

export class FetchError extends Error {
  readonly reason: FetchFailure;
  constructor(reason: FetchFailure) {
    super(reason);
    this.reason = reason;
  }
}

const HEADERS = { accept: 'text/plain' };

/** Takes in an answer part by part. */
class Answer implements Dispatcher.DispatchHandler {
  readonly #resolve: (page: Buffer) => void;
  readonly #reject: (error: FetchError) => void;
  readonly #timer: NodeJS.Timeout;
  readonly #parts: Buffer[] = [];
  #controller: Dispatcher.DispatchController | undefined;
  #bytes = 0;
  #isOver = false;

  constructor(timeoutMs: number, resolve: (page: Buffer) => void, reject: (error: FetchError) => void) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#timer = setTimeout(() => this.#fail('timeout'), timeoutMs);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isOver) controller.abort(new FetchError('timeout'));
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    if (status >= 200 && status !== 200) this.#fail('status');
  }

  onResponseData(_controller: Dispatcher.DispatchController, part: Buffer): void {
    this.#bytes += part.length;
    if (this.#bytes > LIMITS.scrapeBytes) this.#fail('too-large');
    else this.#parts.push(part);
  }

  onResponseEnd(): void {
    if (this.#isOver) return;
    this.#end();
    this.#resolve(this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts));
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    this.#fail(error.name.includes('Timeout') ? 'timeout' : 'connect');
  }

  #end(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #fail(reason: FetchFailure): void {
    if (this.#isOver) return;
    this.#end();
    const error = new FetchError(reason);
    this.#reject(error);
    this.#controller?.abort(error);
  }
}

/** The bytes of a page that is answered 200 within the time; else FetchError. */
export async function fetchPage(
  dispatcher: Dispatcher,
  origin: string,
  path: string,
  timeoutMs: number,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const answer = new Answer(timeoutMs, resolve, reject);
    dispatcher.dispatch({ origin, path, method: 'GET', headers: HEADERS }, answer);
  });
}
