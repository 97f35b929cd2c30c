// Endpoints from a file that is watched: a JSON or YAML list, or a mapping from pool name to list. A version of the file that
// cannot be used is reported and ignored; the last good one stays in force.
//
// The folder is watched and not the file, because a mounted ConfigMap and most editors replace the file; a slow poll stands
// behind it, because a watch may be lost without a word.
import { readFileSync, statSync, watch } from 'node:fs';
import type { FSWatcher } from 'node:fs';
import { dirname } from 'node:path';
import { parse } from 'yaml';
import type { EndpointConfig } from './config.ts';
import { readEndpoints } from './config.ts';
import { ControlPlaneError, invalid } from './errors.ts';
import { LIMITS } from './limits.ts';

const SETTLE_MS = 20;
const POLL_MS = 2_000;

export function readEndpointsFile(path: string, pool: string): EndpointConfig[] {
  let content: unknown;
  try {
    const { size } = statSync(path);
    if (size > LIMITS.endpointsFileBytes) throw new Error(`it has ${size} bytes, at most ${LIMITS.endpointsFileBytes}`);
    content = parse(readFileSync(path, 'utf8'));
  } catch (error) {
    const message = `endpointsFile: ${path} cannot be read: ${(error as Error).message}`;
    throw new ControlPlaneError('WARMPATH_ENDPOINTS_FILE_UNREADABLE', message, { cause: error });
  }
  if (Array.isArray(content)) return readEndpoints(content, `${path}:`);
  if (typeof content !== 'object' || content === null || !(pool in content)) {
    throw invalid(path, content, `a list of endpoints or a mapping with the key ${pool}`);
  }
  return readEndpoints((content as Record<string, unknown>)[pool], `${path}: ${pool}`);
}

export class EndpointsFile {
  readonly #path: string;
  readonly #pool: string;
  readonly #onEndpoints: (endpoints: EndpointConfig[]) => void;
  readonly #onError: (error: ControlPlaneError) => void;
  #watcher: FSWatcher | null = null;
  #poll: NodeJS.Timeout | undefined;
  #settle: NodeJS.Timeout | undefined;
  #stamp = '';

  constructor(
    path: string,
    pool: string,
    onEndpoints: (endpoints: EndpointConfig[]) => void,
    onError: (error: ControlPlaneError) => void,
  ) {
    this.#path = path;
    this.#pool = pool;
    this.#onEndpoints = onEndpoints;
    this.#onError = onError;
  }

  /** Reads the file, which must be good at the start, and watches it from then on. */
  start(): EndpointConfig[] {
    this.#stamp = this.#stampNow();
    const endpoints = readEndpointsFile(this.#path, this.#pool);
    this.#poll = setInterval(() => this.#look(), POLL_MS);
    this.#poll.unref();
    try {
      this.#watcher = watch(dirname(this.#path), { persistent: false }, () => {
        clearTimeout(this.#settle);
        this.#settle = setTimeout(() => this.#look(), SETTLE_MS);
      });
      this.#watcher.on('error', () => this.#watcher?.close());
    } catch {
      // No watch to be had (too many on this machine): the poll alone finds the changes.
    }
    return endpoints;
  }

  #stampNow(): string {
    const stat = statSync(this.#path, { bigint: true, throwIfNoEntry: false });
    return stat === undefined ? 'absent' : `${stat.ino} ${stat.mtimeNs} ${stat.size}`;
  }

  #look(): void {
    const stamp = this.#stampNow();
    if (stamp === this.#stamp) return;
    this.#stamp = stamp;
    try {
      this.#onEndpoints(readEndpointsFile(this.#path, this.#pool));
    } catch (error) {
      if (!(error instanceof ControlPlaneError)) throw error;
      this.#onError(error);
    }
  }

  close(): void {
    this.#watcher?.close();
    clearInterval(this.#poll);
    clearTimeout(this.#settle);
  }
}
