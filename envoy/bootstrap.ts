// The configuration an Envoy starts with, as an object that Envoy reads as JSON. Listeners and clusters either stand in it
// (for `envoy --mode validate`) or in two files that Envoy watches, so that they can change under load.

import { controlPlane, poolCluster } from './cluster.ts';
import type { ControlPlaneOptions, PoolOptions } from './cluster.ts';
import { listener } from './listener.ts';
import type { ListenerOptions } from './listener.ts';
import { statsTags, typed } from './names.ts';
import { pickerClusters } from './picker.ts';

/** What may change while an Envoy runs. */
export interface Resources {
  listeners: ListenerOptions[];
  pools: PoolOptions[];
  controlPlane?: ControlPlaneOptions;
  /** `ip:port` of an endpoint picker, for listeners whose chain is `picker`. */
  picker?: string;
}

export interface ProcessOptions {
  /** 0 lets the system choose. */
  adminPort: number;
  /** Known to the filter as property xds.node.id. */
  nodeId?: string;
}

const resourceTypes = { listeners: 'envoy.config.listener.v3.Listener', clusters: 'envoy.config.cluster.v3.Cluster' };

function clusters(resources: Resources): object[] {
  return [
    ...resources.pools.map(poolCluster),
    ...(resources.controlPlane ? [controlPlane(resources.controlPlane)] : []),
    ...(resources.picker === undefined ? [] : pickerClusters(resources.picker)),
  ];
}

/** A bootstrap with everything in it. */
export function staticBootstrap(process: ProcessOptions, resources: Resources): object {
  return {
    ...frame(process),
    static_resources: { listeners: resources.listeners.map(listener), clusters: clusters(resources) },
  };
}

/** A bootstrap that names two files for the rest. */
export function dynamicBootstrap(process: ProcessOptions, files: { listeners: string; clusters: string }): object {
  const watched = (path: string): object => ({ path_config_source: { path }, resource_api_version: 'V3' });
  return {
    ...frame(process),
    dynamic_resources: { lds_config: watched(files.listeners), cds_config: watched(files.clusters) },
  };
}

/** What those two files hold. */
export function discovery(resources: Resources, version: string): { listeners: object; clusters: object } {
  const response = (kind: keyof typeof resourceTypes, items: object[]): object => ({
    version_info: version,
    resources: items.map((item) => typed(resourceTypes[kind], item)),
  });
  return {
    listeners: response('listeners', resources.listeners.map(listener)),
    clusters: response('clusters', clusters(resources)),
  };
}

function frame({ adminPort, nodeId = 'warmpath-gateway' }: ProcessOptions): object {
  return {
    node: { id: nodeId, cluster: 'warmpath' },
    admin: { address: { socket_address: { address: '127.0.0.1', port_value: adminPort } } },
    stats_config: { stats_tags: statsTags() },
  };
}
