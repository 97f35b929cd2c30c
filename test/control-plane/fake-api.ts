// An API server that is not there: lists and watches of a few objects over loopback, and every way of misbehaving that a real one
// has, on demand. What is written to it (leases, events, secrets, slices) it keeps.
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { KubeConfig } from '@kubernetes/client-node';
import { KubeApi } from '../../control-plane/kube/api.ts';
import type { KubeObject } from '../../control-plane/kube/reflector.ts';

type Stored = KubeObject & Record<string, unknown>;

interface Change {
  version: number;
  collection: string;
  type: 'ADDED' | 'MODIFIED' | 'DELETED';
  object: Stored;
}

interface Watcher {
  collection: string;
  query: URLSearchParams;
  response: ServerResponse;
}

export interface Seen {
  method: string;
  path: string;
  query: URLSearchParams;
}

export class FakeApi {
  /** Requests as they came, for assertions about how often and with which version. */
  readonly seen: Seen[] = [];
  /** Answers to give before the right one: status, and seconds for Retry-After. */
  readonly refusals: { path: RegExp; status: number; retryAfter?: number; times: number }[] = [];
  /** Watches that come are accepted and then told nothing. */
  isSilent = false;
  /** Watches from before this version are answered 410. */
  oldest = 0;
  /** Kinds that are not installed. */
  readonly absent = new Set<string>();
  url = '';
  readonly #objects = new Map<string, Map<string, Stored>>();
  readonly #changes: Change[] = [];
  readonly #watchers = new Set<Watcher>();
  #version = 100;
  readonly #server = createServer((request, response) => void this.#answer(request, response));

  async start(port = 0): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(port, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  api(timeoutMs = 10_000): KubeApi {
    const config = new KubeConfig();
    config.loadFromClusterAndUser({ name: 'fake', server: this.url, skipTLSVerify: true }, { name: 'user' });
    return new KubeApi(config, timeoutMs);
  }

  /** Adds or replaces an object; `collection` is the path that lists it. */
  put(collection: string, object: Stored): Stored {
    const all = this.#objects.get(collection) ?? new Map<string, Stored>();
    this.#objects.set(collection, all);
    const isNew = !all.has(object.metadata.name);
    const stored = structuredClone(object);
    stored.metadata.resourceVersion = String(++this.#version);
    all.set(object.metadata.name, stored);
    this.#tell({ version: this.#version, collection, type: isNew ? 'ADDED' : 'MODIFIED', object: stored });
    return stored;
  }

  remove(collection: string, name: string): void {
    const object = this.#objects.get(collection)?.get(name);
    if (object === undefined) throw new Error(`there is no ${name}`);
    this.#objects.get(collection)?.delete(name);
    const gone = structuredClone(object);
    gone.metadata.resourceVersion = String(++this.#version);
    this.#tell({ version: this.#version, collection, type: 'DELETED', object: gone });
  }

  get(collection: string, name: string): Stored | undefined {
    return this.#objects.get(collection)?.get(name);
  }

  list(collection: string): Stored[] {
    return [...(this.#objects.get(collection)?.values() ?? [])];
  }

  get version(): number {
    return this.#version;
  }

  get watchers(): number {
    return this.#watchers.size;
  }

  count(method: string, path: RegExp, isWatch = false): number {
    return this.seen.filter((s) => s.method === method && path.test(s.path) && s.query.has('watch') === isWatch).length;
  }

  /** Ends all watches: in order, by a broken connection, or in the middle of an event. */
  cut(how: 'end' | 'break' | 'within-event'): void {
    for (const { response } of this.#watchers) {
      if (how === 'end') response.end();
      else if (how === 'break') response.destroy();
      else response.end('{"type":"MODIFIED","object":{"metadata":{"name":"half');
    }
    this.#watchers.clear();
  }

  /** Tells all watchers that their version is too old, as an event within the stream. */
  expire(): void {
    this.oldest = this.#version;
    const status = { kind: 'Status', code: 410, reason: 'Expired', message: 'too old resource version', metadata: {} };
    for (const { response } of this.#watchers) response.end(`${JSON.stringify({ type: 'ERROR', object: status })}\n`);
    this.#watchers.clear();
  }

  bookmark(): void {
    const object = { metadata: { resourceVersion: String(this.#version) } };
    for (const { response } of this.#watchers) response.write(`${JSON.stringify({ type: 'BOOKMARK', object })}\n`);
  }

  async close(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
    this.#watchers.clear();
  }

  #tell(change: Change): void {
    this.#changes.push(change);
    if (this.isSilent) return;
    for (const watcher of this.#watchers) if (watcher.collection === change.collection) this.#write(watcher, change);
  }

  #write({ query, response }: Watcher, { type, object }: Change): void {
    const isSelected = selects(query, object);
    const shown = isSelected ? type : 'DELETED';
    if (isSelected || type === 'MODIFIED') response.write(`${JSON.stringify({ type: shown, object })}\n`);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams: query } = new URL(request.url ?? '', 'http://localhost');
    const method = request.method ?? '';
    this.seen.push({ method, path: pathname, query });
    let text = '';
    for await (const part of request) text += String(part);
    const send = (status: number, body: unknown, headers: Record<string, string> = {}): void => {
      response.writeHead(status, { 'content-type': 'application/json', ...headers });
      response.end(JSON.stringify(body));
    };
    const refuse = (code: number, message: string, headers: Record<string, string> = {}): void =>
      send(code, { kind: 'Status', code, message }, headers);
    const refusal = this.refusals.find(({ path, times }) => times > 0 && path.test(pathname));
    if (refusal !== undefined) {
      refusal.times--;
      return refuse(refusal.status, 'refused', refusal.retryAfter ? { 'retry-after': String(refusal.retryAfter) } : {});
    }
    if (this.absent.has(pathname)) return refuse(404, 'the server could not find the requested resource');
    if (query.has('watch')) return this.#watch(pathname, query, response, refuse);
    const body = (text === '' ? {} : JSON.parse(text)) as Stored;
    if (method === 'POST') {
      if (this.get(pathname, body.metadata.name) !== undefined) return refuse(409, 'it exists');
      return send(201, this.put(pathname, body));
    }
    const isOne = /\/(leases|secrets|endpointslices)\/[^/]+$/.test(pathname);
    const collection = isOne ? pathname.slice(0, pathname.lastIndexOf('/')) : pathname;
    const name = pathname.slice(pathname.lastIndexOf('/') + 1);
    if (isOne) {
      const object = this.get(collection, name);
      if (object === undefined) return refuse(404, 'not found');
      if (method === 'GET') return send(200, object);
      const expected = body.metadata.resourceVersion;
      if (expected !== undefined && expected !== object.metadata.resourceVersion) return refuse(409, 'it has changed');
      return send(200, this.put(collection, body));
    }
    const items = this.list(collection).filter((object) => selects(query, object));
    return send(200, { metadata: { resourceVersion: String(this.#version) }, items });
  }

  #watch(
    collection: string,
    query: URLSearchParams,
    response: ServerResponse,
    refuse: (code: number, message: string) => void,
  ): void {
    const since = Number(query.get('resourceVersion'));
    if (since < this.oldest) return refuse(410, 'too old resource version');
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    const watcher = { collection, query, response };
    this.#watchers.add(watcher);
    response.on('close', () => this.#watchers.delete(watcher));
    if (this.isSilent) return;
    for (const change of this.#changes) {
      if (change.version > since && change.collection === collection) this.#write(watcher, change);
    }
    const endMs = Number(query.get('timeoutSeconds') ?? 0) * 1000;
    if (endMs > 0) setTimeout(() => response.end(), endMs).unref();
  }
}

function selects(query: URLSearchParams, { metadata }: Stored): boolean {
  const field = query.get('fieldSelector');
  if (field !== null && field !== `metadata.name=${metadata.name}`) return false;
  const labels = (metadata as { labels?: Record<string, string> }).labels ?? {};
  return (query.get('labelSelector') ?? '')
    .split(',')
    .filter((pair) => pair !== '')
    .every((pair) => labels[pair.split('=')[0] ?? ''] === pair.split('=')[1]);
}
