// A cluster as Warmpath finds it: API server, istiod, a Gateway with a real Envoy, engines with their pods. The test does what kubelet and the
// controllers would: it writes pods' status and the EndpointSlices of Services.

import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { ApiServer } from './apiserver.ts';
import type { KubeClient, KubeData } from './client.ts';
import { ensureComponents } from './components.ts';
import type { Components } from './components.ts';
import { inferencePoolDefinitions } from './inference-pool.ts';
import { GatewayEnvoy, startIstiod, writeKubeconfig } from './istiod.ts';
import type { LabProcess } from './process.ts';

export const llm = 'llm';
export const gatewayName = 'inference-gateway';
export const gatewayIp = '10.244.0.5';
export const gatewayPort = 18_080;

export interface PodOptions {
  name: string;
  ip: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ports?: number[];
  isReady?: boolean;
  namespace?: string;
}

interface PodObject extends KubeData {
  spec: { containers: { name: string; ports: { containerPort: number }[] }[] };
  status?: { podIP?: string; conditions?: { type: string; status: string }[] };
}
interface ServiceObject extends KubeData {
  spec: {
    selector?: Record<string, string>;
    ports: { name?: string; port: number; targetPort: number; protocol?: string; appProtocol?: string }[];
  };
}

export function podObject(name: string, namespace = llm): KubeData {
  return { apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace } };
}

export class Cluster {
  readonly folder: string;
  readonly api: ApiServer;
  readonly kube: KubeClient;
  readonly #components: Components;
  istiod: LabProcess | null = null;
  gateway: GatewayEnvoy | null = null;

  private constructor(folder: string, components: Components) {
    this.folder = folder;
    this.#components = components;
    this.api = new ApiServer(join(folder, 'kubernetes'), components);
    this.kube = this.api.client;
  }

  /** An API server with the definitions of all kinds, and the namespaces. */
  static async start(folder: string): Promise<Cluster> {
    mkdirSync(folder, { recursive: true });
    const cluster = new Cluster(folder, await ensureComponents());
    // What is left running would be taken for its own by the next test.
    await cluster.#begin().catch(async (error: unknown) => {
      await cluster.stop();
      throw error;
    });
    return cluster;
  }

  async #begin(): Promise<void> {
    await this.api.start();
    const documents = this.#components.definitions.flatMap((file) => parseAllDocuments(readFileSync(file, 'utf8')));
    const definitions = documents.map((document) => document.toJS() as KubeData | null);
    const crds = definitions.filter((one): one is KubeData => one?.kind === 'CustomResourceDefinition');
    await Promise.all([...crds, ...inferencePoolDefinitions].map(async (crd) => this.kube.apply([crd])));
    const namespace = (name: string): KubeData => ({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    await this.kube.apply([namespace('istio-system'), namespace(llm)]);
  }

  /** istiod and a Gateway whose pod is a real Envoy. */
  async startMesh(envoyVersion?: string): Promise<void> {
    const gatewayLabels = { 'gateway.networking.k8s.io/gateway-name': gatewayName };
    await this.kube.apply([
      {
        apiVersion: 'gateway.networking.k8s.io/v1',
        kind: 'GatewayClass',
        metadata: { name: 'istio' },
        spec: { controllerName: 'istio.io/gateway-controller' },
      },
      {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'gateway', namespace: llm },
        spec: { selector: gatewayLabels, ports: [{ name: 'http', port: 80, targetPort: gatewayPort }] },
      },
      {
        apiVersion: 'gateway.networking.k8s.io/v1',
        kind: 'Gateway',
        metadata: { name: gatewayName, namespace: llm },
        spec: {
          gatewayClassName: 'istio',
          addresses: [{ type: 'Hostname', value: `gateway.${llm}.svc.cluster.local` }],
          listeners: [{ name: 'http', port: 80, protocol: 'HTTP', allowedRoutes: { namespaces: { from: 'Same' } } }],
        },
      },
    ]);
    await this.addPod({ name: `${gatewayName}-0`, ip: gatewayIp, labels: gatewayLabels, ports: [gatewayPort] });
    await this.writeSlices('gateway');
    const kubeconfig = writeKubeconfig(join(this.folder, 'admin.kubeconfig'), this.api, 'admin-token-of-the-lab');
    this.istiod = startIstiod(join(this.folder, 'istiod'), this.#components, kubeconfig);
    await this.istiod.until('istiod is ready', async () => (await fetch('http://127.0.0.1:15080/ready')).ok);
    const identity = { namespace: llm, name: gatewayName, ip: gatewayIp };
    this.gateway = await GatewayEnvoy.start(join(this.folder, 'gateway'), identity, envoyVersion);
  }

  /** A pod that runs at an address, as the kubelet would report it. */
  async addPod(options: PodOptions): Promise<KubeData> {
    const { name, ip, labels = {}, annotations = {}, ports = [8000], isReady = true, namespace = llm } = options;
    const created = await this.kube.create({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace, labels, annotations },
      spec: {
        nodeName: 'node',
        containers: [{ name: 'engine', image: 'engine', ports: ports.map((containerPort) => ({ containerPort })) }],
      },
    });
    await this.setStatus(name, { ip, isReady, namespace });
    return created;
  }

  async setStatus(
    name: string,
    status: { ip?: string; isReady?: boolean; restarts?: number; namespace?: string },
  ): Promise<void> {
    const { ip, isReady, restarts = 0, namespace = llm } = status;
    const state = { running: { startedAt: new Date().toISOString() } };
    await this.kube.patch(
      podObject(name, namespace),
      {
        status: {
          phase: 'Running',
          ...(ip === undefined ? {} : { podIP: ip, podIPs: [{ ip }] }),
          ...(isReady === undefined ? {} : { conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False' }] }),
          containerStatuses: [
            { name: 'engine', image: 'engine', imageID: '', restartCount: restarts, ready: isReady ?? true, state },
          ],
        },
      },
      '/status',
    );
  }

  /** Removes a pod; with a grace period it stays, terminating, until it is removed without one. */
  async removePod(name: string, graceSeconds = 0, namespace = llm): Promise<void> {
    await this.kube.remove(podObject(name, namespace), graceSeconds);
  }

  /** Writes the EndpointSlices of a Service from the pods that it selects, as the controller would. */
  async writeSlices(service: string, namespace = llm): Promise<void> {
    const { spec } = await this.kube.get<ServiceObject>('v1', 'Service', namespace, service);
    const selector = Object.entries(spec.selector ?? {}).map(([key, value]) => `${key}=${value}`);
    const query = `labelSelector=${encodeURIComponent(selector.join(','))}`;
    const pods = await this.kube.list<PodObject>('v1', 'Pod', namespace, query);
    for (const addressType of ['IPv4', 'IPv6'] as const) {
      const members = pods.filter(({ status }) => status?.podIP && isIPv6(status.podIP) === (addressType === 'IPv6'));
      if (members.length === 0 && addressType === 'IPv6') continue;
      await this.kube.apply([
        {
          apiVersion: 'discovery.k8s.io/v1',
          kind: 'EndpointSlice',
          metadata: {
            name: `${service}-${addressType.toLowerCase()}`,
            namespace,
            labels: { 'kubernetes.io/service-name': service },
          },
          addressType,
          ports: spec.ports.map(({ name = '', targetPort, protocol = 'TCP', appProtocol }) => ({
            name,
            port: targetPort,
            protocol,
            ...(appProtocol === undefined ? {} : { appProtocol }),
          })),
          endpoints: members.map(({ metadata, status }) => {
            const isReady = (status?.conditions ?? []).some((one) => one.type === 'Ready' && one.status === 'True');
            const isTerminating = metadata.deletionTimestamp !== undefined;
            return {
              addresses: [status?.podIP],
              conditions: { ready: isReady && !isTerminating, serving: isReady, terminating: isTerminating },
              nodeName: 'node',
              targetRef: { kind: 'Pod', name: metadata.name, namespace },
            };
          }),
        },
      ]);
    }
  }

  async stop(): Promise<void> {
    await this.gateway?.stop();
    await this.istiod?.stop();
    await this.api.stop();
    // WARMPATH_KUBE_KEEP=1 leaves the logs of all processes for whoever looks for a reason.
    if (!process.env['WARMPATH_KUBE_KEEP']) rmSync(this.folder, { recursive: true, force: true });
  }
}
