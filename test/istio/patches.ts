// Does with a gateway's configuration what istiod does with EnvoyFilters and WasmPlugins: patches in order of priority, proto's rules of merging.
// The rules were read in the sources of Istio 1.27.9: lists are appended, entries of maps replaced, an Any is one value.

import type { KubeObject } from '../../cli/manifests/files.ts';
import { typed } from '../../envoy/names.ts';

export type Json = Record<string, unknown>;

export interface Patch {
  applyTo: string;
  match: {
    listener?: { filterChain: { filter: { name: string; subFilter: { name: string } } } };
    routeConfiguration?: { vhost: { route: { name: string } } };
    cluster?: { service: string; portNumber: number };
  };
  patch: { operation: string; value: Json };
}

interface EnvoyFilterSpec {
  priority: number;
  configPatches: Patch[];
}

/** The patches of a kind in the order in which they are applied. */
export function patchesOf(objects: readonly KubeObject[], applyTo: string): Patch[] {
  return objects
    .filter(({ kind }) => kind === 'EnvoyFilter')
    .map((object) => object['spec'] as EnvoyFilterSpec)
    .toSorted((a, b) => a.priority - b.priority)
    .flatMap(({ configPatches }) => configPatches)
    .filter((patch) => patch.applyTo === applyTo);
}

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !('@type' in value);

/** Fields that are maps in proto: their entries are replaced. */
const maps = ['typed_per_filter_config'];

export function merged(target: Json, patch: Json): Json {
  const result = { ...target };
  for (const [key, value] of Object.entries(patch)) {
    const before = result[key];
    if (Array.isArray(value) && Array.isArray(before))
      result[key] = [...(before as unknown[]), ...(value as unknown[])];
    else if (isObject(value) && isObject(before))
      result[key] = maps.includes(key) ? { ...before, ...value } : merged(before, value);
    else result[key] = value;
  }
  return result;
}

/** HTTP filters with what is inserted before the router. */
export function patchedFilters(filters: readonly Json[], objects: readonly KubeObject[]): Json[] {
  const result = [...filters];
  for (const { match, patch } of patchesOf(objects, 'HTTP_FILTER')) {
    const anchor = match.listener?.filterChain.filter.subFilter.name;
    const at = result.findIndex(({ name }) => name === anchor);
    if (patch.operation !== 'INSERT_BEFORE' || at < 0) throw new Error(`${patch.operation} at ${anchor}`);
    result.splice(at, 0, patch.value);
  }
  return result;
}

export function patchedRoute(route: Json, objects: readonly KubeObject[]): Json {
  return patchesOf(objects, 'HTTP_ROUTE')
    .filter(({ match }) => match.routeConfiguration?.vhost.route.name === route['name'])
    .reduce((result, { patch }) => merged(result, patch.value), route);
}

export function patchedCluster(cluster: Json, objects: readonly KubeObject[]): Json {
  const [, port, , host] = String(cluster['name']).split('|');
  return patchesOf(objects, 'CLUSTER')
    .filter(({ match }) => match.cluster?.service === host && String(match.cluster?.portNumber) === port)
    .reduce((result, { patch }) => merged(result, patch.value), cluster);
}

interface WasmPluginSpec {
  pluginName: string;
  failStrategy: string;
  pluginConfig: Json;
  vmConfig?: { env: { name: string; valueFrom: string }[] };
}

/** The filter that a WasmPlugin becomes, with a module from a file. */
export function wasmFilter({ metadata, ...rest }: KubeObject, modulePath: string): Json {
  const { pluginName, failStrategy, pluginConfig, vmConfig } = rest['spec'] as WasmPluginSpec;
  const fromHost = (vmConfig?.env ?? []).filter(({ valueFrom }) => valueFrom === 'HOST').map(({ name }) => name);
  return {
    name: `extensions.istio.io/wasmplugin/${metadata.namespace}.${metadata.name}`,
    typed_config: typed('envoy.extensions.filters.http.wasm.v3.Wasm', {
      config: {
        name: `${metadata.namespace}.${metadata.name}`,
        root_id: pluginName,
        failure_policy: failStrategy === 'FAIL_CLOSE' ? 'FAIL_CLOSED' : failStrategy,
        configuration: typed('google.protobuf.StringValue', { value: JSON.stringify(pluginConfig) }),
        vm_config: {
          runtime: 'envoy.wasm.runtime.v8',
          code: { local: { filename: modulePath } },
          environment_variables: { host_env_keys: fromHost, key_values: {} },
        },
      },
    }),
  };
}
