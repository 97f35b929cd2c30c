// Replicas of the control plane as real processes, started with what the Deployment says: its arguments and its environment, and the files of its
// service account where a pod finds them.

import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { KubeData } from './client.ts';
import type { Cluster } from './cluster.ts';
import { LabProcess } from './process.ts';

const accountFolder = '/var/run/secrets/kubernetes.io/serviceaccount';
const root = join(import.meta.dirname, '..', '..', '..');

interface DeploymentObject extends KubeData {
  metadata: KubeData['metadata'] & { namespace: string };
  spec: {
    template: {
      metadata: { labels: Record<string, string> };
      spec: {
        serviceAccountName: string;
        containers: { args: string[]; env: { name: string; valueFrom: { fieldRef: { fieldPath: string } } }[] }[];
      };
    };
  };
}

interface AnnotationRow {
  key: string;
  value: string | null;
  inForce: string;
  source: string;
  fault: string | null;
}

export interface StateBody {
  epoch: string | null;
  ready: boolean;
  active: boolean;
  replica: { name: string; active: boolean; holder: string | null } | null;
  pools: {
    name: string;
    settingsVersion: number;
    settings: Record<string, unknown>;
    endpoints: {
      endpoint: string;
      podId: number;
      weight: number;
      drain: boolean;
      ready: boolean;
      capacityTokens: number;
      table: { blocks: number };
      metrics: { scrapedMs: number } | null;
    }[];
    gateways: { name: string; live: boolean; reports: number; settingsVersion: number }[];
    object: {
      apiVersion: string | null;
      unusable: string | null;
      selector: string | null;
      annotations: AnnotationRow[];
      pods: { name: string; annotations: AnnotationRow[] }[];
    } | null;
  }[];
}

/** The files that a pod of the account has; in the tests' own mount namespace, so that no other process sees them. */
export async function mountAccount(cluster: Cluster, namespace: string, name: string): Promise<void> {
  mkdirSync(accountFolder, { recursive: true });
  writeFileSync(join(accountFolder, 'token'), await cluster.api.serviceAccountToken(namespace, name));
  writeFileSync(join(accountFolder, 'namespace'), namespace);
  cpSync(cluster.api.caPath, join(accountFolder, 'ca.crt'));
}

export class Replica {
  readonly name: string;
  readonly ip: string;
  readonly namespace: string;
  readonly process: LabProcess;
  readonly #adminPort: number;

  private constructor(name: string, ip: string, namespace: string, process: LabProcess, adminPort: number) {
    this.name = name;
    this.ip = ip;
    this.namespace = namespace;
    this.process = process;
    this.#adminPort = adminPort;
  }

  /** One pod of the Deployment, at an address of its own. */
  static async start(cluster: Cluster, deployment: KubeData, name: string, ip: string): Promise<Replica> {
    const { metadata, spec } = deployment as DeploymentObject;
    const { namespace } = metadata;
    const { labels } = spec.template.metadata;
    const pod = await cluster.addPod({ name, ip, namespace, labels, ports: [8090, 8091] });
    const fields: Record<string, string> = {
      'metadata.name': name,
      'metadata.namespace': namespace,
      'metadata.uid': pod.metadata.uid ?? '',
      'status.podIP': ip,
    };
    const [container] = spec.template.spec.containers;
    if (container === undefined) throw new Error('the Deployment has no container');
    const environment = Object.fromEntries(
      container.env.map(({ name: variable, valueFrom }) => [variable, fields[valueFrom.fieldRef.fieldPath] ?? '']),
    );
    // Pods have an address each; here they share a machine, so each listens on its own.
    const args = container.args.map((argument) => (argument.startsWith('--host=') ? `--host=${ip}` : argument));
    const adminPort = Number(args.find((argument) => argument.startsWith('--admin-port='))?.split('=')[1] ?? 8090);
    const started = new LabProcess(
      join(cluster.folder),
      name,
      process.execPath,
      [join(root, 'bin', 'warmpath.mjs'), ...args],
      {
        ...environment,
        KUBERNETES_SERVICE_HOST: cluster.api.host,
        KUBERNETES_SERVICE_PORT: String(cluster.api.port),
      },
    );
    return new Replica(name, ip, namespace, started, adminPort);
  }

  get adminUrl(): string {
    return `http://${this.ip}:${this.#adminPort}`;
  }

  async state(): Promise<StateBody> {
    const response = await fetch(`${this.adminUrl}/v1/state`, { signal: AbortSignal.timeout(2_000) });
    return (await response.json()) as StateBody;
  }

  async pool(name: string): Promise<StateBody['pools'][number]> {
    const pool = (await this.state()).pools.find((one) => one.name === name);
    if (pool === undefined) throw new Error(`${this.name} does not know ${name}`);
    return pool;
  }

  async metrics(): Promise<string> {
    return (await fetch(`${this.adminUrl}/metrics`)).text();
  }

  async ready(): Promise<void> {
    await this.process.until(`${this.name} is ready`, async () => (await fetch(`${this.adminUrl}/readyz`)).ok);
  }

  /** As the kubelet ends a pod: SIGTERM, then the pod is gone. */
  async stop(cluster: Cluster): Promise<void> {
    await this.process.stop();
    await cluster.removePod(this.name, 0, this.namespace);
  }
}
