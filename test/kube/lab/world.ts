// Warmpath as it is installed: the rendered manifests applied to a cluster, replicas of the control plane, simulated engines as pods, and requests
// through the gateway.

import { request } from 'undici';
import { builtFiles } from '../../../cli/manifests/tree.ts';
import { defaults, poolHost, shadowService, type Parameters } from '../../../cli/manifests/parameters.ts';
import { startReplica, type Replica as Engine } from '../../../sim/server.ts';
import type { KubeData } from './client.ts';
import { gatewayIp, type Cluster, gatewayName, gatewayPort, llm } from './cluster.ts';
import { mountAccount, Replica, type StateBody } from './control-plane.ts';
import { until } from './process.ts';

const root = new URL('../../..', import.meta.url);
export const filterPath = new URL('build/filter.wasm', root).pathname;
export const poolName = `${llm}/vllm`;
export const gatewayUrl = `http://${gatewayIp}:${gatewayPort}`;

export interface Answer {
  status: number;
  /** Address of the pod that answered. */
  pod: string;
  text: string;
}

export function parametersOf(change: Partial<Parameters> = {}): Parameters {
  return {
    ...defaults,
    gateway: { namespace: llm, name: gatewayName },
    gatewayServiceAccount: `${gatewayName}-istio`,
    moduleUrl: `file://${filterPath}`,
    moduleSha256: '',
    ...change,
  };
}

/** A long system prompt that differs from all others from its first word on. */
export const promptOf = (group: number): string =>
  Array.from(
    { length: 300 },
    (_, i) => `group ${group} sentence ${i} says ${(group * 7919 + i * 104_729) % 9973}.`,
  ).join(' ');

export class World {
  readonly cluster: Cluster;
  readonly parameters: Parameters;
  readonly manifests: KubeData[];
  readonly engines = new Map<string, Engine>();
  readonly replicas: Replica[] = [];
  #started = 0;
  #hasPlain = false;

  constructor(cluster: Cluster, parameters: Parameters) {
    this.cluster = cluster;
    this.parameters = parameters;
    this.manifests = builtFiles(parameters).flatMap(({ objects }) => objects as unknown as KubeData[]);
  }

  /** The Service by which istiod knows the pool's pods. */
  get service(): string {
    return this.parameters.attach === 'service' ? this.parameters.pool.name : shadowService(this.parameters.pool.name);
  }

  async apply(): Promise<void> {
    const [namespaces, others] = [true, false].map((wanted) =>
      this.manifests.filter(({ kind }) => (kind === 'Namespace') === wanted),
    );
    await this.cluster.kube.apply(namespaces ?? []);
    await this.cluster.kube.apply(others ?? []);
    const account = this.#one('ServiceAccount');
    await mountAccount(this.cluster, account.metadata.namespace ?? '', account.metadata.name);
  }

  #one(kind: string): KubeData {
    const found = this.manifests.find((object) => object.kind === kind);
    if (found === undefined) throw new Error(`the manifests have no ${kind}`);
    return found;
  }

  async startReplica(): Promise<Replica> {
    const number = ++this.#started;
    const replica = await Replica.start(
      this.cluster,
      this.#one('Deployment'),
      `warmpath-${number}`,
      `10.244.1.${number}`,
    );
    this.replicas.push(replica);
    await replica.ready();
    return replica;
  }

  async active(): Promise<Replica> {
    let found: Replica | undefined;
    await until('one replica is active', async () => {
      const states = await Promise.all(
        this.replicas
          .filter(({ process }) => process.isRunning)
          .map(async (replica) => ({ replica, state: await replica.state() })),
      );
      const active = states.filter(({ state }) => state.active);
      found = active[0]?.replica;
      return active.length === 1;
    });
    return found as Replica;
  }

  async pool(): Promise<StateBody['pools'][number]> {
    return (await this.active()).pool(poolName);
  }

  /** An engine that runs, its pod, and what istiod is told of it. */
  async addEngine(name: string, ip: string, annotations: Record<string, string> = {}): Promise<void> {
    this.engines.set(name, await startReplica({ engine: 'H100-8B', host: ip, port: 8000 }));
    await this.cluster.addPod({ name, ip, labels: { app: 'vllm' }, annotations });
    await this.writeSlices();
  }

  async removeEngine(name: string): Promise<void> {
    await this.cluster.removePod(name);
    await this.writeSlices();
    await this.engines.get(name)?.close();
    this.engines.delete(name);
  }

  async writeSlices(): Promise<void> {
    await this.cluster.writeSlices(this.service);
    if (this.#hasPlain) await this.cluster.writeSlices('plain');
  }

  /** A route to the same pods that knows nothing of Warmpath. */
  async applyPlainRoute(host: string): Promise<void> {
    await this.cluster.kube.apply([
      {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'plain', namespace: llm },
        spec: {
          clusterIP: 'None',
          selector: { app: 'vllm' },
          ports: [{ name: 'http', port: 8000, targetPort: 8000, appProtocol: 'http' }],
        },
      },
      {
        apiVersion: 'gateway.networking.k8s.io/v1',
        kind: 'HTTPRoute',
        metadata: { name: 'plain', namespace: llm },
        spec: {
          parentRefs: [{ name: gatewayName }],
          hostnames: [host],
          rules: [{ backendRefs: [{ name: 'plain', port: 8000 }], timeouts: { request: '0s' } }],
        },
      },
    ]);
    this.#hasPlain = true;
  }

  async ask(
    prompt: string,
    more: { host?: string; turn?: string; headers?: Record<string, string> } = {},
  ): Promise<Answer> {
    const { host = 'llm.example', turn = 'hello', headers = {} } = more;
    const {
      statusCode,
      headers: answered,
      body,
    } = await request(`${gatewayUrl}/v1/chat/completions`, {
      method: 'POST',
      headers: { host, 'content-type': 'application/json', ...headers },
      body: JSON.stringify({
        model: 'sim-8b',
        max_tokens: 2,
        messages: [
          { role: 'system', content: prompt },
          { role: 'user', content: turn },
        ],
      }),
      signal: AbortSignal.timeout(20_000),
    });
    return { status: statusCode, pod: String(answered['x-warmpath-sim-pod'] ?? ''), text: await body.text() };
  }

  async get(path: string, host = 'llm.example'): Promise<{ statusCode: number; text: string }> {
    const { statusCode, body } = await request(`${gatewayUrl}${path}`, { headers: { host } });
    return { statusCode, text: await body.text() };
  }

  /** Until the gateway has so many pods in its cluster, and in its filter, and picks among them. */
  async gatewayKnows(endpoints: number): Promise<void> {
    const waitMs = 60_000;
    await until(
      `the control plane knows ${endpoints} endpoints and the gateway`,
      async () => {
        const pool = await this.pool();
        return pool.endpoints.length === endpoints && pool.gateways.some(({ live }) => live);
      },
      waitMs,
    );
    await until(
      `Envoy knows ${endpoints} endpoints`,
      async () => {
        const { host, port } = poolHost(this.parameters);
        const stats = (await this.cluster.gateway?.stats(`${host}.*membership_healthy`)) ?? {};
        return Object.entries(stats).some(([name, value]) => name.includes(`|${port}|`) && value === endpoints);
      },
      waitMs,
    );
    await until(
      'a request is picked for and answered',
      async () => {
        const before = await this.picks();
        const { status } = await this.ask('is anybody there');
        return status === 200 && (await this.picks()) > before;
      },
      waitMs,
    );
  }

  /** Picks that the filter has made so far. */
  async picks(): Promise<number> {
    const stats = (await this.cluster.gateway?.stats('warmpath_picks_total')) ?? {};
    return Object.values(stats).reduce((sum, value) => sum + value, 0);
  }

  async stop(): Promise<void> {
    for (const replica of this.replicas) await replica.process.stop();
    await this.cluster.stop();
    for (const engine of this.engines.values()) await engine.close();
  }
}
