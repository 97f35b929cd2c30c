// The load driver: sends a workload's requests to a gateway and measures each as its user would. Time to first token runs from the send to the
// first event with content, whatever headers came before. The driver watches its own event loop, so that its own lateness can be told from
// the gateway's.

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Pool, type Dispatcher } from 'undici';
import { StreamReader } from './sse.ts';
import { summarise, type DriveSummary, type RequestRecord } from './summary.ts';
import type { Session, Workload, WorkloadRequest } from './workload.ts';

export type { DriveSummary, RequestRecord } from './summary.ts';

export interface DriveOptions {
  /** One gateway, or several addresses that are used in turn. */
  baseUrl: string | readonly string[];
  workload: Workload;
  model: string;
  signal?: AbortSignal;
  /** Called after each finished request with the same object, brought up to date; warming requests count too. */
  onProgress?: (progress: DriveProgress) => void;
  /** A request without an end after this is aborted and counted as hung; the workload's own time, or 2 minutes, when absent. */
  timeoutMs?: number;
  /** Replicas behind the gateway, for the busiest pod's share; the workload's own number when absent. */
  replicas?: number;
  headers?: Record<string, string>;
  /** The response header that names the pod. */
  podHeader?: string;
}

export interface DriveProgress {
  done: number;
  inFlight: number;
  failed: number;
  seconds: number;
}

export interface DriveResult {
  summary: DriveSummary;
  records: RequestRecord[];
  /** How late the driver's own event loop ran. */
  lagMs: { p99: number; max: number };
}

const TIMEOUT_MS_DEFAULT = 120_000;
const LAG_RESOLUTION_MS = 10;
const PATH = '/v1/chat/completions';

function bodyOf(model: string, { messages, outputTokens }: WorkloadRequest): string {
  return JSON.stringify({
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: outputTokens,
    ignore_eos: true,
    temperature: 0,
  });
}

/** What one request shares with all others of its run. */
interface Run {
  options: DriveOptions;
  pools: Pool[];
  podHeader: string;
  timeoutMs: number;
  startMs: number;
  sent: number;
}

const HEADERS_KEPT = new Set(['x-warmpath-sim-pod']);

function send(run: Run, session: string, request: WorkloadRequest): Promise<{ record: RequestRecord; answer: string }> {
  const pool = run.pools[run.sent % run.pools.length]!;
  run.sent += 1;
  const body = bodyOf(run.options.model, request);
  const reader = new StreamReader();
  const record: RequestRecord = {
    session,
    measured: request.measured,
    sentMs: 0,
    ttftMs: null,
    tpotMs: null,
    e2eMs: null,
    promptTokens: null,
    cachedTokens: null,
    outputTokens: null,
    pod: null,
    status: null,
    failed: false,
    hung: false,
    error: null,
  };
  return new Promise((resolve) => {
    const sentMs = performance.now();
    record.sentMs = sentMs - run.startMs;
    let firstMs = -1;
    let control: Dispatcher.DispatchController | undefined;
    let settled = false;
    const settle = (error: string | null): void => {
      if (settled) return;
      settled = true;
      clearTimeout(timer);
      const endMs = performance.now();
      record.e2eMs = endMs - sentMs;
      const { usage } = reader;
      if (usage !== null) {
        record.promptTokens = usage.promptTokens;
        record.cachedTokens = usage.cachedTokens;
        record.outputTokens = usage.outputTokens;
      }
      if (firstMs >= 0) {
        record.ttftMs = firstMs - sentMs;
        const outputTokens = record.outputTokens ?? reader.contentEvents;
        if (outputTokens > 1) record.tpotMs = (reader.lastContentMs - firstMs) / (outputTokens - 1);
      }
      if (error === null) {
        if (record.status !== 200) error = `status ${record.status}`;
        else if (reader.error !== null) error = reader.error;
        else if (!reader.done) error = 'the stream ended early';
        else if (firstMs < 0) error = 'the stream had no content';
      }
      record.error = error;
      record.failed = error !== null;
      resolve({ record, answer: reader.answer });
    };
    const timer = setTimeout(() => {
      record.hung = true;
      settle(`no end after ${run.timeoutMs} ms`);
      control?.abort(new Error('timeout'));
    }, run.timeoutMs);
    pool.dispatch(
      {
        path: PATH,
        method: 'POST',
        headers: { 'content-type': 'application/json', ...run.options.headers },
        body,
        headersTimeout: 0,
        bodyTimeout: 0,
      },
      {
        onRequestStart(controller) {
          control = controller;
          if (settled) controller.abort(new Error('timeout'));
        },
        onResponseStart(_controller, status, headers) {
          record.status = status;
          const pod = headers[run.podHeader];
          if (typeof pod === 'string') record.pod = pod;
        },
        onResponseData(_controller, chunk) {
          const nowMs = performance.now();
          if (reader.feed(chunk, nowMs) && firstMs < 0) firstMs = nowMs;
        },
        onResponseEnd() {
          settle(null);
        },
        onResponseError(_controller, error) {
          settle(error.message === '' ? error.name : error.message);
        },
      },
    );
  });
}

function delay(milliseconds: number, signal: AbortSignal | undefined): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve(false);
      return;
    }
    const stop = (): void => {
      clearTimeout(timer);
      resolve(false);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve(true);
    }, milliseconds);
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** Sends the whole workload and returns when its last answer is there, or soon after the signal. */
export async function drive(options: DriveOptions): Promise<DriveResult> {
  const { workload, signal, onProgress } = options;
  const urls = typeof options.baseUrl === 'string' ? [options.baseUrl] : options.baseUrl;
  const pools = urls.map((url) => new Pool(url, { connections: null, pipelining: 1, keepAliveTimeout: 60_000 }));
  const records: RequestRecord[] = [];
  const lag = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
  lag.enable();
  const run: Run = {
    options,
    pools,
    podHeader: options.podHeader ?? [...HEADERS_KEPT][0]!,
    timeoutMs: options.timeoutMs ?? workload.timeoutMs ?? TIMEOUT_MS_DEFAULT,
    startMs: performance.now(),
    sent: 0,
  };
  const progress: DriveProgress = { done: 0, inFlight: 0, failed: 0, seconds: 0 };

  const play = async (session: Session): Promise<void> => {
    let answer = '';
    for (;;) {
      const request = session.next(answer);
      if (request === null) return;
      if (request.thinkMs > 0 && !(await delay(request.thinkMs, signal))) return;
      if (signal?.aborted === true) return;
      progress.inFlight += 1;
      const sent = await send(run, session.id, request);
      progress.inFlight -= 1;
      progress.done += 1;
      if (sent.record.failed) progress.failed += 1;
      progress.seconds = (performance.now() - run.startMs) / 1000;
      records.push(sent.record);
      onProgress?.(progress);
      answer = sent.answer;
    }
  };

  const playing: Promise<void>[] = [];
  for (const session of workload.sessions()) {
    const waitMs = run.startMs + session.startMs - performance.now();
    if (waitMs > 1 && !(await delay(waitMs, signal))) break;
    playing.push(play(session));
  }
  await Promise.all(playing);
  lag.disable();
  await Promise.all(pools.map((pool) => pool.destroy()));
  return {
    summary: summarise(records, options.replicas ?? workload.replicas),
    records,
    lagMs: {
      p99: Math.max(0, lag.percentile(99) / 1e6 - LAG_RESOLUTION_MS),
      max: Math.max(0, lag.max / 1e6 - LAG_RESOLUTION_MS),
    },
  };
}
