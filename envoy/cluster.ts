// Clusters: one a pool, whose hosts are the pods, and one for the control plane.

import { circuitBreakers, leastRequest, outlierDetection, overrideHostPolicy } from './chain.ts';
import { controlPlaneCluster, typed } from './names.ts';

export type Balancing = 'override-host' | 'least-request' | 'round-robin';

export interface PoolOptions {
  /** Name of the cluster, which is the pool's name to the filter. */
  name: string;
  /** `ip:port`, IPv6 in brackets. */
  endpoints: string[];
  /** `override-host` obeys the filter's pick and falls back to least request. */
  balancing: Balancing;
}

const roundRobin = {
  name: 'envoy.load_balancing_policies.round_robin',
  typed_config: typed('envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin'),
};

function balancingPolicy(balancing: Balancing): object {
  if (balancing === 'override-host') return overrideHostPolicy();
  return { policies: [{ typed_extension_config: balancing === 'least-request' ? leastRequest : roundRobin }] };
}

/** Splits `ip:port`; throws on anything else, since a cluster takes addresses and resolves nothing. */
export function socketAddress(endpoint: string): { address: string; port_value: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|(\d+\.\d+\.\d+\.\d+)):(\d{1,5})$/.exec(endpoint);
  const port = Number(match?.[3]);
  if (!match || port < 1 || port > 65_535) throw new Error(`an endpoint is ip:port, but this is "${endpoint}"`);
  return { address: (match[1] ?? match[2])!, port_value: port };
}

export function poolCluster(pool: PoolOptions): object {
  return {
    ...staticCluster(pool.name, pool.endpoints),
    load_balancing_policy: balancingPolicy(pool.balancing),
    circuit_breakers: circuitBreakers(),
    outlier_detection: outlierDetection(),
  };
}

export interface ControlPlaneOptions {
  host: string;
  port: number;
}

export function controlPlane({ host, port }: ControlPlaneOptions): object {
  return staticCluster(controlPlaneCluster, [`${host.includes(':') ? `[${host}]` : host}:${port}`]);
}

function staticCluster(name: string, endpoints: string[]): object {
  return {
    name,
    type: 'STATIC',
    connect_timeout: '1s',
    load_assignment: {
      cluster_name: name,
      endpoints: [
        {
          lb_endpoints: endpoints.map((endpoint) => ({
            endpoint: { address: { socket_address: socketAddress(endpoint) } },
          })),
        },
      ],
    },
    typed_extension_protocol_options: {
      'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': typed(
        'envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
        {
          explicit_http_config: { http_protocol_options: {} },
          // Shorter than the 5 s of uvicorn and of Node, so that the gateway closes idle connections first and no request
          // meets one that the engine is about to close.
          common_http_protocol_options: { idle_timeout: '4s' },
        },
      ),
    },
  };
}
