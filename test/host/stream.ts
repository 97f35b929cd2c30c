// One request as Envoy plays it to a filter: created by its headers, fed with body and trailers both ways, then logged, done
// and deleted. Request headers and `request.*` properties are readable in the header callback and in the log only, as in
// Envoy after a filter has let the headers go.

import { Action, BufferKind, MapKind, fromUtf8, toPairs, utf8 } from './abi.ts';
import type { HeaderPairs, Headers, PropertyValue } from './abi.ts';
import { Context } from './context.ts';
import type { RootState, StreamState } from './context.ts';
import type { Root } from './plugin.ts';

export type Body = string | Uint8Array;
export interface LocalResponse {
  status: number;
  details: string;
  body: string;
  headers: HeaderPairs;
}
export interface StreamOptions {
  headers?: Headers;
  /** By dotted path: `xds.cluster_name`, `upstream.address`, `response.code` ... Numbers are answered as 8 bytes. */
  properties?: Record<string, PropertyValue>;
  /** Whether the request ends with its headers. */
  end?: boolean;
}

type Direction = 'request' | 'response';

export class Stream extends Context implements StreamState {
  readonly #root: Root;
  readonly #headers: HeaderPairs;
  #responseHeaders: HeaderPairs = [];
  readonly #filterState = new Map<string, Uint8Array>();
  readonly #held: Record<Direction, Uint8Array> = { request: new Uint8Array(), response: new Uint8Array() };
  #areHeadersReadable = false;
  #isFinished = false;
  /** May be changed between callbacks, as Envoy's own properties do. */
  readonly properties: Record<string, PropertyValue>;
  /** What the filter answered in place of the upstream, if it did. */
  localResponse: LocalResponse | undefined;
  /** Directions that the filter holds back now. */
  readonly paused = new Set<Direction>();
  /** Status of the last callback. */
  action = 0;

  constructor(id: number, root: Root, options: StreamOptions) {
    super(id);
    this.#root = root;
    this.#headers = toPairs(options.headers ?? {});
    this.properties = { ...options.properties };
    root.vm.invoke(this, 'proxy_on_context_create', id, root.id);
    this.#readHeaders(() => {
      const maps: [number, HeaderPairs][] = [[MapKind.requestHeaders, this.#headers]];
      this.#callback('request', 'headers', this.#headers.length, options.end ?? false, { maps });
    });
  }

  get root(): RootState {
    return this.#root;
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  requestBody(body: Body, end = false): number {
    return this.#body('request', BufferKind.requestBody, body, end);
  }

  requestTrailers(trailers: Headers = {}): number {
    return this.#trailers('request', MapKind.requestTrailers, trailers);
  }

  responseHeaders(headers: Headers = { ':status': '200' }, end = false): number {
    this.#responseHeaders = toPairs(headers);
    const status = this.#responseHeaders.find(([name]) => name === ':status')?.[1];
    if (status !== undefined) this.properties['response.code'] ??= Number(status);
    const maps: [number, HeaderPairs][] = [[MapKind.responseHeaders, this.#responseHeaders]];
    return this.#callback('response', 'headers', this.#responseHeaders.length, end, { maps });
  }

  responseBody(body: Body, end = false): number {
    return this.#body('response', BufferKind.responseBody, body, end);
  }

  responseTrailers(trailers: Headers = {}): number {
    return this.#trailers('response', MapKind.responseTrailers, trailers);
  }

  /** Ends the stream, whatever has happened to it so far: logged, done, deleted. More properties may come with the end. */
  finish(properties: Record<string, PropertyValue> = {}): void {
    if (this.#isFinished) throw new Error(`stream ${this.id} has already finished`);
    this.#isFinished = true;
    Object.assign(this.properties, properties);
    const { vm } = this.#root;
    const maps: [number, HeaderPairs][] = [
      [MapKind.requestHeaders, this.#headers],
      [MapKind.responseHeaders, this.#responseHeaders],
    ];
    this.#readHeaders(() => this.during({ maps }, () => vm.invoke(this, 'proxy_on_log', this.id)));
    vm.finish(this, () => this.#root.forget(this));
  }

  /** A value the filter left, for example filterState('warmpath.pick') for Envoy's `wasm.warmpath.pick`. */
  filterState(name: string): string | undefined {
    const value = this.#filterState.get(name);
    return value && fromUtf8(value);
  }

  property(path: string): PropertyValue | undefined {
    if (path.startsWith('request.') && !this.#areHeadersReadable) return undefined;
    const header = { 'request.path': ':path', 'request.method': ':method', 'request.host': ':authority' }[path];
    const fromHeader = header && this.#headers.find(([name]) => name === header)?.[1];
    return this.properties[path] ?? fromHeader ?? this.#filterState.get(path) ?? this.#root.property(path);
  }

  setProperty(path: string, value: Uint8Array): boolean {
    this.#filterState.set(path, value);
    return true;
  }

  respondLocally(response: LocalResponse): void {
    this.localResponse = response;
  }

  resume(stream: number): void {
    const direction = stream === 0 ? 'request' : 'response';
    this.paused.delete(direction);
    this.#held[direction] = new Uint8Array();
  }

  #readHeaders(callback: () => void): void {
    this.#areHeadersReadable = true;
    try {
      callback();
    } finally {
      this.#areHeadersReadable = false;
    }
  }

  #body(direction: Direction, kind: number, body: Body, end: boolean): number {
    const chunk = typeof body === 'string' ? utf8(body) : body;
    const whole = this.#held[direction].length > 0 ? Buffer.concat([this.#held[direction], chunk]) : chunk;
    const action = this.#callback(direction, 'body', whole.length, end, { buffers: [[kind, whole]] });
    this.#held[direction] = action === Action.stopAndBuffer ? whole : new Uint8Array();
    return action;
  }

  #trailers(direction: Direction, kind: number, trailers: Headers): number {
    const pairs = toPairs(trailers);
    return this.#callback(direction, 'trailers', pairs.length, undefined, { maps: [[kind, pairs]] });
  }

  #callback(
    direction: Direction,
    part: 'headers' | 'body' | 'trailers',
    size: number,
    end: boolean | undefined,
    readable: Parameters<Context['during']>[0],
  ): number {
    if (this.#isFinished) throw new Error(`stream ${this.id} has finished`);
    const ends = end === undefined ? [] : [end ? 1 : 0];
    this.action = this.during(readable, () =>
      this.#root.vm.invoke(this, `proxy_on_${direction}_${part}`, this.id, size, ...ends),
    );
    if (this.action === Action.continue) this.paused.delete(direction);
    else this.paused.add(direction);
    return this.action;
  }
}
