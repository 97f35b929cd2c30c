// What the manifests are made for: which gateway, pool, route and module. Every value is checked here, so that the templates need
// not think about what a name may look like, and a mistake is told before a cluster sees it.

import { createHash } from 'node:crypto';
import { heldPaths } from '../../envoy/names.ts';

/** How the route reaches the pods: by a Service, or by an InferencePool whose endpoint picker is left out. */
export const attachModes = ['service', 'inference-pool'] as const;
export type AttachMode = (typeof attachModes)[number];

/** The groups of InferencePool that Istio watches: 1.27 the first, 1.28 and later the second. */
export const poolGroups = ['inference.networking.x-k8s.io', 'inference.networking.k8s.io'] as const;
export type PoolGroup = (typeof poolGroups)[number];

export const failStrategies = ['FAIL_OPEN', 'FAIL_RELOAD', 'FAIL_CLOSE'] as const;
export type FailStrategy = (typeof failStrategies)[number];

export interface ObjectName {
  namespace: string;
  name: string;
}

export interface Parameters {
  /** Of the control plane's objects and, in front of others, of the gateway's. */
  name: string;
  /** Where the control plane runs. */
  systemNamespace: string;
  image: string;
  replicas: number;
  listenHost: string;
  gateway: ObjectName;
  /** The account that the gateway's pods run under: the only one that may sync. */
  gatewayServiceAccount: string;
  attach: AttachMode;
  poolGroup: PoolGroup;
  pool: ObjectName;
  /** Labels of the engines' pods, for the Service; null when the Service is there already. */
  selector: Record<string, string> | null;
  /** Port of the Service and of the engines. */
  poolPort: number;
  route: string;
  hostnames: string[];
  moduleUrl: string;
  /** Of the file, or of the image's manifest when the module is an image. */
  moduleSha256: string;
  failStrategy: FailStrategy;
  requestBytesMax: number;
  /** Bounds of the filter's tables; what is left out is as the filter has it. */
  bounds: { pods?: number; blocks?: number; streams?: number };
  /** Whether gateways show a token: for where there is no mesh identity. */
  token: boolean;
  /** Whether the gateway's bootstrap gets the tags that make labels of the filter's metrics. */
  statsTags: boolean;
  clusterDomain: string;
  trustDomain: string;
}

export const syncPort = 8090;
export const adminPort = 8091;

export const defaults: Parameters = {
  name: 'warmpath',
  systemNamespace: 'warmpath-system',
  image: 'warmpath/control-plane:0.1.0',
  replicas: 2,
  listenHost: '0.0.0.0',
  gateway: { namespace: 'llm', name: 'inference-gateway' },
  gatewayServiceAccount: 'inference-gateway-istio',
  attach: 'service',
  poolGroup: 'inference.networking.k8s.io',
  pool: { namespace: 'llm', name: 'vllm' },
  selector: { app: 'vllm' },
  poolPort: 8000,
  route: 'vllm',
  hostnames: ['llm.example'],
  moduleUrl: 'oci://registry.example/warmpath/filter:0.1.0',
  moduleSha256: '0'.repeat(64),
  failStrategy: 'FAIL_OPEN',
  requestBytesMax: 64 << 20,
  bounds: {},
  token: false,
  statsTags: false,
  clusterDomain: 'cluster.local',
  trustDomain: 'cluster.local',
};

/** A parameter that cannot be used; the message names it, the value and what was expected. */
export class ParameterError extends Error {
  override name = 'ParameterError';
}

const dnsLabel = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const dnsName = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$/;
const labelKey = /^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const labelValue = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;
/** What the filter takes for the name of a cluster, and for all of them together. */
const clusterBytesMax = 128;

function expect(isGood: boolean, name: string, value: unknown, expected: string): void {
  if (!isGood) throw new ParameterError(`${name}: ${JSON.stringify(value)} is not ${expected}`);
}

/** Throws at the first value that the manifests cannot be made of. */
export function checkParameters(parameters: Parameters): void {
  const { gateway, pool, selector, moduleUrl, moduleSha256 } = parameters;
  const label = (name: string, value: string): void =>
    expect(dnsLabel.test(value), name, value, 'a name of up to 63 lower case letters, digits and -');
  label('name', parameters.name);
  label('system namespace', parameters.systemNamespace);
  label('gateway namespace', gateway.namespace);
  label('gateway', gateway.name);
  label('gateway service account', parameters.gatewayServiceAccount);
  label('pool namespace', pool.namespace);
  label('pool', pool.name);
  label('route', parameters.route);
  for (const [name, value] of [
    ['cluster domain', parameters.clusterDomain],
    ['trust domain', parameters.trustDomain],
  ] as const)
    expect(dnsName.test(value), name, value, 'a domain name');
  for (const host of parameters.hostnames)
    expect(dnsName.test(host.replace(/^\*\./, '')), 'hostname', host, 'a host name, with *. in front or not');
  for (const [key, value] of Object.entries(selector ?? {}))
    expect(labelKey.test(key) && labelValue.test(value), 'selector', `${key}=${value}`, 'a label');
  expect(selector === null || Object.keys(selector).length > 0, 'selector', selector, 'one label or more');
  expect(/^[^\s]+$/.test(parameters.image), 'image', parameters.image, 'the name of an image');
  const scheme = /^(oci|https?|file):\/\/[^\s]+$/.exec(moduleUrl)?.[1];
  expect(scheme !== undefined, 'module', moduleUrl, 'a URL with oci://, https://, http:// or file://');
  expect(
    /^[0-9a-f]{64}$/.test(moduleSha256) || (scheme === 'file' && moduleSha256 === ''),
    'sha256',
    moduleSha256,
    '64 hexadecimal digits',
  );
  for (const cluster of [poolCluster(parameters), syncCluster(parameters)])
    expect(cluster.length <= clusterBytesMax, 'name of a cluster', cluster, `at most ${clusterBytesMax} bytes`);
}

/** What a pool is called between filter and control plane. */
export const poolName = ({ pool }: Parameters): string => `${pool.namespace}/${pool.name}`;

/** Istio names the headless Service behind an InferencePool by its name and a hash of it. */
export function shadowService(pool: string): string {
  const tail = `-ip-${createHash('sha256').update(pool).digest('hex').slice(0, 8)}`;
  return pool.slice(0, 63 - tail.length) + tail;
}

/** The first of the ports that Istio gives that Service, whatever port the pods have. */
export const shadowPort = 54321;

/** The host that the pool has in Istio's eyes, and its port. */
export function poolHost({ attach, pool, poolPort, clusterDomain }: Parameters): { host: string; port: number } {
  const isService = attach === 'service';
  const service = isService ? pool.name : shadowService(pool.name);
  return {
    host: `${service}.${pool.namespace}.svc.${clusterDomain}`,
    port: isService ? poolPort : shadowPort,
  };
}

const clusterOf = (host: string, port: number): string => `outbound|${port}||${host}`;

export function poolCluster(parameters: Parameters): string {
  const { host, port } = poolHost(parameters);
  return clusterOf(host, port);
}

export const syncHost = ({ name, systemNamespace, clusterDomain }: Parameters): string =>
  `${name}.${systemNamespace}.svc.${clusterDomain}`;

export const syncCluster = (parameters: Parameters): string => clusterOf(syncHost(parameters), syncPort);

/** Istio names the routes of a rule by namespace, HTTPRoute and number of the rule; the held paths are the first rule. */
export const heldRoute = ({ pool, route }: Parameters): string => `${pool.namespace}.${route}.0`;

export { heldPaths };
