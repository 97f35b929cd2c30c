// A real istiod over the lab's API server, and a stock Envoy that takes its configuration from it as a gateway's would. Istio's own Envoy comes as a
// container image only, so what stock Envoy does not have (Istio's metadata exchange and ALPN filters) is switched off in istiod.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureEnvoy } from '../../../envoy/fetch.ts';
import { filterLagMs } from '../../../envoy/run.ts';
import type { ApiServer } from './apiserver.ts';
import type { Components } from './components.ts';
import { LabProcess } from './process.ts';

const xdsPort = 15_010;
const adminPort = 15_000;

const mesh = {
  defaultConfig: { discoveryAddress: `127.0.0.1:${xdsPort}` },
  trustDomain: 'cluster.local',
  rootNamespace: 'istio-system',
  enableAutoMtls: false,
};

export function startIstiod(folder: string, components: Components, kubeconfig: string): LabProcess {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'mesh.yaml'), JSON.stringify(mesh));
  writeFileSync(join(folder, 'networks.yaml'), '{}');
  const ports = {
    httpAddr: 15_080,
    httpsAddr: 15_017,
    grpcAddr: xdsPort,
    secureGRPCAddr: 15_012,
    monitoringAddr: 15_014,
  };
  return new LabProcess(
    folder,
    'istiod',
    components.istiod,
    [
      'discovery',
      `--kubeconfig=${kubeconfig}`,
      `--meshConfig=${join(folder, 'mesh.yaml')}`,
      `--networksConfig=${join(folder, 'networks.yaml')}`,
      '--ctrlz_port=0',
      '--caCertFile=',
      ...Object.entries(ports).map(([name, port]) => `--${name}=127.0.0.1:${port}`),
    ],
    {
      POD_NAMESPACE: 'istio-system',
      POD_NAME: 'istiod-lab',
      SERVICE_ACCOUNT: 'istiod',
      CLUSTER_ID: 'Kubernetes',
      REVISION: 'default',
      ENABLE_GATEWAY_API_INFERENCE_EXTENSION: 'true',
      PILOT_ENABLE_METADATA_EXCHANGE: 'false',
      PILOT_ENABLE_ALPN_FILTER: 'false',
      PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER: 'false',
      INJECT_ENABLED: 'false',
      VALIDATION_WEBHOOK_CONFIG_NAME: '',
      INJECTION_WEBHOOK_CONFIG_NAME: '',
      UNSAFE_ENABLE_ADMIN_ENDPOINTS: 'true',
      ENABLE_DEBUG_ON_HTTP: 'true',
    },
  );
}

/** A kubeconfig with a token. */
export function writeKubeconfig(path: string, server: ApiServer, token: string): string {
  const name = 'lab';
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': name,
    clusters: [{ name, cluster: { server: server.url, 'insecure-skip-tls-verify': true } }],
    users: [{ name, user: { token } }],
    contexts: [{ name, context: { cluster: name, user: name } }],
  };
  writeFileSync(path, JSON.stringify(config));
  return path;
}

export interface GatewayIdentity {
  namespace: string;
  /** Name of the Gateway. */
  name: string;
  /** Address of the gateway's pod, which is where it listens. */
  ip: string;
}

export class GatewayEnvoy {
  readonly adminUrl = `http://127.0.0.1:${adminPort}`;
  readonly process: LabProcess;

  private constructor(process: LabProcess) {
    this.process = process;
  }

  static async start(
    folder: string,
    { namespace, name, ip }: GatewayIdentity,
    version?: string,
  ): Promise<GatewayEnvoy> {
    mkdirSync(folder, { recursive: true });
    const ads = { ads: {}, resource_api_version: 'V3' };
    const http2 = { explicit_http_config: { http2_protocol_options: {} } };
    const options = 'envoy.extensions.upstreams.http.v3.HttpProtocolOptions';
    const bootstrap = {
      node: {
        id: `router~${ip}~${name}-0.${namespace}~${namespace}.svc.cluster.local`,
        cluster: `${name}.${namespace}`,
        metadata: {
          NAMESPACE: namespace,
          CLUSTER_ID: 'Kubernetes',
          ISTIO_VERSION: '1.31.0',
          SERVICE_ACCOUNT: `${name}-istio`,
          LABELS: { 'gateway.networking.k8s.io/gateway-name': name },
        },
      },
      admin: { address: { socket_address: { address: '127.0.0.1', port_value: adminPort } } },
      dynamic_resources: {
        ads_config: {
          api_type: 'DELTA_GRPC',
          transport_api_version: 'V3',
          set_node_on_first_message_only: true,
          grpc_services: [{ envoy_grpc: { cluster_name: 'xds-grpc' } }],
        },
        lds_config: ads,
        cds_config: ads,
      },
      static_resources: {
        clusters: [
          {
            name: 'xds-grpc',
            type: 'STATIC',
            connect_timeout: '1s',
            typed_extension_protocol_options: { [options]: { '@type': `type.googleapis.com/${options}`, ...http2 } },
            load_assignment: {
              cluster_name: 'xds-grpc',
              endpoints: [
                {
                  lb_endpoints: [
                    { endpoint: { address: { socket_address: { address: '127.0.0.1', port_value: xdsPort } } } },
                  ],
                },
              ],
            },
          },
        ],
      },
    };
    const path = join(folder, 'bootstrap.json');
    writeFileSync(path, JSON.stringify(bootstrap));
    const flags = ['-c', path, '--concurrency', '2', '--use-dynamic-base-id', '--log-level', 'warning'];
    const binary = await ensureEnvoy(version);
    const gateway = new GatewayEnvoy(
      new LabProcess(folder, 'envoy', binary, [...flags, '--component-log-level', 'wasm:info']),
    );
    await gateway.process.until('Envoy is ready', async () => (await fetch(`${gateway.adminUrl}/ready`)).ok);
    return gateway;
  }

  /** Counters and gauges whose name matches `part`; the filter's are told at its ticks, which are waited for. */
  async stats(part: string): Promise<Record<string, number>> {
    if (part.startsWith('warmpath_')) await sleep(filterLagMs);
    const response = await fetch(`${this.adminUrl}/stats?format=json&filter=${encodeURIComponent(part)}`);
    const { stats } = (await response.json()) as { stats: { name: string; value?: number }[] };
    return Object.fromEntries(stats.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])));
  }

  async configuration(): Promise<string> {
    return (await fetch(`${this.adminUrl}/config_dump?include_eds`)).text();
  }

  async stop(): Promise<void> {
    await this.process.stop();
  }
}
