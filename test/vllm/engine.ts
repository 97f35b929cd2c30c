// A real vLLM as a child process, with the tiny model: started on a free port, waited for, its output kept, and certainly ended.
//
//   const engine = await startVllm({ blocks: 256 });
//   await fetch(`${engine.url}/v1/chat/completions`, ...);
//   await engine.stop();              // or: await using engine = await startVllm(...)

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../envoy/ports.ts';
import { dieWithUs } from '../../envoy/watchdog.ts';
import { ensureVllm, offline } from './install.ts';

export interface VllmOptions {
  /** Served names; the first is what answers say. */
  models?: string[];
  /** Tokens of a block of its KV cache, a multiple of 32. */
  blockTokens?: number;
  /** Blocks of its KV cache, one of which it keeps for itself. */
  blocks?: number;
  maxModelTokens?: number;
  /** Requests that run at once, and tokens that they may compute in one step. */
  sequences?: number;
  batchTokens?: number;
  /** Publishes events of its KV cache over ZMQ; GET /kv_event_sources tells where. */
  kvEvents?: boolean;
  /** Serves two adapters, `adapter-a` and `adapter-b`. */
  lora?: boolean;
  /** More arguments of `vllm serve`, and more environment. */
  args?: string[];
  env?: Record<string, string>;
  /** A fixed port, to start one again where another was. */
  port?: number;
  readyMsMax?: number;
}

export interface Vllm extends AsyncDisposable {
  readonly url: string;
  /** `ip:port`. */
  readonly endpoint: string;
  readonly port: number;
  readonly pid: number;
  /** The end of its output, 1 MB of it at most, also after its end. */
  logs(): string;
  /** The end of the process, whoever caused it. */
  readonly exited: Promise<number | null>;
  /** Ends it in its own way (SIGTERM), by force if it takes too long; resolves when nothing of it is left. */
  stop(): Promise<void>;
  /** Ends all its processes at once (SIGKILL). */
  kill(): Promise<void>;
  /** Sends a signal to its server process, or with `all` to all its processes, and returns at once. */
  signal(name: NodeJS.Signals, all?: 'all'): void;
}

const readyMsDefault = 240_000;
const stopMsMax = 15_000;
const pollMs = 100;
const attemptsMax = 3;
const logBytesMax = 1 << 20;
const logTailLines = 30;

/** The engine did not start; the message has the end of its output. */
export class VllmError extends Error {
  override name = 'VllmError';
}

export async function startVllm(options: VllmOptions = {}): Promise<Vllm> {
  for (let attempt = 1; ; attempt++) {
    const engine = new VllmProcess(options);
    try {
      await engine.start();
      return engine;
    } catch (error) {
      await engine.kill();
      // Somebody else took the port between its choice and its use.
      const isTaken = options.port === undefined && engine.logs().includes('ddress already in use');
      if (!isTaken || attempt === attemptsMax) throw error;
    }
  }
}

class VllmProcess implements Vllm {
  readonly #options: VllmOptions;
  #child: ChildProcess | undefined;
  #isOver = false;
  #parts: Buffer[] = [];
  #bytes = 0;
  #folder = '';
  exited: Promise<number | null> = Promise.resolve(null);
  port = 0;

  constructor(options: VllmOptions) {
    this.#options = options;
  }

  get endpoint(): string {
    return `127.0.0.1:${this.port}`;
  }
  get url(): string {
    return `http://${this.endpoint}`;
  }
  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  async start(): Promise<void> {
    const { python, folder, model, adapters } = await ensureVllm();
    const { env = {}, readyMsMax = readyMsDefault } = this.#options;
    this.port = this.#options.port ?? (await freePort());
    this.#folder = await mkdtemp(join(tmpdir(), 'warmpath-vllm-'));
    const args = [join(import.meta.dirname, 'serve.py'), 'serve', model, ...this.#arguments(adapters)];
    // A group of its own, so that its engine process can be reached when the server process is gone.
    this.#child = spawn(python, args, {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      cwd: this.#folder,
      env: { ...process.env, ...environment, ...offline, VLLM_CACHE_ROOT: join(folder, 'vllm-cache'), ...env },
    });
    const watchdog = this.pid > 0 ? dieWithUs(-this.pid) : undefined;
    for (const stream of [this.#child.stdout!, this.#child.stderr!])
      stream.on('data', (part: Buffer) => this.#keep(part));
    this.exited = new Promise((resolve) => {
      const ended = (code: number | null): void => {
        this.#isOver = true;
        // What its server process leaves behind goes with it.
        this.signal('SIGKILL', 'all');
        watchdog?.kill('SIGKILL');
        resolve(code);
      };
      this.#child!.once('error', () => ended(null));
      this.#child!.once('exit', ended);
    });
    await this.#ready(readyMsMax);
  }

  #arguments(adapters: { a: string; b: string }): string[] {
    const { models = ['tiny'], blockTokens = 32, blocks = 256, maxModelTokens = 4096 } = this.#options;
    const { sequences = 4, batchTokens = 512, kvEvents = false, lora = false, args = [] } = this.#options;
    const list = ['--served-model-name', ...models, '--host', '127.0.0.1', '--port', `${this.port}`];
    list.push('--enforce-eager', '--distributed-executor-backend', 'uni', '--dtype', 'bfloat16');
    list.push('--max-model-len', `${maxModelTokens}`, '--block-size', `${blockTokens}`);
    list.push('--num-gpu-blocks-override', `${blocks}`, '--max-num-seqs', `${sequences}`);
    list.push('--max-num-batched-tokens', `${batchTokens}`);
    list.push('--enable-prefix-caching', '--enable-prompt-tokens-details', '--enable-server-load-tracking');
    if (kvEvents) {
      // Free ports of the address in VLLM_HOST_IP.
      const where = { endpoint: 'tcp://*:0', replay_endpoint: 'tcp://*:0' };
      list.push('--kv-events-config', JSON.stringify({ enable_kv_cache_events: true, publisher: 'zmq', ...where }));
    }
    if (lora) {
      const modules = Object.entries(adapters).map(([name, path]) => `adapter-${name}=${path}`);
      list.push('--enable-lora', '--max-loras', '2', '--max-lora-rank', '8', '--lora-modules', ...modules);
    }
    return [...list, ...args];
  }

  async #ready(readyMsMax: number): Promise<void> {
    const deadline = Date.now() + readyMsMax;
    for (;;) {
      const response = await fetch(`${this.url}/health`, { signal: AbortSignal.timeout(5_000) }).catch(() => undefined);
      await response?.arrayBuffer().catch(() => undefined);
      if (this.#isOver) throw new VllmError(`vLLM ended by itself:\n${this.#tail()}`);
      if (response?.ok) return;
      if (Date.now() > deadline) {
        throw new VllmError(`vLLM is not ready after ${readyMsMax / 1000} s. Its output ends:\n${this.#tail()}`);
      }
      await sleep(pollMs);
    }
  }

  #keep(part: Buffer): void {
    this.#parts.push(part);
    this.#bytes += part.length;
    while (this.#bytes > logBytesMax && this.#parts.length > 1) this.#bytes -= this.#parts.shift()!.length;
  }

  logs(): string {
    return Buffer.concat(this.#parts).toString();
  }

  #tail(): string {
    return this.logs().trimEnd().split('\n').slice(-logTailLines).join('\n');
  }

  signal(name: NodeJS.Signals, all?: 'all'): void {
    if (this.pid === 0) return;
    try {
      process.kill(all === 'all' ? -this.pid : this.pid, name);
    } catch {
      // Nobody is left to get it.
    }
  }

  async stop(): Promise<void> {
    if (!this.#isOver) this.signal('SIGTERM');
    const force = setTimeout(() => this.signal('SIGKILL', 'all'), stopMsMax);
    await this.#gone();
    clearTimeout(force);
  }

  async kill(): Promise<void> {
    this.signal('SIGKILL', 'all');
    await this.#gone();
  }

  async #gone(): Promise<void> {
    await this.exited;
    if (this.#folder !== '') await rm(this.#folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

const environment: Record<string, string> = {
  VLLM_TARGET_DEVICE: 'cpu',
  // In GB, and an upper bound only: the number of blocks is given.
  VLLM_CPU_KVCACHE_SPACE: '1',
  VLLM_HOST_IP: '127.0.0.1',
  VLLM_CPU_OMP_THREADS_BIND: 'nobind',
  OMP_NUM_THREADS: '1',
  // With it the executor lives in the engine's process: two processes in place of three.
  VLLM_ENABLE_V1_MULTIPROCESSING: '0',
  // Paths for tests: /reset_prefix_cache, /sleep, /server_info.
  VLLM_SERVER_DEV_MODE: '1',
  VLLM_ALLOW_RUNTIME_LORA_UPDATING: '1',
  VLLM_NO_USAGE_STATS: '1',
  DO_NOT_TRACK: '1',
};
