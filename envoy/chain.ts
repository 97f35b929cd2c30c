// The chain that picks, written once for a gateway of our own (listener.ts) and for a gateway of Istio (cli/manifests):
//
//   wasm            watches the body go by and leaves its pick in filter state; never pauses
//   warmpath.hold   Envoy's buffer filter; off, but on for the LLM routes: Envoy holds the headers until the body is whole
//   warmpath.steer  removes the client's own destination header, then writes the pick from filter state
//   router          to a cluster with override_host
//
// Here is what stands around the filter: the two filters, what an LLM route carries, and how its cluster balances.

import { destinationHeader, pickState, typed, servedHeader } from './names.ts';

export const holdFilterName = 'warmpath.hold';
export const steerFilterName = 'warmpath.steer';

export const requestBytesMaxDefault = 64 << 20;
export const retriesDefault = 2;
// Longer than any answer that is not streamed and worth waiting for: whoever is silent for longer is dead.
export const idleTimeoutMsDefault = 900_000;

/** Off unless a route carries `holdOnRoute`: a websocket or a client's stream on a held route would hang. */
export function holdFilter(requestBytesMax: number): object {
  return {
    name: holdFilterName,
    disabled: true,
    typed_config: typed('envoy.extensions.filters.http.buffer.v3.Buffer', { max_request_bytes: requestBytesMax }),
  };
}

/** What turns the hold on, in a route's typed_per_filter_config. Bodies over the bound are answered 413. */
export function holdOnRoute(requestBytesMax: number): Record<string, object> {
  return {
    [holdFilterName]: typed('envoy.extensions.filters.http.buffer.v3.BufferPerRoute', {
      buffer: { max_request_bytes: requestBytesMax },
    }),
  };
}

export function steerFilter(): object {
  return {
    name: steerFilterName,
    typed_config: typed('envoy.extensions.filters.http.header_mutation.v3.HeaderMutation', {
      mutations: {
        request_mutations: [
          { remove: destinationHeader },
          {
            append: {
              header: { key: destinationHeader, value: `%FILTER_STATE(${pickState}:PLAIN)%` },
              append_action: 'OVERWRITE_IF_EXISTS_OR_ADD',
            },
          },
        ],
        response_mutations: [
          {
            append: {
              header: { key: servedHeader, value: '%UPSTREAM_REMOTE_ADDRESS%' },
              append_action: 'OVERWRITE_IF_EXISTS_OR_ADD',
            },
          },
        ],
      },
    }),
  };
}

/** A duration as Envoy's configuration has it. */
export const seconds = (ms: number): string => `${ms / 1000}s`;

/**
 * As long as nothing was answered a generation can be asked for again: it changes nothing, and the client has seen nothing. A pod
 * that dies takes its requests along by reset; one whose engine has died answers 500 until it is restarted, to requests that
 * are not to blame; 502 and 503 say that it cannot serve now. A request that kills what serves it reaches three pods at most.
 */
export function retryPolicy(retries = retriesDefault, tryTimeoutMs?: number): object {
  return {
    retry_on: 'reset,connect-failure,refused-stream,retriable-status-codes',
    retriable_status_codes: [500, 502, 503],
    num_retries: retries,
    ...(tryTimeoutMs === undefined ? {} : { per_try_timeout: seconds(tryTimeoutMs) }),
    // The retry goes to the next host of the pick; when the fallback has to choose, it leaves out those already tried.
    retry_host_predicate: [
      {
        name: 'envoy.retry_host_predicates.previous_hosts',
        typed_config: typed('envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate'),
      },
    ],
    // Least request prefers the idle host that has just refused to the busy one that would serve: with three hosts it offers
    // the right one in one of nine attempts.
    host_selection_retry_max_attempts: 100,
    retry_back_off: { base_interval: '0.005s', max_interval: '0.05s' },
  };
}

export const leastRequest = {
  name: 'envoy.load_balancing_policies.least_request',
  typed_config: typed('envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest'),
};

/** Obeys the pick; without one, or when none of its hosts is left, balances by least request. */
export function overrideHostPolicy(): object {
  const overrideHost = typed('envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost', {
    override_host_sources: [{ header: destinationHeader }],
    fallback_policy: { policies: [{ typed_extension_config: leastRequest }] },
  });
  return {
    policies: [
      { typed_extension_config: { name: 'envoy.load_balancing_policies.override_host', typed_config: overrideHost } },
    ],
  };
}

/**
 * For balancing without the filter's knowledge, which needs none of this: what the filter picks is taken whatever is ejected. A pod
 * that cannot be reached is left alone for a while, and so is one that answers nearly everything by an error: failing at once
 * makes it look idle, and least request would send it most. A 503 now and then of a full queue says only that it is busy.
 */
export function outlierDetection(): object {
  return {
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
  };
}

/** An engine under load refuses by 503, so the breakers of Envoy, made for short requests, must not come first. */
export function circuitBreakers(): object {
  const unlimited = 1_000_000;
  return {
    thresholds: [
      {
        max_connections: unlimited,
        max_pending_requests: unlimited,
        max_requests: unlimited,
        max_retries: unlimited,
      },
    ],
  };
}
