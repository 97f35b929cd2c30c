// What the gateway gets: the filter, and around it the chain of envoy/chain.ts as patches. The hold and the steering stand once in a
// gateway, however many pools it has; the rest is a pool's own.

import {
  circuitBreakers,
  holdFilter,
  holdOnRoute,
  idleTimeoutMsDefault,
  outlierDetection,
  overrideHostPolicy,
  retryPolicy,
  seconds,
  steerFilter,
} from '../../envoy/chain.ts';
import { destinationHeader, statsTags, typed } from '../../envoy/names.ts';
import { kubeObject, type KubeObject, type ManifestFile } from './files.ts';
import { heldRoute, poolCluster, poolHost, poolName, syncCluster, syncHost, syncPort } from './parameters.ts';
import type { Parameters } from './parameters.ts';

const router = 'envoy.filters.http.router';
const extProc = 'envoy.filters.http.ext_proc';
export const feedFilterName = 'warmpath.feed';

/** Patches are applied in this order, so that the filters stand in the order of the chain, whichever object came first. */
const order = { hold: 10, steer: 20, feed: 30, route: 40, cluster: 50 };

export const targetRefs = ({ gateway }: Parameters): object[] => [
  { group: 'gateway.networking.k8s.io', kind: 'Gateway', name: gateway.name },
];

function envoyFilter(parameters: Parameters, name: string, priority: number, configPatches: object[]): KubeObject {
  return kubeObject(
    'networking.istio.io/v1alpha3',
    'EnvoyFilter',
    { name, namespace: parameters.gateway.namespace },
    { spec: { targetRefs: targetRefs(parameters), priority, configPatches } },
  );
}

/** Anchored at the router: every other filter of Istio's chain may be absent or called differently in the next version. */
const beforeRouter = (value: object): object => ({
  applyTo: 'HTTP_FILTER',
  match: {
    context: 'GATEWAY',
    listener: {
      filterChain: {
        filter: { name: 'envoy.filters.network.http_connection_manager', subFilter: { name: router } },
      },
    },
  },
  patch: { operation: 'INSERT_BEFORE', value },
});

export function holdFile(parameters: Parameters): ManifestFile {
  return {
    path: 'base/hold.yaml',
    comment:
      'The hold: Envoy keeps the headers of a request until its body is whole, so that the filter can pick by all of it without ever pausing. ' +
      'It stands in the chain switched off; the routes that need it switch it on (held-routes.yaml).',
    objects: [
      envoyFilter(parameters, `${parameters.name}-hold`, order.hold, [
        beforeRouter(holdFilter(parameters.requestBytesMax)),
      ]),
    ],
  };
}

export function steerFile(parameters: Parameters): ManifestFile {
  return {
    path: 'base/steer.yaml',
    comment:
      "The steering: a client's own destination header is removed, whether the filter lives or not, and the pick that the filter has left is " +
      'written in its place. Without a pick nothing is written.',
    objects: [envoyFilter(parameters, `${parameters.name}-steer`, order.steer, [beforeRouter(steerFilter())])],
  };
}

export const pluginObjectName = ({ name, pool }: Parameters): string => `${name}-${pool.name}`;

/** The filter's configuration. */
export function pluginConfig(parameters: Parameters): object {
  const { bounds } = parameters;
  return {
    pool: poolName(parameters),
    clusters: [poolCluster(parameters)],
    sync: { cluster: syncCluster(parameters), authority: `${syncHost(parameters)}:${syncPort}` },
    ...(Object.keys(bounds).length > 0 ? { bounds } : {}),
  };
}

export const tokenVariable = { name: 'WARMPATH_SYNC_TOKEN', valueFrom: 'HOST' };

export function wasmPluginFile(parameters: Parameters, folder: string): ManifestFile {
  const { gateway, moduleUrl, moduleSha256, failStrategy } = parameters;
  return {
    path: `${folder}/wasm-plugin.yaml`,
    comment:
      'The filter. It reads requests to the clusters that are named, and leaves all others alone. FAIL_OPEN is meant: when the module cannot be ' +
      'fetched Istio then lets everything through, while any other strategy would answer 403 to all that the gateway serves. url and ' +
      "sha256 are your registry's: for an image the digest of its manifest, for a file that of the file.",
    objects: [
      kubeObject(
        'extensions.istio.io/v1alpha1',
        'WasmPlugin',
        { name: pluginObjectName(parameters), namespace: gateway.namespace },
        {
          spec: {
            targetRefs: targetRefs(parameters),
            url: moduleUrl,
            ...(moduleSha256 === '' ? {} : { sha256: moduleSha256 }),
            pluginName: pluginObjectName(parameters),
            failStrategy,
            pluginConfig: pluginConfig(parameters),
          },
        },
      ),
    ],
  };
}

export function heldRoutesFile(parameters: Parameters, folder: string): ManifestFile {
  const { requestBytesMax } = parameters;
  const value = {
    route: { idle_timeout: seconds(idleTimeoutMsDefault), retry_policy: retryPolicy() },
    typed_per_filter_config: holdOnRoute(requestBytesMax),
  };
  return {
    path: `${folder}/held-routes.yaml`,
    comment:
      'Switches the hold on for the first rule of the HTTPRoute, which has the LLM paths and POST and nothing else, and lets Envoy ask the next ' +
      'pod of the pick when one fails before it has answered.',
    objects: [
      envoyFilter(parameters, `${pluginObjectName(parameters)}-held-routes`, order.route, [
        onHeldRoute(parameters, value),
      ]),
    ],
  };
}

const onHeldRoute = (parameters: Parameters, value: object): object => ({
  applyTo: 'HTTP_ROUTE',
  match: {
    context: 'GATEWAY',
    routeConfiguration: { vhost: { route: { name: heldRoute(parameters) } } },
  },
  patch: { operation: 'MERGE', value },
});

export function balancingFile(parameters: Parameters, folder: string): ManifestFile {
  const { attach } = parameters;
  const { host, port } = poolHost(parameters);
  const value = {
    ...(attach === 'service' ? { load_balancing_policy: overrideHostPolicy() } : {}),
    circuit_breakers: circuitBreakers(),
    outlier_detection: outlierDetection(),
  };
  const comment =
    attach === 'service'
      ? "How the pool's cluster balances: it obeys the pick, and by least request when there is none. A pod that fails at once is left " +
        'alone for a while.'
      : "A pod of the pool that fails at once is left alone for a while. Istio itself has the pool's cluster obey a pick, and balance by round " +
        'robin when there is none; a patch cannot change that.';
  return {
    path: `${folder}/balancing.yaml`,
    comment,
    objects: [
      envoyFilter(parameters, `${pluginObjectName(parameters)}-balancing`, order.cluster, [
        {
          applyTo: 'CLUSTER',
          match: { context: 'GATEWAY', cluster: { service: host, portNumber: port } },
          patch: { operation: 'MERGE', value },
        },
      ]),
    ],
  };
}

/** Only for InferencePools: hands the pick over to where their clusters look for it. */
export function feedFile(parameters: Parameters, folder: string): ManifestFile {
  const value = {
    name: feedFilterName,
    typed_config: typed('envoy.extensions.filters.http.header_to_metadata.v3.Config', {
      request_rules: [
        {
          header: destinationHeader,
          on_header_present: { metadata_namespace: 'envoy.lb', key: destinationHeader, type: 'STRING' },
          remove: false,
        },
      ],
    }),
  };
  return {
    path: `${folder}/feed.yaml`,
    comment:
      "Istio's clusters of InferencePools look for the pick in metadata, where an endpoint picker would leave it. This puts it there. It does " +
      'nothing on requests without a pick, so pools with a picker of their own go on as before.',
    objects: [envoyFilter(parameters, `${parameters.name}-feed`, order.feed, [beforeRouter(value)])],
  };
}

/** Only for InferencePools: their routes would ask an endpoint picker, which is not there. */
export function withoutPickerFile(parameters: Parameters, folder: string): ManifestFile {
  const route = (rule: number): object => ({
    applyTo: 'HTTP_ROUTE',
    match: {
      context: 'GATEWAY',
      routeConfiguration: { vhost: { route: { name: heldRoute(parameters).replace(/0$/, String(rule)) } } },
    },
    patch: {
      operation: 'MERGE',
      value: {
        typed_per_filter_config: {
          [extProc]: typed('envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute', { disabled: true }),
        },
      },
    },
  });
  return {
    path: `${folder}/without-picker.yaml`,
    comment:
      "Takes the call to the endpoint picker off both rules of the pool's route: the filter has picked already. Other pools of the same gateway " +
      'keep their pickers.',
    objects: [
      envoyFilter(parameters, `${pluginObjectName(parameters)}-without-picker`, order.route, [route(0), route(1)]),
    ],
  };
}

export function statsTagsFile(parameters: Parameters, folder: string): ManifestFile {
  return {
    path: `${folder}/stats-tags.yaml`,
    comment:
      "Makes labels of the parts of the filter's metric names (pool, policy, reason ...). It is read when a gateway's pod starts, and only if that " +
      'pod has BOOTSTRAP_XDS_AGENT=true in its environment.',
    objects: [
      envoyFilter(parameters, `${parameters.name}-stats-tags`, order.hold, [
        {
          applyTo: 'BOOTSTRAP',
          match: { context: 'GATEWAY' },
          patch: { operation: 'MERGE', value: { stats_config: { stats_tags: statsTags() } } },
        },
      ]),
    ],
  };
}
