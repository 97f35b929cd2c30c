// The load under which outages happen: clients in a closed loop, each asking about one of a few long texts that many share. Half of the answers
// are streamed. Every request leaves one record, whatever became of it.

import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, type Dispatcher } from 'undici';
import { MODEL_DEFAULT } from '../../sim/server.ts';
import { StreamReader } from '../../sim/sse.ts';
import { Random } from '../../sim/random.ts';

/** `failed`: an error instead of an answer. `cut`: the answer had begun, so nobody could retry. `hung`: no end within the client's patience. */
export type Outcome = 'ok' | 'failed' | 'cut' | 'hung';

export interface Record {
  /** By performance.now(). */
  startMs: number;
  endMs: number;
  isStream: boolean;
  outcome: Outcome;
  status: number;
  /** `ip:port` that answered. */
  pod: string;
  /** Pods that Envoy tried. */
  attempts: number;
  /** Whether the pod held the shared text. */
  isHit: boolean;
  /** First byte of the body, of streams. */
  ttftMs: number;
}

export interface LoadOptions {
  url: string;
  clients: number;
  seed: number;
  groups: number;
  /** Words of each shared text; a word is a token. */
  sharedTokens: number;
  outputTokens: number;
  thinkMs: number;
  patienceMs: number;
}

const ownTokens = 60;

export class Load {
  readonly records: Record[] = [];
  readonly #options: LoadOptions;
  readonly #agent = new Agent({ connections: null, pipelining: 1, keepAliveTimeout: 60_000 });
  readonly #shared: string[];
  readonly #clients: Promise<void>[];
  #isOver = false;

  constructor(options: LoadOptions) {
    this.#options = options;
    this.#shared = Array.from({ length: options.groups }, (_, group) =>
      text(options.seed * 1e6 + group, options.sharedTokens),
    );
    this.#clients = Array.from({ length: options.clients }, (_, client) => this.#client(client));
  }

  /** Ends the load, and resolves when the last request has ended. */
  async stop(): Promise<Record[]> {
    this.#isOver = true;
    await Promise.all(this.#clients);
    await this.#agent.destroy();
    return this.records;
  }

  async #client(client: number): Promise<void> {
    const { seed, thinkMs } = this.#options;
    const random = new Random(seed * 1000 + client);
    while (!this.#isOver) {
      await sleep(thinkMs * random.between(0.5, 1.5));
      if (this.#isOver) return;
      const group = random.below(this.#options.groups);
      this.records.push(await this.#ask(group, text(random.seed(), ownTokens), random.unit() < 0.5));
    }
  }

  async #ask(group: number, own: string, isStream: boolean): Promise<Record> {
    const { url, outputTokens, sharedTokens, patienceMs } = this.#options;
    const record: Record = {
      startMs: performance.now(),
      endMs: 0,
      isStream,
      outcome: 'ok',
      status: 0,
      pod: '',
      attempts: 0,
      isHit: false,
      ttftMs: 0,
    };
    const body = JSON.stringify({
      model: MODEL_DEFAULT,
      messages: [
        { role: 'system', content: this.#shared[group] },
        { role: 'user', content: own },
      ],
      stream: isStream,
      ...(isStream ? { stream_options: { include_usage: true } } : {}),
      max_tokens: outputTokens,
      ignore_eos: true,
    });
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(), patienceMs);
    try {
      const answer = await this.#agent.request({
        origin: url,
        path: '/v1/chat/completions',
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
        signal: patience.signal,
        headersTimeout: 0,
        bodyTimeout: 0,
      });
      record.status = answer.statusCode;
      record.pod = String(answer.headers['x-warmpath-upstream'] ?? '');
      record.attempts = Number(answer.headers['x-warmpath-attempts'] ?? 0);
      if (answer.statusCode !== 200) {
        await answer.body.dump();
        record.outcome = 'failed';
      } else {
        const cached = isStream ? await readStream(answer.body, record) : await readWhole(answer.body);
        if (cached === undefined) record.outcome = 'cut';
        else record.isHit = cached >= sharedTokens * 0.8;
      }
    } catch {
      record.outcome = patience.signal.aborted ? 'hung' : record.status === 200 ? 'cut' : 'failed';
    }
    clearTimeout(timer);
    record.endMs = performance.now();
    return record;
  }
}

/** Words of five letters, a token each. */
function text(seed: number, tokens: number): string {
  const random = new Random(seed);
  const word = (): string =>
    random
      .below(26 ** 5)
      .toString(26)
      .padStart(5, '0')
      .replaceAll(/[0-9]/g, (digit) => 'qrstuvwxyz'[Number(digit)]!);
  return Array.from({ length: tokens }, word).join(' ');
}

/** Cached tokens as the usage says, undefined when the answer is not whole. */
async function readStream(body: Dispatcher.ResponseData['body'], record: Record): Promise<number | undefined> {
  const reader = new StreamReader();
  for await (const chunk of body as AsyncIterable<Buffer>) {
    const isContent = reader.feed(chunk, performance.now());
    if (isContent && record.ttftMs === 0) record.ttftMs = performance.now() - record.startMs;
  }
  return reader.done && reader.error === null ? reader.usage?.cachedTokens : undefined;
}

interface Whole {
  usage?: { prompt_tokens_details?: { cached_tokens?: number } };
}

async function readWhole(body: Dispatcher.ResponseData['body']): Promise<number | undefined> {
  const { usage } = (await body.json()) as Whole;
  return usage?.prompt_tokens_details?.cached_tokens;
}
