// The other side of the overhead bench, in a thread of its own: backends that answer at once, and the client. Both speak
// HTTP/1.1 on plain sockets and do next to nothing for a request, so that Envoy is what a round waits for.
import { once } from 'node:events';
import { createServer, connect } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { parentPort, Worker, workerData } from 'node:worker_threads';
import { Bodies } from './bodies.ts';

const backendsDefault = 4;
const threadName = 'overhead-load';

/** `events` is set for answers that are event streams of so many events; requests are then streams. */
export interface Round {
  port: number;
  sizeBytes: number;
  requests: number;
  connections: number;
  events?: number;
}

export interface RoundResult {
  /** In the order in which they ended. */
  latenciesMs: number[];
  /** Requests that were not answered 200. */
  failed: number;
  events: number;
}

type ToLoad = { kind: 'round'; round: Round } | { kind: 'close' };
type FromLoad =
  { kind: 'ready'; endpoints: string[] } | { kind: 'done'; result: RoundResult } | { kind: 'failed'; message: string };

/** The thread, as the bench sees it. */
export class Load {
  readonly endpoints: readonly string[];
  readonly #worker: Worker;

  static async start(backends = backendsDefault): Promise<Load> {
    const worker = new Worker(new URL(import.meta.url), { workerData: { threadName, backends } });
    const first = await answerOf(worker);
    if (first.kind !== 'ready') throw new Error('the load thread did not start');
    return new Load(worker, first.endpoints);
  }

  private constructor(worker: Worker, endpoints: string[]) {
    this.#worker = worker;
    this.endpoints = endpoints;
  }

  async run(round: Round): Promise<RoundResult> {
    this.#worker.postMessage({ kind: 'round', round } satisfies ToLoad);
    const answer = await answerOf(this.#worker);
    if (answer.kind === 'done') return answer.result;
    throw new Error(answer.kind === 'failed' ? answer.message : 'the load thread is confused');
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }
}

async function answerOf(worker: Worker): Promise<FromLoad> {
  const [message] = (await once(worker, 'message')) as [FromLoad];
  return message;
}

const headEnd = Buffer.from('\r\n\r\n');
const eventEnd = Buffer.from('\n\n');
const usageOf = (promptTokens: number): string =>
  `"usage":{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + 8},"completion_tokens":8,` +
  `"prompt_tokens_details":{"cached_tokens":${Math.floor((promptTokens * 3) / 64) * 16}}}`;
const event = Buffer.from(
  'data: {"id":"chatcmpl-bc430bd7486ef447","object":"chat.completion.chunk","created":1795954438,"model":"qwen3-8b",' +
    '"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n',
);
const metricsText = [
  '# TYPE vllm:num_requests_running gauge',
  'vllm:num_requests_running{engine="0"} 0',
  '# TYPE vllm:num_requests_waiting gauge',
  'vllm:num_requests_waiting{engine="0"} 0',
  '# TYPE vllm:kv_cache_usage_perc gauge',
  'vllm:kv_cache_usage_perc{engine="0"} 0.1',
  '# TYPE vllm:cache_config_info gauge',
  'vllm:cache_config_info{block_size="16",num_gpu_blocks="25000"} 1',
  '',
].join('\n');

const isChunked = (head: string): boolean => /\r\ntransfer-encoding: chunked/i.test(head);

function answer(type: string, text: string): Buffer {
  return Buffer.from(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${text.length}\r\n\r\n${text}`);
}

const answers = new Map<number, Buffer>();

/** The answer to a prompt of so many bytes, at four bytes a token. */
function answerTo(bodyBytes: number): Buffer {
  let bytes = answers.get(bodyBytes);
  if (!bytes) {
    const message = '{"index":0,"message":{"role":"assistant","content":"A short answer."},"finish_reason":"stop"}';
    const head = '"id":"chatcmpl-1","object":"chat.completion","created":1795954438,"model":"qwen3-8b"';
    const text = `{${head},"choices":[${message}],${usageOf(Math.ceil(bodyBytes / 4))}}`;
    bytes = answer('application/json', text);
    answers.set(bodyBytes, bytes);
  }
  return bytes;
}

/** Event streams that wait for the client to have seen their last event, by the number the client gave them. */
const streams = new Map<string, Stream>();

/** Sends an event only when the one before has arrived, so that Envoy handles each on its own. */
class Stream {
  readonly #socket: Socket;
  #left: number;

  constructor(socket: Socket, events: number) {
    this.#socket = socket;
    this.#left = events;
    socket.write('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n');
    this.next();
  }

  next(): void {
    if (this.#left-- > 0) this.#write(event);
    else this.#write(Buffer.from(`data: {"choices":[],${usageOf(256)}}\n\ndata: [DONE]\n\n`), '0\r\n\r\n');
  }

  #write(bytes: Buffer, end = ''): void {
    this.#socket.write(`${bytes.length.toString(16)}\r\n${bytes.toString('latin1')}\r\n${end}`, 'latin1');
  }
}

/** A body in chunks, which an Envoy with ext_proc makes of every body, as it comes off a connection. */
class ChunkedBody {
  bytes = 0;
  isWhole = false;
  #line = '';
  #skip = 0;
  #isLast = false;

  /** Takes what is its own from `at` on, and returns where that ends. */
  take(part: Buffer, at: number): number {
    while (at < part.length && !this.isWhole) {
      if (this.#skip > 0) {
        const skipped = Math.min(this.#skip, part.length - at);
        this.#skip -= skipped;
        at += skipped;
        continue;
      }
      const end = part.indexOf(10, at) + 1;
      this.#line += part.toString('latin1', at, end || part.length);
      if (end === 0) return part.length;
      at = end;
      this.#endLine(this.#line.trim());
      this.#line = '';
    }
    return at;
  }

  #endLine(line: string): void {
    if (this.#isLast) {
      this.isWhole = line === '';
      return;
    }
    const size = Number.parseInt(line, 16);
    if (!(size >= 0)) throw new Error(`no size of a chunk: ${line}`);
    this.bytes += size;
    if (size > 0) this.#skip = size + 2;
    else this.#isLast = true;
  }
}

/** Reads requests off a connection and answers each when its body is whole. */
function serve(socket: Socket): void {
  let pending: Buffer | undefined;
  let left = 0;
  let chunked: ChunkedBody | undefined;
  let reply = (): void => {};
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: Buffer) => {
    let at = 0;
    while (at < chunk.length) {
      if (chunked) {
        at = chunked.take(chunk, at);
        if (!chunked.isWhole) return;
        const { bytes } = chunked;
        chunked = undefined;
        socket.write(answerTo(bytes));
        continue;
      }
      if (left === 0) {
        const bytes = pending ? Buffer.concat([pending, chunk.subarray(at)]) : chunk.subarray(at);
        const end = bytes.indexOf(headEnd);
        if (end < 0) {
          pending = bytes;
          return;
        }
        const head = bytes.toString('latin1', 0, end);
        at += end + headEnd.length - (pending?.length ?? 0);
        pending = undefined;
        left = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0);
        if (isChunked(head)) {
          chunked = new ChunkedBody();
          continue;
        }
        const [, stream, events] = /\r\nx-bench-stream: (\d+),(\d+)/i.exec(head) ?? [];
        const bodyBytes = left;
        if (stream !== undefined) reply = () => void streams.set(stream, new Stream(socket, Number(events)));
        else if (left > 0) reply = () => void socket.write(answerTo(bodyBytes));
        else reply = () => void socket.write(answer('text/plain', metricsText));
      } else {
        const take = Math.min(left, chunk.length - at);
        left -= take;
        at += take;
      }
      if (left === 0) reply();
    }
  });
}

const bodiesBySize = new Map<number, Bodies>();

function bodiesOf(sizeBytes: number): Bodies {
  let bodies = bodiesBySize.get(sizeBytes);
  if (!bodies) bodiesBySize.set(sizeBytes, (bodies = new Bodies(sizeBytes)));
  return bodies;
}

function count(bytes: Buffer, what: Buffer): number {
  let found = 0;
  for (let at = bytes.indexOf(what); at >= 0; at = bytes.indexOf(what, at + what.length)) found++;
  return found;
}

let streamNumber = 0;

/** Sends one request after the other on each of the round's connections. */
async function runRound(round: Round): Promise<RoundResult> {
  const { port, sizeBytes, requests, connections, events } = round;
  const bodies = bodiesOf(sizeBytes);
  const result: RoundResult = { latenciesMs: [], failed: 0, events: 0 };
  let left = requests;
  const client = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const socket = connect(port, '127.0.0.1');
      let startedMs = 0;
      let received: Buffer | undefined;
      let chunked: ChunkedBody | undefined;
      let stream = '';
      let wait = 0;
      const next = (): void => {
        if (left-- <= 0) {
          socket.end(() => resolve());
          return;
        }
        stream = events === undefined ? '' : `${++streamNumber}`;
        const extra = events === undefined ? '' : `x-bench-stream: ${stream},${events}\r\n`;
        const head =
          `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n` +
          `${extra}content-length: ${sizeBytes}\r\n\r\n`;
        received = undefined;
        chunked = undefined;
        wait = 0;
        startedMs = performance.now();
        socket.cork();
        socket.write(head, 'latin1');
        socket.write(bodies.next(events !== undefined));
        socket.uncork();
      };
      const ended = (isGood: boolean): void => {
        result.latenciesMs.push(performance.now() - startedMs);
        if (!isGood) result.failed++;
        next();
      };
      socket.setNoDelay(true);
      socket.on('connect', next);
      socket.on('error', reject);
      socket.on('data', (chunk: Buffer) => {
        if (events !== undefined) {
          const seen = count(chunk, eventEnd);
          result.events += seen;
          if (chunk.includes('0\r\n\r\n')) ended(true);
          else for (let i = 0; i < seen; i++) streams.get(stream)?.next();
          return;
        }
        received = received ? Buffer.concat([received, chunk]) : chunk;
        if (wait === 0) {
          const end = received.indexOf(headEnd);
          if (end < 0) return;
          const head = received.toString('latin1', 0, end);
          wait = end + headEnd.length;
          if (isChunked(head)) chunked = new ChunkedBody();
          else wait += Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0);
          chunked?.take(received, wait);
        } else {
          chunked?.take(chunk, 0);
        }
        if (chunked ? chunked.isWhole : received.length >= wait) {
          ended(received.toString('latin1', 9, 12) === '200' && received.includes('"usage"'));
        }
      });
    });
  await Promise.all(Array.from({ length: connections }, client));
  streams.clear();
  return result;
}

async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** What the thread does. */
async function work(port: NonNullable<typeof parentPort>, backends: number): Promise<void> {
  const endpoints = await Promise.all(Array.from({ length: backends }, () => listen(createServer(serve))));
  const tell = (message: FromLoad): void => port.postMessage(message);
  port.on('message', (message: ToLoad) => {
    if (message.kind !== 'round') return;
    runRound(message.round).then(
      (result) => tell({ kind: 'done', result }),
      (error: unknown) => tell({ kind: 'failed', message: String(error) }),
    );
  });
  tell({ kind: 'ready', endpoints });
}

const task = workerData as { threadName?: string; backends: number } | null;
if (parentPort && task?.threadName === threadName) await work(parentPort, task.backends);
