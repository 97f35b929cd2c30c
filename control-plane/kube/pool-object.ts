// What the objects of Kubernetes say about a pool: its selector and ports, and the endpoints that its pods are. Pure: objects
// in, configuration out. Only the fields that are read here are typed.
import { isIPv6 } from 'node:net';
import { parseAddress } from '../address.ts';
import type { PodSettings } from '../annotations.ts';
import type { EndpointConfig, PoolObject } from '../config.ts';
import { LIMITS } from '../limits.ts';
import type { KubeObject } from './reflector.ts';

interface InferencePoolV1 {
  selector?: { matchLabels?: Record<string, string> };
  targetPorts?: { number: number }[];
}
/** As inference.networking.x-k8s.io/v1alpha2 had it. */
interface InferencePoolV1Alpha2 {
  selector?: Record<string, string>;
  targetPortNumber?: number;
}
interface ServiceSpec {
  selector?: Record<string, string>;
  ports?: { port: number; targetPort?: number | string; protocol?: string }[];
}

export interface PoolObjectData extends KubeObject {
  apiVersion?: string;
  kind?: string;
  spec?: InferencePoolV1 & InferencePoolV1Alpha2 & ServiceSpec;
}

interface ContainerPort {
  name?: string;
  containerPort: number;
}
export interface PodData extends KubeObject {
  spec?: { containers?: { name: string; ports?: ContainerPort[] }[] };
  status?: {
    phase?: string;
    podIP?: string;
    conditions?: { type: string; status: string }[];
    containerStatuses?: { name: string; restartCount: number }[];
  };
}

/** Where objects of a kind are, newest version first. */
export const RESOURCES: Readonly<Record<PoolObject['kind'], readonly { apiVersion: string; path: string }[]>> = {
  InferencePool: [
    { apiVersion: 'inference.networking.k8s.io/v1', path: 'inferencepools' },
    { apiVersion: 'inference.networking.x-k8s.io/v1alpha2', path: 'inferencepools' },
  ],
  Service: [{ apiVersion: 'v1', path: 'services' }],
};

export interface PoolShape {
  /** As a label selector in a query. */
  selector: string;
  /** Numbers, or names of container ports. */
  ports: (number | string)[];
}

/** Selector and ports, or why there are none. */
export function shapeOf(kind: PoolObject['kind'], apiVersion: string, { spec }: PoolObjectData): PoolShape | string {
  const isV1Alpha2 = apiVersion.endsWith('/v1alpha2');
  const labels = kind === 'Service' || isV1Alpha2 ? spec?.selector : spec?.selector?.matchLabels;
  const pairs = Object.entries((labels ?? {}) as Record<string, string>);
  // An empty selector would select every pod of the namespace.
  if (pairs.length === 0) return 'it has no selector';
  const ports =
    kind === 'Service'
      ? (spec?.ports ?? []).filter((port) => (port.protocol ?? 'TCP') === 'TCP').map((p) => p.targetPort ?? p.port)
      : isV1Alpha2
        ? [spec?.targetPortNumber ?? 0]
        : (spec?.targetPorts ?? []).map((port) => port.number);
  const distinct = [...new Set(ports)].filter((port) => port !== 0);
  if (distinct.length === 0) return 'it has no target port';
  if (distinct.length > LIMITS.poolPorts) return `it has ${distinct.length} target ports, at most ${LIMITS.poolPorts}`;
  const selector = pairs.map(([key, value]) => `${key}=${value}`).join(',');
  return { selector, ports: distinct };
}

/** The endpoints that a pod is, one for each port: none while it has no address or when it has run its course. */
export function endpointsOf(pod: PodData, ports: PoolShape['ports'], settings: PodSettings): EndpointConfig[] {
  const { metadata, spec, status } = pod;
  const ip = status?.podIP ?? '';
  if (ip === '' || status?.phase === 'Succeeded' || status?.phase === 'Failed') return [];
  const isReady = (status?.conditions ?? []).some(({ type, status: is }) => type === 'Ready' && is === 'True');
  const containers = spec?.containers ?? [];
  return ports.flatMap((wanted) => {
    const owner = containers.find((container) =>
      container.ports?.some(({ name, containerPort }) => name === wanted || containerPort === wanted),
    );
    const named = owner?.ports?.find(({ name }) => name === wanted)?.containerPort;
    const port = typeof wanted === 'number' ? wanted : named;
    if (port === undefined) return [];
    // Only the engine's own container counts: a sidecar that starts anew leaves the cache as it is.
    const counts = (status?.containerStatuses ?? [])
      .filter(({ name }) => owner === undefined || name === owner.name)
      .map(({ restartCount }) => restartCount);
    return [
      {
        address: parseAddress(isIPv6(ip) ? `[${ip}]:${port}` : `${ip}:${port}`, metadata.name),
        ...settings,
        ready: isReady && metadata.deletionTimestamp === undefined,
        life: { uid: metadata.uid ?? '', restarts: Math.max(0, ...counts) },
      },
    ];
  });
}
