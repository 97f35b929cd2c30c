// A real etcd and a real kube-apiserver, with service accounts, RBAC and an audit log. No controller runs beside them: what controllers would
// write, the tests write.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { KubeClient } from './client.ts';
import type { Components } from './components.ts';
import { LabProcess } from './process.ts';

const adminToken = 'admin-token-of-the-lab';
const securePort = 6443;
const etcdPort = 2379;

/** Secrets stay out of the log; everything else that a service account asks for is in it. */
const auditPolicy = {
  apiVersion: 'audit.k8s.io/v1',
  kind: 'Policy',
  omitStages: ['RequestReceived'],
  rules: [{ level: 'Metadata', userGroups: ['system:serviceaccounts'] }, { level: 'None' }],
};

export interface AuditEvent {
  stage: string;
  verb: string;
  user: { username: string };
  objectRef?: { resource: string; subresource?: string; namespace?: string; name?: string; apiGroup?: string };
  responseStatus?: { code: number };
  requestReceivedTimestamp: string;
}

export class ApiServer {
  readonly host = '127.0.0.1';
  readonly port = securePort;
  readonly url = `https://127.0.0.1:${securePort}`;
  readonly client = new KubeClient(this.url, adminToken);
  readonly #folder: string;
  readonly #components: Components;
  #etcd: LabProcess | null = null;
  #server: LabProcess | null = null;

  constructor(folder: string, components: Components) {
    this.#folder = folder;
    this.#components = components;
  }

  get caPath(): string {
    return join(this.#folder, 'certificates', 'apiserver.crt');
  }

  async start(): Promise<void> {
    if (await answers(this.url)) throw new Error(`${this.url} is answered already: a cluster was left running`);
    mkdirSync(this.#folder, { recursive: true });
    const key = join(this.#folder, 'account.key');
    if (!existsSync(key)) {
      execFileSync('openssl', ['genrsa', '-out', key, '2048'], { stdio: 'ignore' });
      execFileSync('openssl', ['rsa', '-in', key, '-pubout', '-out', `${key}.pub`], { stdio: 'ignore' });
      writeFileSync(join(this.#folder, 'tokens.csv'), `${adminToken},admin,admin,"system:masters"\n`);
      writeFileSync(join(this.#folder, 'audit.yaml'), JSON.stringify(auditPolicy));
    }
    await this.startEtcd();
    await this.startServer();
  }

  async startEtcd(): Promise<void> {
    const client = `http://127.0.0.1:${etcdPort}`;
    const peer = `http://127.0.0.1:${etcdPort + 1}`;
    this.#etcd = new LabProcess(this.#folder, 'etcd', this.#components.etcd, [
      `--data-dir=${join(this.#folder, 'etcd-data')}`,
      '--unsafe-no-fsync',
      '--log-level=warn',
      `--listen-client-urls=${client}`,
      `--advertise-client-urls=${client}`,
      `--listen-peer-urls=${peer}`,
      `--initial-advertise-peer-urls=${peer}`,
      `--initial-cluster=default=${peer}`,
    ]);
    await this.#etcd.until('etcd answers', async () => (await fetch(`${client}/health`)).ok);
  }

  async startServer(flags: string[] = []): Promise<void> {
    const file = (name: string): string => join(this.#folder, name);
    this.#server = new LabProcess(this.#folder, 'kube-apiserver', this.#components.apiserver, [
      `--etcd-servers=http://127.0.0.1:${etcdPort}`,
      '--bind-address=127.0.0.1',
      '--advertise-address=127.0.0.1',
      `--secure-port=${securePort}`,
      `--cert-dir=${file('certificates')}`,
      '--service-cluster-ip-range=10.96.0.0/16',
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-key-file=${file('account.key.pub')}`,
      `--service-account-signing-key-file=${file('account.key')}`,
      `--token-auth-file=${file('tokens.csv')}`,
      '--authorization-mode=RBAC',
      '--disable-admission-plugins=ServiceAccount',
      `--audit-policy-file=${file('audit.yaml')}`,
      `--audit-log-path=${file('audit.log')}`,
      '--audit-log-mode=blocking',
      '--profiling=false',
      '--event-ttl=1h',
      ...flags,
    ]);
    await this.#server.until('the API server is ready', async () => {
      return (await this.client.request<string>('GET', '/readyz')) === 'ok';
    });
  }

  /** As a crash: every connection breaks at once. */
  async killServer(): Promise<void> {
    await this.#server?.kill();
  }

  /** As in an update: watches are ended, requests under way are answered. */
  async stopServer(): Promise<void> {
    await this.#server?.stop(60_000);
  }

  /** It accepts connections and answers nothing. */
  pauseServer(): void {
    this.#server?.signal('SIGSTOP');
  }

  resumeServer(): void {
    this.#server?.signal('SIGCONT');
  }

  /** Forgets all versions of objects but the newest, so that older watches cannot be taken up. */
  async compactEtcd(): Promise<void> {
    const post = async (path: string, body: object): Promise<{ header: { revision: string } }> => {
      const response = await fetch(`http://127.0.0.1:${etcdPort}${path}`, {
        method: 'POST',
        body: JSON.stringify(body),
      });
      if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
      return (await response.json()) as { header: { revision: string } };
    };
    const { header } = await post('/v3/kv/range', { key: Buffer.from('x').toString('base64') });
    await post('/v3/kv/compaction', { revision: header.revision, physical: true });
  }

  /** A token of a service account, as a pod gets it. */
  async serviceAccountToken(namespace: string, name: string): Promise<string> {
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`;
    const request = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: { expirationSeconds: 86_400 },
    };
    return (await this.client.request<{ status: { token: string } }>('POST', path, request)).status.token;
  }

  /** What service accounts asked for so far. */
  audit(): AuditEvent[] {
    return readFileSync(join(this.#folder, 'audit.log'), 'utf8')
      .split('\n')
      .filter((line) => line.endsWith('}'))
      .map((line) => JSON.parse(line) as AuditEvent);
  }

  async stop(): Promise<void> {
    await this.#server?.stop();
    await this.#etcd?.stop();
  }
}

async function answers(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}
