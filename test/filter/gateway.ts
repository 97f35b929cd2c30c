// A gateway of filter VMs in the Node host with a fake control plane. Tests steer the clock, the requests and what the replicas
// answer.
import type { EndpointRecord, Frame, PoolMode } from '../../control-plane/engine/frames.ts';
import { WasmHost, wasmModule } from '../host/host.ts';
import type { Root, Stream } from '../host/host.ts';
import { FakeControlPlane } from './control-plane.ts';

export const PATH = '/v1/chat/completions';

export interface GatewayOptions {
  workers?: number;
  pods?: number;
  policy?: number;
  mode?: PoolMode;
  pool?: string;
  config?: Record<string, unknown>;
}

/** The address of pod `i` (from 0) as Envoy writes it. */
export const podAddress = (i: number): string => `10.0.0.${i + 1}:8000`;

export class Gateway {
  readonly host: WasmHost;
  readonly roots: Root[] = [];
  readonly plane: FakeControlPlane;
  readonly pool: string;
  /** False: the control plane does not answer at all. */
  answers = true;

  static async start(options: GatewayOptions = {}): Promise<Gateway> {
    const endpoints = Array.from({ length: options.pods ?? 4 }, (_, i) => podAddress(i));
    return new Gateway(await FakeControlPlane.create(endpoints), options);
  }

  private constructor(plane: FakeControlPlane, options: GatewayOptions) {
    this.plane = plane;
    plane.policy = options.policy ?? 0;
    plane.mode = options.mode ?? 'active';
    this.pool = options.pool ?? 'pool';
    this.host = new WasmHost(wasmModule('filter'), { properties: { 'xds.node.id': 'test-gateway' }, drainMs: 1000 });
    this.host.onCall = (call) => (this.answers ? { body: plane.answer(call.body) } : undefined);
    for (let i = 0; i < (options.workers ?? 1); i++) this.addWorker(`worker-${i + 1}`, options.config);
  }

  get reports(): Frame[] {
    return this.plane.reports;
  }

  get endpoints(): EndpointRecord[] {
    return this.plane.endpoints;
  }

  addWorker(name: string, config: Record<string, unknown> = {}): Root {
    const root = this.host.vm(name).plugin('warmpath', JSON.stringify(this.configuration(config)));
    this.roots.push(root);
    return root;
  }

  configuration(overrides: Record<string, unknown> = {}): Record<string, unknown> {
    return {
      pool: this.pool,
      sync: { cluster: 'warmpath' },
      bounds: { pods: 64, blocks: 65536, streams: 1024 },
      ...overrides,
    };
  }

  /** Changes settings or endpoints; they are in force after the next sync. */
  change(change: (plane: FakeControlPlane) => void): void {
    this.plane.change(change);
  }

  /** Lets the VMs claim, elect and sync. */
  settle(ms = 300): this {
    this.host.advance(ms);
    return this;
  }

  /** A request on worker `worker`, up to the end of its body. */
  request(worker: number, body: unknown, headers: Record<string, string> = {}): Stream {
    const stream = this.roots[worker]!.stream({
      headers: { ':method': 'POST', ':path': PATH, ...headers },
      properties: { 'xds.cluster_name': 'pool-cluster' },
    });
    stream.requestBody(typeof body === 'string' ? body : JSON.stringify(body), true);
    return stream;
  }

  /** What the filter picked for a stream, best first. */
  picks(stream: Stream): string[] {
    return stream.filterState('warmpath.pick')?.split(',') ?? [];
  }

  /** Answers a stream as its picked replica would, and ends it. */
  answer(stream: Stream, options: { status?: number; upstream?: string; sse?: boolean; usage?: object } = {}): void {
    const upstream = options.upstream ?? this.picks(stream)[0] ?? podAddress(0);
    const type = options.sse === false ? 'application/json' : 'text/event-stream; charset=utf-8';
    stream.properties['upstream.address'] = upstream;
    stream.responseHeaders({ ':status': String(options.status ?? 200), 'content-type': type });
    stream.responseBody('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
    if (options.usage) stream.responseBody(`data: {"usage":${JSON.stringify(options.usage)}}\n\n`);
    stream.responseBody('', true);
    stream.finish();
  }

  /** In-flight gauges of the pool's pods. */
  inFlight(): number[] {
    return this.endpoints.map((_, i) => this.metric(`warmpath_in_flight.pool.${this.pool}.pod.10_0_0_${i + 1}_8000`));
  }

  /** A metric as it is after the next tick, which tells Envoy what was counted. */
  metric(name: string): number {
    this.host.advance(50);
    return this.host.metrics.value(name) ?? 0;
  }

  fallbacks(reason: string): number {
    return this.metric(`warmpath_fallbacks_total.pool.${this.pool}.reason.${reason}`);
  }
}

/** A chat of one system text and one user text. */
export function chat(system: string, user: string, extra: object = {}): object {
  return {
    model: 'qwen3-8b',
    messages: [
      { role: 'system', content: system },
      { role: 'user', content: user },
    ],
    stream: true,
    ...extra,
  };
}

/** Text of `bytes` bytes that no other seed shares. */
export function words(seed: string, bytes: number): string {
  let text = '';
  for (let i = 0; text.length < bytes; i++) text += `${seed}${i} `;
  return text.slice(0, bytes);
}
