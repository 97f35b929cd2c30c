// Reads requests with the engine that runs in the gateway: which prompt a body holds, and the block keys it has.
//
// `warmpath keys`, the simulator and the tests use this. Keys are made with a secret; the control plane's own pools have theirs from
// their settings, and without any a well-known one serves, since then the keys are only compared with each other.
import type { EngineInstance } from './instance.ts';
import { loadEngine } from './instance.ts';
import { LANGUAGES } from './outcomes.ts';

interface KeysExports {
  secretSet(pool: number, pointer: number): void;
  secretClear(pool: number): void;
  scanInit(streams: number, digestPages: number): void;
  scanPoolSet(pool: number, blockBytes: number, windowBytes: number): void;
  scanOpen(pool: number, api: number): number;
  scanFeed(slot: number, pointer: number, lengthBytes: number): void;
  scanEnd(slot: number): number;
  scanClose(slot: number): void;
  scanStream(slot: number): number;
  scanPromptBytes(slot: number): number;
  scanLanguage(slot: number): number;
  scanModelPtr(slot: number): number;
  scanModelBytes(slot: number): number;
  apiOfPath(pointer: number, lengthBytes: number): number;
  chainRun(slot: number, toolsPosition: number): number;
  chainReason(): number;
  chainKeysPtr(): number;
  chainEndsPtr(): number;
  keysInput(): number;
  keysInputBytes(): number;
  reasonNameLength(code: number): number;
  reasonNameByte(code: number, at: number): number;
  recordPagesFree(): number;
}

export const toolsPositions = ['auto', 'after-system', 'first'] as const;
export type ToolsPosition = (typeof toolsPositions)[number];

/** In the order of the engine's API codes. */
const apis = ['none', 'other', 'chat', 'completions', 'responses', 'messages'] as const;
export type Api = (typeof apis)[number];

export interface KeySettings {
  readonly toolsPosition?: ToolsPosition | undefined;
  /** Size of a prompt's first blocks: 64 to 4096, a multiple of 64. */
  readonly blockBytes?: number | undefined;
  /** How much of the prompt is indexed; 0: all. */
  readonly windowBytes?: number | undefined;
}

export interface RequestKeys {
  readonly api: Api;
  /** The model's name, its first 128 bytes. */
  readonly model: string;
  readonly stream: boolean;
  readonly promptBytes: number;
  readonly keys: bigint[];
  /** For each key, the bytes of prompt text up to the end of its block. */
  readonly ends: number[];
  /** Why there are no keys, or not all that the prompt could have; null when there is nothing to say. */
  readonly reason: string | null;
}

const SECRET_BYTES = 32;
const POOL = 0;

/** Stands for a pool's secret where keys never leave the process. */
export const localSecret: Uint8Array = new TextEncoder().encode('warmpath: a secret for local use');

/** One engine that reads request after request. */
export class KeyReader {
  readonly #engine: EngineInstance<KeysExports>;
  readonly #exports: EngineInstance<KeysExports>['exports'];

  constructor(engine: EngineInstance<KeysExports>, secret: Uint8Array = localSecret) {
    this.#engine = engine;
    this.#exports = engine.exports;
    this.#exports.scanInit(4, 2048);
    this.setSecret(secret);
  }

  static async create(secret?: Uint8Array): Promise<KeyReader> {
    return new KeyReader(await loadEngine<KeysExports>(), secret);
  }

  /** Keys made from now on are those of a pool with this secret, 32 bytes. */
  setSecret(secret: Uint8Array): void {
    if (secret.length !== SECRET_BYTES)
      throw new RangeError(`secret: ${secret.length} bytes, expected ${SECRET_BYTES}`);
    this.#put(secret, 0, SECRET_BYTES);
    this.#exports.secretSet(POOL, this.#exports.keysInput());
  }

  /** Pages of digests that no request holds: as many as at the beginning whenever none is being read. */
  get pagesFree(): number {
    return this.#exports.recordPagesFree();
  }

  api(path: string): Api {
    const bytes = new TextEncoder().encode(path).subarray(0, this.#exports.keysInputBytes());
    this.#put(bytes, 0, bytes.length);
    return apis[this.#exports.apiOfPath(this.#exports.keysInput(), bytes.length)] ?? 'none';
  }

  /**
   * Reads one request. `cuts` are offsets at which the body is cut into chunks, in ascending order; the engine must make the same of any.
   */
  read(path: string, body: Uint8Array, settings: KeySettings = {}, cuts: readonly number[] = []): RequestKeys {
    const exports = this.#exports;
    const api = this.api(path);
    exports.scanPoolSet(POOL, settings.blockBytes ?? 0, settings.windowBytes ?? 0);
    const none = { api, model: '', stream: false, promptBytes: 0, keys: [], ends: [] };
    if (api === 'none' || api === 'other') return { ...none, reason: 'path' };
    const slot = exports.scanOpen(POOL, apis.indexOf(api));
    if (slot < 0) return { ...none, reason: 'streams-full' };
    try {
      this.#feed(slot, body, cuts);
      const code = exports.scanEnd(slot);
      const stream = exports.scanStream(slot) !== 0;
      const model = new TextDecoder().decode(
        new Uint8Array(exports.memory.buffer, exports.scanModelPtr(slot), exports.scanModelBytes(slot)),
      );
      if (code !== 0) return { ...none, stream, model, reason: this.#reason(code) };
      const position = toolsPositions.indexOf(settings.toolsPosition ?? 'auto');
      const count = exports.chainRun(slot, position);
      return {
        api,
        model,
        stream,
        promptBytes: exports.scanPromptBytes(slot),
        keys: [...new BigUint64Array(exports.memory.buffer, exports.chainKeysPtr(), count)],
        ends: [...new Uint32Array(exports.memory.buffer, exports.chainEndsPtr(), count)],
        reason: this.#reason(exports.chainReason()),
      };
    } finally {
      exports.scanClose(slot);
    }
  }

  /** The language that most of a request's prompt is in, by its script. */
  language(path: string, body: Uint8Array, cuts: readonly number[] = []): (typeof LANGUAGES)[number] {
    const slot = this.#exports.scanOpen(POOL, apis.indexOf(this.api(path)));
    try {
      this.#feed(slot, body, cuts);
      return LANGUAGES[this.#exports.scanLanguage(slot)] ?? 'other';
    } finally {
      this.#exports.scanClose(slot);
    }
  }

  #feed(slot: number, body: Uint8Array, cuts: readonly number[]): void {
    const bytesMax = this.#exports.keysInputBytes();
    let from = 0;
    for (const cut of [...cuts, body.length]) {
      const to = Math.min(cut, body.length);
      while (from < to) {
        const take = Math.min(to - from, bytesMax);
        this.#put(body, from, take);
        this.#exports.scanFeed(slot, this.#exports.keysInput(), take);
        from += take;
      }
    }
  }

  #put(bytes: Uint8Array, from: number, lengthBytes: number): void {
    const input = this.#exports.keysInput();
    new Uint8Array(this.#engine.exports.memory.buffer).set(bytes.subarray(from, from + lengthBytes), input);
  }

  #reason(code: number): string | null {
    if (code === 0) return null;
    let name = '';
    for (let at = 0; at < this.#exports.reasonNameLength(code); at++) {
      name += String.fromCharCode(this.#exports.reasonNameByte(code, at));
    }
    return name;
  }
}

/** A block key as `warmpath keys` prints it. */
export function keyHex(key: bigint): string {
  return key.toString(16).padStart(16, '0');
}
