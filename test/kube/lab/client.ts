// A small client of the real API server, for what kubectl and the controllers of a cluster would do: apply, read, patch, delete. It knows no
// kind by heart; where a kind lives it asks the API server.

import { Agent, request } from 'undici';
import { until } from './process.ts';

export interface KubeData {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace?: string;
    uid?: string;
    resourceVersion?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    deletionTimestamp?: string;
  };
  [field: string]: unknown;
}

/** The API server's answer to what it did not do. */
export class StatusError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

interface Resource {
  name: string;
  namespaced: boolean;
}

export class KubeClient {
  readonly #url: string;
  readonly #token: string;
  readonly #agent = new Agent({ connect: { rejectUnauthorized: false } });
  readonly #resources = new Map<string, Resource>();

  constructor(url: string, token: string) {
    this.#url = url;
    this.#token = token;
  }

  async request<T>(method: string, path: string, body?: unknown, contentType = 'application/json'): Promise<T> {
    const { statusCode, body: answer } = await request(this.#url + path, {
      method: method as 'GET',
      dispatcher: this.#agent,
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': contentType, accept: 'application/json' },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      signal: AbortSignal.timeout(20_000),
    });
    const text = await answer.text();
    if (statusCode >= 300) {
      let message = text;
      try {
        message = (JSON.parse(text) as { message: string }).message;
      } catch {
        // The text itself is the message.
      }
      throw new StatusError(statusCode, `${method} ${path}: ${statusCode} ${message}`);
    }
    return (text.startsWith('{') ? JSON.parse(text) : text) as T;
  }

  /** The path of an object, or of its collection when it has no name. */
  async path(apiVersion: string, kind: string, namespace?: string, name?: string): Promise<string> {
    const root = apiVersion === 'v1' ? '/api/v1' : `/apis/${apiVersion}`;
    const key = `${apiVersion} ${kind}`;
    if (!this.#resources.has(key)) {
      // A kind whose definition has just been made is served a moment later.
      await until(`${key} is served`, async () => {
        const list = await this.request<{ resources: (Resource & { kind: string })[] }>('GET', root);
        const found = list.resources.find((resource) => resource.kind === kind && !resource.name.includes('/'));
        if (found !== undefined) this.#resources.set(key, found);
        return found !== undefined;
      });
    }
    const { name: plural, namespaced } = this.#resources.get(key) as Resource;
    const collection = namespaced ? `${root}/namespaces/${namespace ?? 'default'}/${plural}` : `${root}/${plural}`;
    return name === undefined ? collection : `${collection}/${name}`;
  }

  async pathOf({ apiVersion, kind, metadata }: KubeData): Promise<string> {
    return this.path(apiVersion, kind, metadata.namespace, metadata.name);
  }

  /** As `kubectl apply --server-side` with strict validation does. */
  async apply(objects: readonly KubeData[], { dryRun = false } = {}): Promise<void> {
    for (const object of objects) {
      const query = `fieldManager=test&force=true&fieldValidation=Strict${dryRun ? '&dryRun=All' : ''}`;
      await this.request('PATCH', `${await this.pathOf(object)}?${query}`, object, 'application/apply-patch+yaml');
    }
  }

  async get<T extends KubeData>(apiVersion: string, kind: string, namespace: string, name: string): Promise<T> {
    return this.request('GET', await this.path(apiVersion, kind, namespace, name));
  }

  async list<T extends KubeData>(apiVersion: string, kind: string, namespace: string, query = ''): Promise<T[]> {
    const path = await this.path(apiVersion, kind, namespace);
    return (await this.request<{ items: T[] }>('GET', `${path}?${query}`)).items;
  }

  async create(object: KubeData): Promise<KubeData> {
    const { apiVersion, kind, metadata } = object;
    return this.request('POST', await this.path(apiVersion, kind, metadata.namespace), object);
  }

  /** A merge patch; `part` can be `/status`. */
  async patch(object: KubeData, change: object, part = ''): Promise<KubeData> {
    return this.request('PATCH', (await this.pathOf(object)) + part, change, 'application/merge-patch+json');
  }

  /** Removes an object; nothing happens when it is not there. */
  async remove(object: KubeData, graceSeconds?: number): Promise<void> {
    const query = graceSeconds === undefined ? '' : `?gracePeriodSeconds=${graceSeconds}`;
    await this.request('DELETE', (await this.pathOf(object)) + query).catch((error: unknown) => {
      if (!(error instanceof StatusError) || error.status !== 404) throw error;
    });
  }

  async annotate(object: KubeData, annotations: Record<string, string | null>): Promise<void> {
    await this.patch(object, { metadata: { annotations } });
  }
}
