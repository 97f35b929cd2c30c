// A listener and its filter chain: around the filter (chain.ts), and for comparison around a filter that does nothing (`empty`), the router
// alone (`plain`), or behind an endpoint picker (`picker`, picker.ts).

import {
  holdFilter,
  holdOnRoute,
  idleTimeoutMsDefault,
  requestBytesMaxDefault,
  retryPolicy,
  seconds,
  steerFilter,
} from './chain.ts';
import { askedHeaders, attemptsHeader, heldPaths, subsetHint, typed, upstreamHeader } from './names.ts';
import { pickerBufferBytes, pickerFilter } from './picker.ts';

export type Chain = 'warmpath' | 'empty' | 'plain' | 'picker';
/**
 * What Envoy does after the filter trapped. `reload` makes a new VM; requests that come before it is there get 503. `open` goes on
 * without the filter until the configuration changes; `closed` answers 503 to all.
 */
export type FailurePolicy = 'reload' | 'open' | 'closed';

export interface ListenerOptions {
  name: string;
  host?: string;
  port: number;
  /** The pool's cluster. */
  cluster: string;
  chain: Chain;
  /** The filter's module; needed when the chain is `warmpath` or `empty`. */
  wasmPath?: string;
  /** Configuration of the filter: text as it is, anything else as JSON. */
  pluginConfig?: object | string;
  /** Name of the plugin, by which the filter keeps its state apart; the listener's name if left out. */
  pluginName?: string;
  failurePolicy?: FailurePolicy;
  environment?: Record<string, string>;
  /** Bodies over this are answered 413 on the held routes. Twice the largest body that must be retryable. */
  requestBytesMax?: number;
  retries?: number;
  /** How many redirects (307 and 308) Envoy follows itself; without it the client follows them. */
  redirects?: number;
  /** After so long without any answer Envoy tries the next pod; without it a try has no limit of its own. */
  tryTimeoutMs?: number;
  /** After so long without a byte in either direction Envoy gives a request on a held route up; 15 minutes if left out. */
  idleTimeoutMs?: number;
  /** Pods that all requests are bound to, as another filter of a gateway would say it in metadata: addresses with commas between, or a list. */
  subset?: string | string[];
  /** Whether responses name their pod's address, and how many pods were tried. */
  showUpstream?: boolean;
  /** A file for one line a request; none is written without it. */
  accessLogPath?: string;
}

const failurePolicies: Record<FailurePolicy, string> = {
  reload: 'FAIL_RELOAD',
  open: 'FAIL_OPEN',
  closed: 'FAIL_CLOSED',
};

export function listener(options: ListenerOptions): object {
  const manager = typed('envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', {
    stat_prefix: options.name,
    // A long answer is not an idle stream, and a prompt may wait in the engine's queue.
    stream_idle_timeout: '0s',
    // Websockets pass, over HTTP/2 by extended CONNECT, as Istio's gateways let them.
    upgrade_configs: [{ upgrade_type: 'websocket' }],
    http2_protocol_options: { allow_connect: true },
    access_log: accessLog(options.accessLogPath),
    route_config: routes(options),
    http_filters: httpFilters(options),
  });
  return {
    name: options.name,
    address: { socket_address: { address: options.host ?? '127.0.0.1', port_value: options.port } },
    ...(options.chain === 'picker' ? { per_connection_buffer_limit_bytes: pickerBufferBytes } : {}),
    filter_chains: [{ filters: [{ name: 'envoy.filters.network.http_connection_manager', typed_config: manager }] }],
  };
}

function httpFilters(options: ListenerOptions): object[] {
  const router = {
    name: 'envoy.filters.http.router',
    typed_config: typed('envoy.extensions.filters.http.router.v3.Router'),
  };
  if (options.chain === 'plain') return [router];
  if (options.chain === 'picker') return [pickerFilter(), router];
  return [...subset(options), wasm(options), holdFilter(bytesMax(options)), steerFilter(), router];
}

function subset({ subset: value }: ListenerOptions): object[] {
  if (value === undefined) return [];
  const metadata = [{ metadata_namespace: subsetHint.namespace, value: { [subsetHint.key]: value } }];
  const config = typed('envoy.extensions.filters.http.set_metadata.v3.Config', { metadata });
  return [{ name: 'envoy.filters.http.set_metadata', typed_config: config }];
}

function wasm(options: ListenerOptions): object {
  if (options.wasmPath === undefined)
    throw new Error(`listener ${options.name} needs wasmPath for the chain ${options.chain}`);
  const { pluginConfig = '', environment } = options;
  const value = typeof pluginConfig === 'string' ? pluginConfig : JSON.stringify(pluginConfig);
  return {
    name: 'envoy.filters.http.wasm',
    typed_config: typed('envoy.extensions.filters.http.wasm.v3.Wasm', {
      config: {
        name: options.pluginName ?? options.name,
        failure_policy: failurePolicies[options.failurePolicy ?? 'reload'],
        // A trap loses the trapping request and the worker's other streams under any policy. A new VM is there within
        // milliseconds if asked for at once, while the default back-off answers 503 for a second, and `open` never picks again.
        ...(options.failurePolicy === undefined || options.failurePolicy === 'reload'
          ? { reload_config: { backoff: { base_interval: '0.01s', max_interval: '0.1s' } } }
          : {}),
        configuration: typed('google.protobuf.StringValue', { value }),
        vm_config: {
          // Empty as in Istio: plugins with the same code share one VM and one store of shared data.
          vm_id: '',
          runtime: 'envoy.wasm.runtime.v8',
          code: { local: { filename: options.wasmPath } },
          ...(environment ? { environment_variables: { key_values: environment } } : {}),
        },
      },
    }),
  };
}

function routes(options: ListenerOptions): object {
  const action = {
    cluster: options.cluster,
    timeout: '0s',
    retry_policy: retryPolicy(options.retries, options.tryTimeoutMs),
    ...(options.redirects === undefined
      ? {}
      : {
          internal_redirect_policy: {
            max_internal_redirects: options.redirects,
            redirect_response_codes: [307, 308],
          },
        }),
  };
  const held = heldPaths.map((path) => ({
    name: path,
    match: { path, headers: [{ name: ':method', string_match: { exact: 'POST' } }] },
    route: { ...action, idle_timeout: seconds(options.idleTimeoutMs ?? idleTimeoutMsDefault) },
    ...(options.chain === 'plain' || options.chain === 'picker'
      ? {}
      : { typed_per_filter_config: holdOnRoute(bytesMax(options)), request_headers_to_remove: askedHeaders }),
  }));
  const shown = [
    [upstreamHeader, '%UPSTREAM_REMOTE_ADDRESS%'],
    [attemptsHeader, '%UPSTREAM_REQUEST_ATTEMPT_COUNT%'],
  ].map(([key, value]) => ({ header: { key, value }, append_action: 'OVERWRITE_IF_EXISTS_OR_ADD' }));
  return {
    name: options.name,
    ...(options.showUpstream ? { response_headers_to_add: shown } : {}),
    virtual_hosts: [
      {
        name: options.name,
        domains: ['*'],
        routes: [...held, { name: 'rest', match: { prefix: '/' }, route: action }],
      },
    ],
  };
}

function accessLog(path: string | undefined): object[] {
  if (path === undefined) return [];
  const line =
    '%START_TIME% %REQ(:METHOD)% %PATH% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% ' +
    '%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %UPSTREAM_REMOTE_ADDRESS% %UPSTREAM_REQUEST_ATTEMPT_COUNT%\n';
  return [
    {
      name: 'envoy.access_loggers.file',
      typed_config: typed('envoy.extensions.access_loggers.file.v3.FileAccessLog', {
        path,
        log_format: { text_format_source: { inline_string: line } },
      }),
    },
  ];
}

function bytesMax(options: ListenerOptions): number {
  return options.requestBytesMax ?? requestBytesMaxDefault;
}
