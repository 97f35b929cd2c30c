// A vLLM-like HTTP server over one replica in real time. Paths, fields, framing and errors follow what a real vLLM 0.32 answered (the fixtures
// that the tests read); what the answer says is made up, how long it takes and how much of the prompt was cached is the engine model's.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Answer } from './answer.ts';
import { BodyError } from './body.ts';
import { engineConstants, type EngineName } from './constants.ts';
import { ReplicaEngine } from './engine.ts';
import { readRequest, type Api, type ModelLimits } from './intake.ts';
import { MetricsPage, type Fault, type MetricsFault } from './faults.ts';
import { ReplicaMetrics } from './metrics.ts';
import { RealtimeEngine } from './realtime.ts';
import { BLOCK_TOKENS_DEFAULT } from './tokens.ts';

export type { Fault, MetricsFault } from './faults.ts';

export interface ReplicaOptions {
  engine: EngineName;
  model?: string;
  /** Names of LoRA adapters that are served over the model. */
  loras?: readonly string[];
  host?: string;
  port?: number;
  blockTokens?: number;
  /** Overrides the engine's KV tokens, to make a small memory for a test. */
  kvTokens?: number;
  /** Overrides the longest prompt and answer together. */
  modelTokensMax?: number;
  /** Overrides how many requests run at once. */
  sequencesMax?: number;
  /** Waiting requests above this are answered 503; no bound when absent. */
  queueMax?: number;
  slowFactor?: number;
}

export interface ReplicaStats {
  url: string;
  running: number;
  waiting: number;
  finished: number;
  aborted: number;
  preemptions: number;
  prefixQueriesTokens: number;
  prefixHitsTokens: number;
  lostMs: number;
}

export interface Replica {
  url: string;
  stats(): ReplicaStats;
  setSlowFactor(factor: number): void;
  setFault(fault: Fault): void;
  setMetricsFault(fault: MetricsFault): void;
  clearCache(): void;
  close(): Promise<void>;
}

export const MODEL_DEFAULT = 'sim-8b';
const VERSION = '0.32.0';
const BODY_BYTES_MAX = 64 * 1024 * 1024;
const KEEP_ALIVE_MS = 3_600_000;

const BUSY =
  'The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.';

const POST_PATHS: Record<string, Api> = {
  '/v1/chat/completions': 'chat',
  '/v1/completions': 'completions',
  '/v1/responses': 'responses',
  '/v1/messages': 'messages',
  '/v1/messages/count_tokens': 'count',
  '/v1/embeddings': 'embeddings',
};
const GET_PATHS = new Set(['/health', '/metrics', '/v1/models', '/version', '/load', '/ping']);

interface Context {
  options: Required<Pick<ReplicaOptions, 'model'>> & ReplicaOptions;
  realtime: RealtimeEngine;
  metrics: ReplicaMetrics;
  limits: ModelLimits;
  startMs: number;
  fault: Fault;
  page: MetricsPage;
  pod: string;
  requests: number;
}

function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  if (response.headersSent || response.destroyed) return;
  const text = JSON.stringify(body);
  response.writeHead(status, {
    ...headers,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}

function models(context: Context): unknown {
  const created = Math.floor(context.startMs / 1000);
  const { model, loras, tokensMax } = context.limits;
  return {
    object: 'list',
    data: [model, ...loras].map((id, index) => ({
      id,
      object: 'model',
      created,
      owned_by: 'vllm',
      root: id,
      parent: id === model ? null : model,
      max_model_len: id === model ? tokensMax : null,
      permission: [
        {
          id: `modelperm-${(index + 1).toString(16).padStart(16, '0')}`,
          object: 'model_permission',
          created,
          allow_create_engine: false,
          allow_sampling: true,
          allow_logprobs: true,
          allow_search_indices: false,
          allow_view: true,
          allow_fine_tuning: false,
          organization: '*',
          group: null,
          is_blocking: false,
        },
      ],
    })),
  };
}

function answerGet(context: Context, path: string, response: ServerResponse): void {
  if (path === '/health' || path === '/ping') {
    response.writeHead(200, { 'content-length': 0 });
    response.end();
  } else if (path === '/metrics') {
    const text = context.page.text();
    if (text === null) {
      sendJson(response, 404, { detail: 'Not Found' });
      return;
    }
    response.writeHead(200, {
      'content-type': 'text/plain; version=0.0.4; charset=utf-8',
      'content-length': Buffer.byteLength(text),
    });
    response.end(text);
  } else if (path === '/v1/models') {
    sendJson(response, 200, models(context));
  } else if (path === '/version') {
    sendJson(response, 200, { version: VERSION });
  } else {
    const { engine } = context.realtime;
    sendJson(response, 200, { server_load: engine.running + engine.waiting });
  }
}

function complete(context: Context, api: Api, body: Buffer, request: IncomingMessage, response: ServerResponse): void {
  const { realtime, metrics } = context;
  try {
    if (context.fault === 'error') {
      throw new BodyError(500, 'InternalServerError', null, 'EngineCore encountered an issue.');
    }
    const { queueMax } = context.options;
    if (context.fault === 'busy' || (queueMax !== undefined && realtime.engine.waiting >= queueMax)) {
      metrics.rejected();
      throw new BodyError(503, 'Service Unavailable', null, BUSY, true);
    }
    const work = readRequest(api, body, context.limits);
    if (api === 'count') {
      const { tokens } = work.prompts[0]!.hasher;
      sendJson(response, 200, { input_tokens: tokens, context_management: { original_input_tokens: tokens } });
      return;
    }
    context.requests += 1;
    const given = request.headers['x-request-id'];
    const id = typeof given === 'string' ? given : context.requests.toString(16).padStart(16, '0');
    const answer = new Answer(work, id, response, metrics);
    response.on('close', () => {
      if (response.writableFinished) return;
      for (const sequence of answer.sequences) realtime.abort(sequence);
    });
    answer.open();
    for (const sequence of answer.sequences) realtime.add(sequence);
  } catch (error) {
    if (!(error instanceof BodyError)) throw error;
    sendJson(response, error.status, error.answer(api));
  }
}

function handle(context: Context, request: IncomingMessage, response: ServerResponse): void {
  // Node would add headers of its own; connections are kept all the same.
  response.removeHeader('connection');
  response.setHeader('server', 'uvicorn');
  response.setHeader('vary', 'Origin');
  response.setHeader('x-warmpath-sim-pod', context.pod);
  const url = request.url ?? '/';
  const cut = url.indexOf('?');
  const path = cut < 0 ? url : url.slice(0, cut);
  const api = POST_PATHS[path];
  const known = api !== undefined ? 'POST' : GET_PATHS.has(path) ? 'GET' : undefined;
  if (known === undefined) {
    request.resume();
    sendJson(response, 404, { detail: 'Not Found' });
  } else if (request.method !== known) {
    request.resume();
    sendJson(response, 405, { detail: 'Method Not Allowed' }, { allow: known });
  } else if (api === undefined) {
    answerGet(context, path, response);
  } else {
    const chunks: Buffer[] = [];
    let bytes = 0;
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > BODY_BYTES_MAX) request.destroy();
      else chunks.push(chunk);
    });
    request.on('end', () => {
      complete(context, api, chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, bytes), request, response);
    });
    request.on('error', () => response.destroy());
  }
}

async function listen(server: Server, host: string, port: number): Promise<AddressInfo> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port, backlog: 1024 }, () => {
      server.off('error', reject);
      resolve();
    });
  });
  return server.address() as AddressInfo;
}

/** Starts one replica in this thread; ready when the promise resolves. */
export async function startReplica(options: ReplicaOptions): Promise<Replica> {
  const named = engineConstants(options.engine);
  const constants = {
    ...named,
    kvTokens: options.kvTokens ?? named.kvTokens,
    modelTokensMax: options.modelTokensMax ?? named.modelTokensMax,
    sequencesMax: options.sequencesMax ?? named.sequencesMax,
  };
  const engine = new ReplicaEngine(constants, options.blockTokens ?? BLOCK_TOKENS_DEFAULT);
  const realtime = new RealtimeEngine(engine);
  realtime.slowFactor = options.slowFactor ?? 1;
  const model = options.model ?? MODEL_DEFAULT;
  const startMs = Date.now();
  const metrics = new ReplicaMetrics(engine, { model, loras: options.loras ?? [], startMs });
  const context: Context = {
    options: { ...options, model },
    realtime,
    metrics,
    limits: {
      model,
      loras: options.loras ?? [],
      tokensMax: engine.sequenceTokensMax,
      blockTokens: engine.blockTokens,
    },
    startMs,
    fault: 'none',
    page: new MetricsPage(metrics),
    pod: '',
    requests: 0,
  };
  const server = createServer(
    { keepAliveTimeout: KEEP_ALIVE_MS, requestTimeout: 0, noDelay: true },
    (request, response) => {
      handle(context, request, response);
    },
  );
  const host = options.host ?? '127.0.0.1';
  const address = await listen(server, host, options.port ?? 0);
  context.pod = `${host}:${address.port}`;
  const url = `http://${context.pod}`;
  return {
    url,
    stats: () => ({
      url,
      running: engine.running,
      waiting: engine.waiting,
      finished: engine.counters.finished,
      aborted: engine.counters.aborted,
      preemptions: engine.counters.preemptions,
      prefixQueriesTokens: engine.counters.prefixQueriesTokens,
      prefixHitsTokens: engine.counters.prefixHitsTokens,
      lostMs: realtime.lostMs,
    }),
    setSlowFactor: (factor) => {
      realtime.slowFactor = factor;
    },
    setFault: (fault) => {
      context.fault = fault;
      realtime.frozen = fault === 'freeze';
    },
    setMetricsFault: (fault) => {
      context.page.fault = fault;
    },
    clearCache: () => engine.cache.clear(),
    close: async () => {
      realtime.close();
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
    },
  };
}
