// GETs of engines' pages with a bound on their length and one on their time, as scrapes need them a thousand times a second: plain sockets that
// stay open, all of which read into one buffer. A client for HTTP in general takes new memory for each piece it reads.
import { connect, type Socket } from 'node:net';
import { PageAnswer, type Taken } from './page-answer.ts';

export type FetchFailure = 'timeout' | 'connect' | 'status' | 'too-large';

export class FetchError extends Error {
  readonly reason: FetchFailure;
  constructor(reason: FetchFailure) {
    super(reason);
    this.reason = reason;
  }
}

/** What has been read is taken in before the next read, so one buffer does for all connections. */
const readBuffer = Buffer.allocUnsafeSlow(64 << 10);

/** Takes the bytes of a page; they are good during the call only. */
type Read<T> = (page: Buffer) => T;

/** One request at a time to one engine. */
class Connection {
  readonly #socket: Socket;
  #take: (part: Buffer) => void = () => this.close();
  #end: (isError: boolean) => void = () => undefined;
  isOpen = true;

  constructor(endpoint: string) {
    const colon = endpoint.lastIndexOf(':');
    const host = endpoint.slice(0, colon).replace(/^\[(.*)\]$/, '$1');
    const callback = (bytes: number, buffer: Uint8Array): boolean => {
      this.#take((buffer as Buffer).subarray(0, bytes));
      return true;
    };
    this.#socket = connect({ host, port: Number(endpoint.slice(colon + 1)), onread: { buffer: readBuffer, callback } });
    this.#socket.setNoDelay(true);
    const over = (isError: boolean): void => {
      if (!this.isOpen) return;
      this.close();
      this.#end(isError);
    };
    this.#socket
      .on('error', () => over(true))
      .on('end', () => over(false))
      .on('close', () => over(true));
  }

  /** Sends a request and hands on what comes, until idle() or the end. */
  ask(request: string, take: (part: Buffer) => void, end: (isError: boolean) => void): void {
    this.#take = take;
    this.#end = end;
    this.#socket.write(request, 'latin1');
  }

  /** What comes without being asked for ends the connection. */
  idle(): void {
    this.#take = () => this.close();
    this.#end = () => undefined;
  }

  close(): void {
    this.isOpen = false;
    this.#socket.destroy();
  }
}

interface Waiting {
  on(connection: Connection, another: (() => Connection) | null): void;
  fail(reason: FetchFailure): void;
}

/** One page that is asked for. */
class Get<T> implements Waiting {
  readonly #answer = new PageAnswer();
  readonly #request: string;
  readonly #read: Read<T>;
  readonly #timer: NodeJS.Timeout;
  readonly #resolve: (value: T) => void;
  readonly #reject: (error: unknown) => void;
  readonly #over: (connection: Connection | undefined, isKept: boolean) => void;
  #connection: Connection | undefined;

  constructor(
    request: string,
    timeoutMs: number,
    read: Read<T>,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
    over: (connection: Connection | undefined, isKept: boolean) => void,
  ) {
    this.#request = request;
    this.#read = read;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#over = over;
    this.#timer = setTimeout(() => this.fail('timeout'), timeoutMs);
  }

  /** Asks on a connection, and on another one when that is known to have been kept for long and gives nothing. */
  on(connection: Connection, another: (() => Connection) | null): void {
    this.#connection = connection;
    connection.ask(
      this.#request,
      (part) => this.#settle(this.#answer.take(part)),
      (isError) => {
        // One that was kept may have been closed by the engine just when it was used again.
        if (another !== null && !this.#answer.hasBegun) this.on(another(), null);
        else this.#settle(isError ? 'malformed' : this.#answer.end());
      },
    );
  }

  fail(reason: FetchFailure): void {
    this.#finish(false);
    this.#reject(new FetchError(reason));
  }

  #settle(taken: Taken): void {
    if (taken === 'more') return;
    if (taken !== 'done') {
      this.fail(taken === 'too-large' ? 'too-large' : 'connect');
      return;
    }
    try {
      if (this.#answer.status === 200) this.#resolve(this.#read(this.#answer.page()));
      else this.#reject(new FetchError('status'));
    } catch (error) {
      this.#reject(error);
    }
    this.#finish(this.#answer.staysOpen);
  }

  #finish(isKept: boolean): void {
    clearTimeout(this.#timer);
    this.#answer.release();
    this.#over(this.#connection, isKept);
  }
}

/** One engine: its connection, and who waits for it. */
class Engine {
  readonly #endpoint: string;
  #kept: Connection | undefined;
  #busy: Waiting | undefined;
  #waiting: Waiting[] = [];

  constructor(endpoint: string) {
    this.#endpoint = endpoint;
  }

  async get<T>(path: string, timeoutMs: number, read: Read<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const request = `GET ${path} HTTP/1.1\r\nhost: ${this.#endpoint}\r\nconnection: keep-alive\r\naccept: text/plain\r\n\r\n`;
      const get = new Get(request, timeoutMs, read, resolve, reject, (connection, isKept) => {
        this.#over(get, connection, isKept);
      });
      this.#waiting.push(get);
      this.#next();
    });
  }

  /** Ends its connection; what is under way fails. */
  close(): void {
    for (const get of [...this.#waiting.splice(0), this.#busy]) get?.fail('connect');
    this.#kept?.close();
    this.#kept = undefined;
  }

  #next(): void {
    if (this.#busy !== undefined) return;
    const get = this.#waiting.shift();
    if (get === undefined) return;
    this.#busy = get;
    const kept = this.#kept;
    const another = (): Connection => new Connection(this.#endpoint);
    this.#kept = undefined;
    if (kept?.isOpen === true) get.on(kept, another);
    else get.on(another(), null);
  }

  #over(get: Waiting, connection: Connection | undefined, isKept: boolean): void {
    if (connection === undefined) {
      this.#waiting = this.#waiting.filter((one) => one !== get);
      return;
    }
    this.#busy = undefined;
    connection.idle();
    if (isKept) this.#kept = connection;
    else connection.close();
    this.#next();
  }
}

export class Pages {
  readonly #engines = new Map<string, Engine>();
  #isClosed = false;

  /** What `read` makes of a page that is answered 200 within the time; else FetchError. One page of an engine comes after the other. */
  async get<T>(endpoint: string, path: string, timeoutMs: number, read: Read<T>): Promise<T> {
    if (this.#isClosed) throw new FetchError('connect');
    let engine = this.#engines.get(endpoint);
    if (engine === undefined) {
      engine = new Engine(endpoint);
      this.#engines.set(endpoint, engine);
    }
    return engine.get(path, timeoutMs, read);
  }

  /** Forgets all engines but these. */
  keep(endpoints: ReadonlySet<string>): void {
    for (const [endpoint, engine] of this.#engines) {
      if (endpoints.has(endpoint)) continue;
      engine.close();
      this.#engines.delete(endpoint);
    }
  }

  /** Ends all connections; what is under way fails. */
  close(): void {
    this.#isClosed = true;
    for (const engine of this.#engines.values()) engine.close();
    this.#engines.clear();
  }
}
