// One chain: what Istio's gateway gets by patches is what envoy/ writes for a gateway of our own, which is the one that most tests run on.

import { describe, expect, it } from 'vitest';
import type { KubeObject } from '../../cli/manifests/files.ts';
import { attachModes, defaults, poolCluster, type Parameters } from '../../cli/manifests/parameters.ts';
import { builtFiles } from '../../cli/manifests/tree.ts';
import { poolCluster as ownCluster } from '../../envoy/cluster.ts';
import { listener } from '../../envoy/listener.ts';
import { heldPaths } from '../../envoy/names.ts';
import { merged, patchedCluster, patchedFilters, patchedRoute, type Json } from './patches.ts';

const objectsOf = (parameters: Parameters): KubeObject[] =>
  builtFiles(parameters).flatMap(({ objects }) => objects as KubeObject[]);

interface Manager {
  http_filters: (Json & { name: string })[];
  route_config: { virtual_hosts: { routes: (Json & { name: string; route: Json })[] }[] };
}
const own = listener({
  name: 'gateway',
  port: 1,
  cluster: 'pool',
  chain: 'warmpath',
  wasmPath: 'filter.wasm',
  requestBytesMax: defaults.requestBytesMax,
}) as { filter_chains: { filters: { typed_config: Manager }[] }[] };
const manager = own.filter_chains[0]!.filters[0]!.typed_config;

/** Istio's own filters behind a WasmPlugin; none of them is an anchor for ours. */
const istioFilters: Json[] = [
  'envoy.filters.http.grpc_stats',
  'istio.alpn',
  'envoy.filters.http.fault',
  'envoy.filters.http.cors',
]
  .map((name) => ({ name }))
  .concat([{ name: 'envoy.filters.http.router' }]);

describe.each(attachModes)('attached by %s', (attach) => {
  const objects = objectsOf({ ...defaults, attach });

  it('the filters before the router are those of our own gateway, in the same order', () => {
    const ours = manager.http_filters.filter(({ name }) => name.startsWith('warmpath.'));
    expect(ours.map(({ name }) => name)).toEqual(['warmpath.hold', 'warmpath.steer']);
    const feed = attach === 'inference-pool' ? [expect.objectContaining({ name: 'warmpath.feed' })] : [];
    expect(patchedFilters(istioFilters, objects)).toEqual([
      ...istioFilters.slice(0, -1),
      ...ours,
      ...feed,
      ...istioFilters.slice(-1),
    ]);
  });

  it('the held routes carry what those of our own gateway carry', () => {
    const held = patchedRoute({ name: 'llm.vllm.0', route: { cluster: 'c' } }, objects);
    const ours = manager.route_config.virtual_hosts[0]!.routes.find(({ name }) => name === heldPaths[0])!;
    expect(held['route']).toEqual({
      cluster: 'c',
      idle_timeout: ours.route['idle_timeout'],
      retry_policy: ours.route['retry_policy'],
    });
    expect(held['typed_per_filter_config']).toMatchObject(ours['typed_per_filter_config'] as Json);
  });

  it("Istio's own retries give way to ours", () => {
    const istio = {
      retry_on: 'connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes',
      num_retries: 2,
      host_selection_retry_max_attempts: '5',
    };
    const held = patchedRoute({ name: 'llm.vllm.0', route: { retry_policy: istio } }, objects);
    const ours = manager.route_config.virtual_hosts[0]!.routes[0]!.route['retry_policy'];
    expect((held['route'] as Json)['retry_policy']).toEqual(ours);
  });

  it('other routes stay as they are, but for the endpoint picker', () => {
    const rest = { name: 'llm.vllm.1', route: { cluster: 'c' } };
    const patched = patchedRoute(rest, objects);
    if (attach === 'service') expect(patched).toEqual(rest);
    else expect(Object.keys(patched['typed_per_filter_config'] as Json)).toEqual(['envoy.filters.http.ext_proc']);
    for (const name of ['llm.vllm.10', 'llm.other.0', 'other.vllm.0', 'default'])
      expect(patchedRoute({ name }, objects)).toEqual({ name });
  });

  it('the cluster balances, ejects and breaks as our own does', () => {
    const { load_balancing_policy, circuit_breakers, outlier_detection } = ownCluster({
      name: 'pool',
      endpoints: [],
      balancing: 'override-host',
    }) as Json;
    const name = poolCluster({ ...defaults, attach });
    const patched = patchedCluster({ name }, objects);
    const balancing = attach === 'service' ? { load_balancing_policy } : {};
    expect(patched).toEqual({ name, ...balancing, circuit_breakers, outlier_detection });
    expect(patchedCluster({ name: 'outbound|8000||other.llm.svc.cluster.local' }, objects)).toEqual({
      name: 'outbound|8000||other.llm.svc.cluster.local',
    });
  });
});

it('the HTTPRoute has the held paths as its first rule, and no other', () => {
  const route = objectsOf(defaults).find(({ kind }) => kind === 'HTTPRoute');
  const { rules } = route!['spec'] as {
    rules: { matches: { method?: string; path: { type: string; value: string } }[] }[];
  };
  const [first, ...rest] = rules;
  expect(first?.matches).toEqual(heldPaths.map((value) => ({ method: 'POST', path: { type: 'Exact', value } })));
  expect(rest.flatMap(({ matches }) => matches)).toEqual([{ path: { type: 'PathPrefix', value: '/' } }]);
});

describe('merging', () => {
  it('appends lists, replaces entries of maps and whole Anys, and goes into messages', () => {
    const target = {
      list: [1],
      message: { a: 1, b: 2 },
      any: { '@type': 't', a: 1 },
      typed_per_filter_config: { x: { a: 1 }, y: { a: 1 } },
    };
    const patch = {
      list: [2],
      message: { b: 3 },
      any: { '@type': 't', b: 1 },
      typed_per_filter_config: { y: { b: 1 } },
    };
    expect(merged(target, patch)).toEqual({
      list: [1, 2],
      message: { a: 1, b: 3 },
      any: { '@type': 't', b: 1 },
      typed_per_filter_config: { x: { a: 1 }, y: { b: 1 } },
    });
  });
});
