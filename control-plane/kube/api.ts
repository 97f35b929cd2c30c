// One request to the Kubernetes API, and the lines of one watch. Address, certificates and credentials come from the official client
// (@kubernetes/client-node); requests go through here because each must have an end: a connection that the API server
// no longer answers on must not keep anything waiting.
import { HttpMethod, KubeConfig, RequestContext } from '@kubernetes/client-node';
import { fetch } from 'undici';
import type { Dispatcher, Response } from 'undici';
import { LIMITS } from '../limits.ts';

/** What the API server said no with. */
export class KubeError extends Error {
  readonly status: number;
  readonly retryAfterMs: number;

  constructor(status: number, message: string, retryAfterMs = 0) {
    super(message);
    this.name = 'KubeError';
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

export type Query = Readonly<Record<string, string>>;

/** The status of an answer, or what kind of failure it was: for labels and log lines. */
export function reasonOf(error: unknown): string {
  if (error instanceof KubeError) return String(error.status);
  const { name = '', cause } = error as { name?: string; cause?: { code?: string } };
  if (name === 'TimeoutError' || name === 'AbortError') return 'timeout';
  return typeof cause?.code === 'string' ? 'connect' : 'broken';
}

export class KubeApi {
  readonly #config: KubeConfig;
  readonly #timeoutMs: number;
  /** The client makes one for each request; connections stay open only if the same is used again. */
  #dispatcher: Dispatcher | undefined;

  constructor(config: KubeConfig, timeoutMs: number = LIMITS.kubeRequestMs) {
    this.#config = config;
    this.#timeoutMs = timeoutMs;
  }

  /** From a kubeconfig file, or as a pod in the cluster finds it. */
  static load(file: string | null, timeoutMs: number = LIMITS.kubeRequestMs): KubeApi {
    const config = new KubeConfig();
    if (file === null) config.loadFromCluster();
    else config.loadFromFile(file);
    return new KubeApi(config, timeoutMs);
  }

  async #fetch(method: string, path: string, query: Query, body: unknown, signal: AbortSignal): Promise<Response> {
    const server = this.#config.getCurrentCluster()?.server ?? '';
    const context = new RequestContext(server + path, HttpMethod.GET);
    await this.#config.applySecurityAuthentication(context);
    const search = new URLSearchParams(query).toString();
    const url = `${server}${path}${search === '' ? '' : `?${search}`}`;
    this.#dispatcher ??= context.getDispatcher();
    const dispatcher = this.#dispatcher;
    const response = await fetch(url, {
      method,
      headers: {
        ...context.getHeaders(),
        accept: 'application/json',
        'user-agent': 'warmpath',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      signal,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(dispatcher === undefined ? {} : { dispatcher }),
    }).catch((error: unknown) => {
      // Certificates may have been renewed: the next request takes them as they are then.
      if (this.#dispatcher === dispatcher) this.#dispatcher = undefined;
      throw error;
    });
    if (response.ok) return response;
    const text = (await response.text()).slice(0, 1024);
    const seconds = Number(response.headers.get('retry-after') ?? 0);
    throw new KubeError(
      response.status,
      `${method} ${path}: ${response.status} ${messageOf(text)}`,
      seconds * 1000 || 0,
    );
  }

  /** A request with a JSON answer. */
  async request<T>(method: 'GET' | 'POST' | 'PUT', path: string, query: Query = {}, body?: unknown): Promise<T> {
    const response = await this.#fetch(method, path, query, body, AbortSignal.timeout(this.#timeoutMs));
    return (await response.json()) as T;
  }

  /** Calls back with the complete lines of each piece that comes; ends when the stream ends, throws when it breaks. */
  async watch(path: string, query: Query, signal: AbortSignal, onLines: (lines: string[]) => void): Promise<void> {
    const response = await this.#fetch('GET', path, query, undefined, signal);
    const decoder = new TextDecoder();
    let rest = '';
    for await (const piece of response.body ?? []) {
      const lines = (rest + decoder.decode(piece as Uint8Array, { stream: true })).split('\n');
      // What stands behind the last newline is not whole yet; if it never becomes so, the event is asked for again.
      rest = lines.pop() ?? '';
      if (rest.length > LIMITS.kubeEventChars) throw new KubeError(0, `${path}: an event is too long`);
      if (lines.length > 0) onLines(lines);
    }
  }
}

function messageOf(text: string): string {
  try {
    return (JSON.parse(text) as { message?: string }).message ?? text;
  } catch {
    return text;
  }
}
