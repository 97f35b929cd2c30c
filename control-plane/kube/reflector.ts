// A copy of a list of objects in Kubernetes that is kept current: list once, then follow the changes from there. What can go
// wrong with that is dealt with here, so that nobody else has to know of it:
//   - the stream ends, breaks or is cut within an event: watched again from the last version that was taken in;
//   - 410, the version is too old: listed again and compared;
//   - 429 and 503: after a growing pause, or the one that was asked for;
//   - the stream falls silent: every watch has an end on both sides, and the client's own comes soon after the server's;
//   - an event got lost in spite of it all: the list is taken again now and then.
// While the API server is away the copy stays as it is.
import type { Log } from '../log.ts';
import { KubeError, reasonOf } from './api.ts';
import type { KubeApi, Query } from './api.ts';

export interface KubeObject {
  metadata: {
    name: string;
    namespace?: string;
    uid?: string;
    resourceVersion?: string;
    annotations?: Record<string, string>;
    deletionTimestamp?: string;
  };
}

export interface ReflectorTimes {
  /** After so long the server ends a watch, and after so much more the client does. */
  watchSeconds: number;
  graceMs: number;
  relistMs: number;
  pauseMsMin: number;
  pauseMsMax: number;
  /** Pause after 404: the kind is not installed, or not served yet. */
  absentMs: number;
}

export const reflectorTimes: ReflectorTimes = {
  watchSeconds: 20,
  graceMs: 3_000,
  relistMs: 300_000,
  pauseMsMin: 100,
  pauseMsMax: 3_000,
  absentMs: 5_000,
};

export interface ReflectorEvents<T> {
  /** The list as it is now, after it was first read and after every change. */
  changed(objects: T[]): void;
  /** The API server says that there is no such kind. */
  absent?(): void;
  failed(reason: string): void;
}

interface List<T> {
  metadata: { resourceVersion: string; continue?: string };
  items?: T[];
}

interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: T & { code?: number; message?: string };
}

const PAGE_ITEMS = '500';

export class Reflector<T extends KubeObject> {
  readonly #api: KubeApi;
  readonly #path: string;
  readonly #query: Query;
  readonly #events: ReflectorEvents<T>;
  readonly #log: Log;
  readonly #times: ReflectorTimes;
  readonly #stop = new AbortController();
  #objects = new Map<string, T>();
  #version: string | null = null;
  #listedMs = 0;
  #failuresInRow = 0;
  #isListed = false;
  #running: Promise<void> | null = null;

  constructor(
    api: KubeApi,
    path: string,
    query: Query,
    events: ReflectorEvents<T>,
    log: Log,
    times: ReflectorTimes = reflectorTimes,
  ) {
    this.#api = api;
    this.#path = path;
    this.#query = query;
    this.#events = events;
    this.#log = log;
    this.#times = times;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  get #isClosed(): boolean {
    return this.#stop.signal.aborted;
  }

  async #run(): Promise<void> {
    while (!this.#isClosed) {
      try {
        if (this.#version === null || performance.now() - this.#listedMs > this.#times.relistMs) await this.#list();
        await this.#watch();
      } catch (error) {
        if (this.#isClosed) return;
        await this.#pause(this.#failed(error));
      }
    }
  }

  /** What to do about a failure, and how long to wait before the next try. */
  #failed(error: unknown): number {
    const { absentMs, pauseMsMin, pauseMsMax } = this.#times;
    const status = error instanceof KubeError ? error.status : 0;
    const isAbsent = status === 404;
    if (status === 410) this.#version = null;
    this.#failuresInRow++;
    this.#events.failed(reasonOf(error));
    if (isAbsent) this.#events.absent?.();
    if (this.#failuresInRow === 1 && !isAbsent) {
      this.#log.warn('watch interrupted', { path: this.#path, reason: reasonOf(error), error: String(error) });
    }
    if (isAbsent) return absentMs;
    const growing = Math.min(pauseMsMin * 2 ** (this.#failuresInRow - 1), pauseMsMax);
    // Between half and all of it, so that replicas which lost the same server do not come back at the same moment.
    const pauseMs = growing * (0.5 + Math.random() / 2);
    return error instanceof KubeError ? Math.max(pauseMs, Math.min(error.retryAfterMs, 10 * pauseMsMax)) : pauseMs;
  }

  async #pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#stop.signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#stop.signal.addEventListener('abort', done);
    });
  }

  #worksAgain(): void {
    if (this.#failuresInRow > 1) {
      this.#log.info('watch works again', { path: this.#path, failures: this.#failuresInRow });
    }
    this.#failuresInRow = 0;
  }

  async #list(): Promise<void> {
    const next = new Map<string, T>();
    let version = '';
    for (let more: string | undefined = ''; more !== undefined;) {
      const query: Query = { ...this.#query, limit: PAGE_ITEMS, ...(more === '' ? {} : { continue: more }) };
      const list: List<T> = await this.#api.request('GET', this.#path, query);
      for (const object of list.items ?? []) next.set(keyOf(object), object);
      version = list.metadata.resourceVersion;
      more = list.metadata.continue === '' ? undefined : list.metadata.continue;
    }
    if (this.#isClosed) return;
    const before = this.#objects;
    const isSame =
      this.#isListed &&
      before.size === next.size &&
      [...next].every(([key, { metadata }]) => before.get(key)?.metadata.resourceVersion === metadata.resourceVersion);
    this.#objects = next;
    this.#version = version;
    this.#listedMs = performance.now();
    this.#isListed = true;
    this.#worksAgain();
    if (!isSame) this.#events.changed([...next.values()]);
  }

  async #watch(): Promise<void> {
    const { watchSeconds, graceMs } = this.#times;
    const end = new AbortController();
    const timer = setTimeout(
      () => end.abort(new DOMException('silent', 'TimeoutError')),
      watchSeconds * 1000 + graceMs,
    );
    const query: Query = {
      ...this.#query,
      watch: 'true',
      allowWatchBookmarks: 'true',
      resourceVersion: this.#version ?? '',
      timeoutSeconds: String(watchSeconds),
    };
    const startedMs = performance.now();
    try {
      const signal = AbortSignal.any([end.signal, this.#stop.signal]);
      await this.#api.watch(this.#path, query, signal, (lines) => this.#take(lines));
    } finally {
      clearTimeout(timer);
    }
    // A server that ends every watch at once must not be asked in a tight loop.
    if (performance.now() - startedMs < this.#times.pauseMsMin) await this.#pause(this.#times.pauseMsMin);
  }

  #take(lines: string[]): void {
    let isChanged = false;
    for (const line of lines) {
      if (line === '') continue;
      const { type, object } = JSON.parse(line) as WatchEvent<T>;
      if (type === 'ERROR') throw new KubeError(object.code ?? 500, object.message ?? 'the watch failed');
      this.#version = object.metadata.resourceVersion ?? this.#version;
      if (type === 'BOOKMARK') continue;
      if (type === 'DELETED') this.#objects.delete(keyOf(object));
      else this.#objects.set(keyOf(object), object);
      isChanged = true;
    }
    this.#worksAgain();
    if (isChanged) this.#events.changed([...this.#objects.values()]);
  }
}

function keyOf({ metadata }: KubeObject): string {
  return `${metadata.namespace ?? ''}/${metadata.name}`;
}
