// What `warmpath check` looks at: the objects of a cluster that Warmpath depends on or consists of, read once. An object that is not there is
// null, and so is one that may not be read, which is noted. Reading only: nothing is changed.

import { KubeError, type KubeApi } from '../../control-plane/kube/api.ts';
import type { KubeObject } from '../manifests/files.ts';
import { poolGroups, type ObjectName } from '../manifests/parameters.ts';

export interface Target {
  gateway: ObjectName;
  pool: ObjectName;
  /** Name of the HTTPRoute. */
  route: string;
  /** Of the control plane's objects. */
  name: string;
  systemNamespace: string;
}

/** An object with whatever it says. */
export interface Found extends KubeObject {
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
}

export interface Snapshot {
  /** `group/version` pairs that the API server has, of those that are needed. */
  served: string[];
  gateway: Found | null;
  gatewayClass: Found | null;
  service: Found | null;
  inferencePool: Found | null;
  pods: Found[];
  destinationRules: Found[];
  wasmPlugins: Found[];
  envoyFilters: Found[];
  httpRoute: Found | null;
  deployment: Found | null;
  lease: Found | null;
  slice: Found | null;
  controlPlanePods: Found[];
  authorizationPolicy: Found | null;
  /** Paths that the API server refused to show. */
  refused: string[];
}

export const needed = [
  'extensions.istio.io/v1alpha1',
  'networking.istio.io/v1alpha3',
  'security.istio.io/v1',
  'gateway.networking.k8s.io/v1',
] as const;

export async function readSnapshot(api: Pick<KubeApi, 'request'>, target: Target): Promise<Snapshot> {
  const { gateway, pool, route, name, systemNamespace } = target;
  const refused: string[] = [];
  const get = async (path: string, query = {}): Promise<Found | null> => {
    try {
      return await api.request<Found>('GET', path, query);
    } catch (error) {
      if (!(error instanceof KubeError) || (error.status !== 404 && error.status !== 403)) throw error;
      if (error.status === 403) refused.push(path);
      return null;
    }
  };
  const list = async (path: string, query = {}): Promise<Found[]> => {
    const found = (await get(path, query)) as { items?: Found[] } | null;
    return found?.items ?? [];
  };
  const path = (groupVersion: string, namespace: string, resource: string): string =>
    `${groupVersion === 'v1' ? '/api' : '/apis'}/${groupVersion}/namespaces/${namespace}/${resource}`;
  const gatewayApi = 'gateway.networking.k8s.io/v1';

  const gatewayObject = await get(path(gatewayApi, gateway.namespace, `gateways/${gateway.name}`));
  const className = gatewayObject?.spec?.['gatewayClassName'];
  const pools = await Promise.all([
    get(path(`${poolGroups[1]}/v1`, pool.namespace, `inferencepools/${pool.name}`)),
    get(path(`${poolGroups[0]}/v1alpha2`, pool.namespace, `inferencepools/${pool.name}`)),
  ]);
  const inferencePool = pools.find((found) => found !== null) ?? null;
  const service = await get(path('v1', pool.namespace, `services/${pool.name}`));
  const selector = selectorOf(service ?? inferencePool);
  const served = await Promise.all(
    needed.map(async (groupVersion) => ((await get(`/apis/${groupVersion}`)) === null ? null : groupVersion)),
  );
  return {
    served: served.filter((groupVersion) => groupVersion !== null),
    gateway: gatewayObject,
    gatewayClass: typeof className === 'string' ? await get(`/apis/${gatewayApi}/gatewayclasses/${className}`) : null,
    service,
    inferencePool,
    pods: selector === null ? [] : await list(path('v1', pool.namespace, 'pods'), { labelSelector: selector }),
    destinationRules: await list(path('networking.istio.io/v1', pool.namespace, 'destinationrules')),
    wasmPlugins: await list(path('extensions.istio.io/v1alpha1', gateway.namespace, 'wasmplugins')),
    envoyFilters: await list(path('networking.istio.io/v1alpha3', gateway.namespace, 'envoyfilters')),
    httpRoute: await get(path(gatewayApi, pool.namespace, `httproutes/${route}`)),
    deployment: await get(path('apps/v1', systemNamespace, `deployments/${name}`)),
    lease: await get(path('coordination.k8s.io/v1', systemNamespace, `leases/${name}`)),
    slice: await get(path('discovery.k8s.io/v1', systemNamespace, `endpointslices/${name}-active`)),
    controlPlanePods: await list(path('v1', systemNamespace, 'pods'), {
      labelSelector: `app.kubernetes.io/name=${name},app.kubernetes.io/component=control-plane`,
    }),
    authorizationPolicy: await get(path('security.istio.io/v1', systemNamespace, `authorizationpolicies/${name}`)),
    refused,
  };
}

/** The labels of a pool's pods as a query has them; null when there are none. */
export function selectorOf(object: Found | null): string | null {
  const selector = (object?.spec?.['selector'] ?? {}) as Record<string, unknown>;
  const labels = (selector['matchLabels'] ?? selector) as Record<string, string>;
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return pairs.length === 0 ? null : pairs.join(',');
}
