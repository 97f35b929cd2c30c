// Clusters: one a pool, whose hosts are the pods, and one for the control plane.

import { controlPlaneCluster, destinationHeader, typed } from './names.ts';

export type Balancing = 'override-host' | 'least-request' | 'round-robin';

export interface PoolOptions {
  /** Name of the cluster, which is the pool's name to the filter. */
  name: string;
  /** `ip:port`, IPv6 in brackets. */
  endpoints: string[];
  /** `override-host` obeys the filter's pick and falls back to least request. */
  balancing: Balancing;
}

const policies = {
  'least-request': {
    name: 'envoy.load_balancing_policies.least_request',
    typed_config: typed('envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest'),
  },
  'round-robin': {
    name: 'envoy.load_balancing_policies.round_robin',
    typed_config: typed('envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin'),
  },
};

function balancingPolicy(balancing: Balancing): object {
  if (balancing !== 'override-host') return { policies: [{ typed_extension_config: policies[balancing] }] };
  const overrideHost = typed('envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost', {
    override_host_sources: [{ header: destinationHeader }],
    fallback_policy: { policies: [{ typed_extension_config: policies['least-request'] }] },
  });
  return {
    policies: [
      { typed_extension_config: { name: 'envoy.load_balancing_policies.override_host', typed_config: overrideHost } },
    ],
  };
}

/** Splits `ip:port`; throws on anything else, since a cluster takes addresses and resolves nothing. */
export function socketAddress(endpoint: string): { address: string; port_value: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|(\d+\.\d+\.\d+\.\d+)):(\d{1,5})$/.exec(endpoint);
  const port = Number(match?.[3]);
  if (!match || port < 1 || port > 65_535) throw new Error(`an endpoint is ip:port, but this is "${endpoint}"`);
  return { address: (match[1] ?? match[2])!, port_value: port };
}

export function poolCluster(pool: PoolOptions): object {
  const unlimited = 1_000_000;
  return {
    ...staticCluster(pool.name, pool.endpoints),
    load_balancing_policy: balancingPolicy(pool.balancing),
    // An engine under load refuses by 503, so the breakers of Envoy, made for short requests, must not come first.
    circuit_breakers: {
      thresholds: [
        {
          max_connections: unlimited,
          max_pending_requests: unlimited,
          max_requests: unlimited,
          max_retries: unlimited,
        },
      ],
    },
    // For balancing without the filter's knowledge, which needs none of this: what the filter picks is taken whatever is ejected. A pod
    // that cannot be reached is left alone for a while, and so is one that answers nearly everything by an error: failing at once
    // makes it look idle, and least request would send it most. A 503 now and then of a full queue says only that it is busy.
    outlier_detection: {
      interval: '1s',
      base_ejection_time: '5s',
      max_ejection_percent: 50,
      split_external_local_origin_errors: true,
      consecutive_local_origin_failure: 5,
      enforcing_consecutive_local_origin_failure: 100,
      enforcing_local_origin_success_rate: 0,
      enforcing_consecutive_5xx: 0,
      enforcing_consecutive_gateway_failure: 0,
      enforcing_success_rate: 0,
      failure_percentage_threshold: 95,
      failure_percentage_minimum_hosts: 2,
      failure_percentage_request_volume: 10,
      enforcing_failure_percentage: 100,
      enforcing_failure_percentage_local_origin: 0,
    },
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
