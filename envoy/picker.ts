// A gateway that asks an endpoint picker for each request by ext_proc, as llm-d's guide for deployments without Kubernetes sets Envoy up. It is
// only measured against: nothing that Warmpath routes passes here.

import { circuitBreakers } from './chain.ts';
import { socketAddress } from './cluster.ts';
import { destinationHeader, typed } from './names.ts';

/** The cluster of listeners whose chain is `picker`: it goes where the picker's header says, and nowhere without it. */
export const pickedCluster = 'picked';
const pickerCluster = 'picker';

/** As large as the guide has it; the picker gets a body in pieces of this size. */
export const pickerBufferBytes = 32_768;

/** Bodies pass through the picker in both directions: it knows no other mode. */
export function pickerFilter(): object {
  return {
    name: 'envoy.filters.http.ext_proc',
    typed_config: typed('envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor', {
      grpc_service: { envoy_grpc: { cluster_name: pickerCluster, authority: 'localhost' }, timeout: '10s' },
      processing_mode: {
        request_header_mode: 'SEND',
        response_header_mode: 'SEND',
        request_body_mode: 'FULL_DUPLEX_STREAMED',
        response_body_mode: 'FULL_DUPLEX_STREAMED',
        request_trailer_mode: 'SEND',
        response_trailer_mode: 'SEND',
      },
      // The guide's is 1,000 s: a picker that hangs should fail a measurement, not stop it.
      message_timeout: '30s',
    }),
  };
}

/** The picker itself at `ip:port`, and the cluster that obeys it. */
export function pickerClusters(endpoint: string): object[] {
  const protocol = 'envoy.extensions.upstreams.http.v3.HttpProtocolOptions';
  const windows = { initial_stream_window_size: 65_536, initial_connection_window_size: 1_048_576 };
  return [
    {
      name: pickerCluster,
      type: 'STATIC',
      connect_timeout: '1s',
      circuit_breakers: circuitBreakers(),
      load_assignment: {
        cluster_name: pickerCluster,
        endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: socketAddress(endpoint) } } }] }],
      },
      typed_extension_protocol_options: {
        [protocol]: typed(protocol, { explicit_http_config: { http2_protocol_options: windows } }),
      },
    },
    {
      name: pickedCluster,
      type: 'ORIGINAL_DST',
      connect_timeout: '1s',
      lb_policy: 'CLUSTER_PROVIDED',
      circuit_breakers: circuitBreakers(),
      original_dst_lb_config: { use_http_header: true, http_header_name: destinationHeader },
    },
  ];
}
