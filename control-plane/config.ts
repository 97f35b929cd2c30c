// The control plane's configuration, checked once and strictly: an unknown key or a bad value stops the start with the key,
// the value and what was expected. Where the values come from (command line, file, test) does not matter here.
import { isIP } from 'node:net';
import { parseAddress } from './address.ts';
import type { Address } from './address.ts';
import { POLICIES, POOL_MODES, TOOLS_POSITIONS } from './engine/frames.ts';
import type { PolicyName, PoolMode, ToolsPosition } from './engine/frames.ts';
import { PREFIX_HEADER_TYPE, readPrefixHeader, readSessionKey, SESSION_KEY_TYPE } from './engine/policies.ts';
import { ControlPlaneError, invalid } from './errors.ts';
import { KV_EVENTS_TYPE, readKvEvents } from './kv-events/sources.ts';
import { LIMITS } from './limits.ts';

export interface EndpointConfig {
  address: Address;
  weight: number;
  drain: boolean;
  /** 0 = as the engine reports it. */
  capacityTokens: number;
  /** It gets picks. One that is not ready stays in the list, and with it what is known of its cache. */
  ready: boolean;
  /** Which pod this is and how often its engine has been started again, where somebody knows. */
  life: { uid: string; restarts: number } | null;
}

/** The object in Kubernetes from which a pool takes its endpoints and annotations. */
export interface PoolObject {
  kind: 'InferencePool' | 'Service';
  namespace: string;
  name: string;
}

export interface PoolConfig {
  name: string;
  endpoints: EndpointConfig[] | null;
  endpointsFile: string | null;
  object: PoolObject | null;
  mode: PoolMode;
  policy: PolicyName;
  toolsPosition: ToolsPosition;
  blockBytes: number;
  windowBytes: number;
  bytesPerToken: number;
  capacityTokens: number;
  weights: { prefix: number; queue: number; kv: number };
  /** Where the policies session and prefix-header find their key, as engine/policies.ts reads it. */
  sessionKey: string;
  prefixHeader: string;
  syncIntervalMs: number;
  scrapeIntervalMs: number;
  /** Whether the engines' cache events are listened to, as kv-events/sources.ts reads it. */
  kvEvents: string;
}

/** Which replica of the control plane this is. Replicas that know it elect one of them by a Lease. */
export interface ReplicaConfig {
  /** Of the Lease, of the Service that leads to the active replica, and, with -pools behind it, of the Secret. */
  name: string;
  namespace: string;
  podName: string;
  podUid: string;
  podIp: string;
  leaseSeconds: number;
}

export interface ControlPlaneConfig {
  host: string;
  port: number;
  /** A port of their own for metrics, state and probes, so that `port` has sync only; null = all on `port`. */
  adminPort: number | null;
  token: string | null;
  secretFile: string | null;
  scrapeTimeoutMs: number;
  /** A kubeconfig file, null = as a pod in the cluster. Read only when a pool or the election needs it. */
  kubeconfig: string | null;
  replica: ReplicaConfig | null;
  pools: PoolConfig[];
}

/** What startControlPlane() is given: the same keys, nearly all of them optional. */
export interface ControlPlaneOptions {
  host?: string;
  port?: number;
  adminPort?: number;
  token?: string;
  secretFile?: string;
  scrapeIntervalMs?: number;
  scrapeTimeoutMs?: number;
  syncIntervalMs?: number;
  kubeconfig?: string;
  replica?: Partial<ReplicaConfig>;
  pools: PoolOptions[];
}

export interface EndpointOptions {
  endpoint: string;
  weight?: number;
  drain?: boolean;
  capacityTokens?: number;
}

export interface PoolOptions {
  name: string;
  endpoints?: (string | EndpointOptions)[];
  endpointsFile?: string;
  object?: PoolObject;
  mode?: PoolMode;
  policy?: PolicyName;
  toolsPosition?: ToolsPosition;
  blockBytes?: number;
  windowBytes?: number;
  bytesPerToken?: number;
  capacityTokens?: number;
  weights?: { prefix: number; queue: number; kv: number };
  sessionKey?: string;
  prefixHeader?: string;
  syncIntervalMs?: number;
  scrapeIntervalMs?: number;
  kvEvents?: string;
}

type Values = Record<string, unknown>;
type Reader<T> = (value: unknown, key: string) => T;

function object(value: unknown, key: string, known: readonly string[]): Values {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalid(key, value, 'an object');
  for (const name of Object.keys(value)) {
    if (known.includes(name)) continue;
    const path = key === '' ? name : `${key}.${name}`;
    const message = `${path}: unknown key; known are ${known.join(', ')}`;
    throw new ControlPlaneError('WARMPATH_CONFIG_KEY_UNKNOWN', message);
  }
  return value as Values;
}

const integer =
  (min: number, max: number): Reader<number> =>
  (value, key) => {
    if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return value as number;
    throw invalid(key, value, `an integer from ${min} to ${max}`);
  };

/** What the gateways' engine takes for a block: anything else would silently be the default there. */
const blockBytes: Reader<number> = (value, key) => {
  const { keyBlockBytesMin: min, keyBlockBytesMax: max } = LIMITS;
  if (
    Number.isInteger(value) &&
    (value as number) % min === 0 &&
    (value as number) >= min &&
    (value as number) <= max
  ) {
    return value as number;
  }
  throw invalid(key, value, `a multiple of ${min} from ${min} to ${max}`);
};

const real =
  (min: number, max: number): Reader<number> =>
  (value, key) => {
    if (typeof value === 'number' && value >= min && value <= max) return value;
    throw invalid(key, value, `a number from ${min} to ${max}`);
  };

const oneOf =
  <T extends string>(names: readonly T[]): Reader<T> =>
  (value, key) => {
    if (names.includes(value as T)) return value as T;
    throw invalid(key, value, `one of ${names.join(', ')}`);
  };

const boolean: Reader<boolean> = (value, key) => {
  if (typeof value === 'boolean') return value;
  throw invalid(key, value, 'true or false');
};

const string: Reader<string> = (value, key) => {
  if (typeof value === 'string' && value !== '') return value;
  throw invalid(key, value, 'a text that is not empty');
};

const token: Reader<string> = (value, key) => {
  if (typeof value === 'string' && /^[\x21-\x7e]{16,512}$/.test(value)) return value;
  // The value is a secret: it is not shown.
  throw invalid(key, '...', '16 to 512 visible ASCII characters');
};

const poolName: Reader<string> = (value, key) => {
  if (typeof value === 'string' && /^[A-Za-z0-9]([-A-Za-z0-9_./]{0,126}[A-Za-z0-9])?$/.test(value)) return value;
  throw invalid(key, value, 'a name of up to 128 letters, digits and -_./ between them');
};

function optional<T, D>(values: Values, name: string, key: string, read: Reader<T>, absent: D): T | D {
  const value = values[name];
  return value === undefined || value === null ? absent : read(value, key === '' ? name : `${key}.${name}`);
}

const kvEvents: Reader<string> = (value, key) => {
  if (typeof value === 'string' && readKvEvents(value) !== undefined) return value;
  throw invalid(key, value, KV_EVENTS_TYPE);
};
const sessionKey: Reader<string> = (value, key) => {
  if (typeof value === 'string' && readSessionKey(value) !== undefined) return value;
  throw invalid(key, value, SESSION_KEY_TYPE);
};
const prefixHeader: Reader<string> = (value, key) => {
  if (typeof value === 'string' && readPrefixHeader(value) !== undefined) return value;
  throw invalid(key, value, PREFIX_HEADER_TYPE);
};
const interval = integer(1, 60_000);
const scrapeInterval = integer(10, 600_000);
const capacity = integer(0, 0xffff_ffff);
/** Not 0: a pod that is to get nothing is drained. */
const podWeight = real(0.001, 1000);

function readEndpoint(value: unknown, key: string): EndpointConfig {
  if (typeof value === 'string') {
    return { address: parseAddress(value, key), weight: 1, drain: false, capacityTokens: 0, ready: true, life: null };
  }
  const values = object(value, key, ['endpoint', 'weight', 'drain', 'capacityTokens']);
  return {
    address: parseAddress(values['endpoint'], `${key}.endpoint`),
    weight: optional(values, 'weight', key, podWeight, 1),
    drain: optional(values, 'drain', key, boolean, false),
    capacityTokens: optional(values, 'capacityTokens', key, capacity, 0),
    ready: true,
    life: null,
  };
}

/** A list of endpoints, each once. */
export function readEndpoints(value: unknown, key: string): EndpointConfig[] {
  if (!Array.isArray(value)) throw invalid(key, value, 'a list of endpoints');
  if (value.length > LIMITS.pods) throw invalid(key, value.length, `at most ${LIMITS.pods} endpoints`);
  const seen = new Set<string>();
  return value.map((entry, index) => {
    const endpoint = readEndpoint(entry, `${key}[${index}]`);
    if (seen.has(endpoint.address.text)) throw invalid(`${key}[${index}]`, entry, 'an endpoint that is not yet listed');
    seen.add(endpoint.address.text);
    return endpoint;
  });
}

const POOL_KEYS = [
  'name',
  'endpoints',
  'endpointsFile',
  'object',
  'mode',
  'policy',
  'toolsPosition',
  'blockBytes',
  'windowBytes',
  'bytesPerToken',
  'capacityTokens',
  'weights',
  'sessionKey',
  'prefixHeader',
  'syncIntervalMs',
  'scrapeIntervalMs',
  'kvEvents',
] as const;

function readWeights(value: unknown, key: string): PoolConfig['weights'] {
  const values = object(value, key, ['prefix', 'queue', 'kv']);
  const weight = real(0, 1000);
  return {
    prefix: weight(values['prefix'], `${key}.prefix`),
    queue: weight(values['queue'], `${key}.queue`),
    kv: weight(values['kv'], `${key}.kv`),
  };
}

/** What Kubernetes takes for a name of the objects we deal with. */
const objectName: Reader<string> = (value, key) => {
  if (typeof value === 'string' && /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(value)) return value;
  throw invalid(key, value, 'a name of lower case letters, digits, - and .');
};

function readPoolObject(value: unknown, key: string): PoolObject {
  const values = object(value, key, ['kind', 'namespace', 'name']);
  return {
    kind: oneOf(['InferencePool', 'Service'] as const)(values['kind'], `${key}.kind`),
    namespace: objectName(values['namespace'], `${key}.namespace`),
    name: objectName(values['name'], `${key}.name`),
  };
}

function readReplica(value: unknown, key: string): ReplicaConfig {
  const values = object(value, key, ['name', 'namespace', 'podName', 'podUid', 'podIp', 'leaseSeconds']);
  return {
    name: optional(values, 'name', key, objectName, 'warmpath'),
    namespace: objectName(values['namespace'], `${key}.namespace`),
    podName: objectName(values['podName'], `${key}.podName`),
    podUid: string(values['podUid'], `${key}.podUid`),
    podIp: ipAddress(values['podIp'], `${key}.podIp`),
    leaseSeconds: optional(values, 'leaseSeconds', key, integer(2, 60), 3),
  };
}

const ipAddress: Reader<string> = (value, key) => {
  if (typeof value === 'string' && isIP(value) !== 0) return value;
  throw invalid(key, value, 'an IP address');
};

/** What setPolicy() is given beside a policy's name, checked as the configuration is. */
export function readPolicyOptions(
  value: unknown,
): Partial<Pick<PoolConfig, 'weights' | 'sessionKey' | 'prefixHeader'>> {
  const values = object(value, 'options', ['weights', 'sessionKey', 'prefixHeader']);
  const given = {
    weights: optional(values, 'weights', 'options', readWeights, undefined),
    sessionKey: optional(values, 'sessionKey', 'options', sessionKey, undefined),
    prefixHeader: optional(values, 'prefixHeader', 'options', prefixHeader, undefined),
  };
  return Object.fromEntries(Object.entries(given).filter(([, one]) => one !== undefined));
}

function readPool(value: unknown, key: string, syncIntervalMs: number, scrapeIntervalMs: number): PoolConfig {
  const values = object(value, key, POOL_KEYS);
  const get = <T, D>(name: (typeof POOL_KEYS)[number], read: Reader<T>, absent: D): T | D =>
    optional(values, name, key, read, absent);
  const endpoints = get('endpoints', readEndpoints, null);
  const endpointsFile = get('endpointsFile', string, null);
  const poolObject = get('object', readPoolObject, null);
  if ([endpoints, endpointsFile, poolObject].filter((source) => source !== null).length !== 1) {
    throw invalid(key, values['name'], 'a pool with one of endpoints, endpointsFile and object');
  }
  return {
    name: poolName(values['name'], `${key}.name`),
    endpoints,
    endpointsFile,
    object: poolObject,
    mode: get('mode', oneOf(POOL_MODES), 'active'),
    policy: get('policy', oneOf(POLICIES), 'prefill-cost'),
    toolsPosition: get('toolsPosition', oneOf(TOOLS_POSITIONS), 'auto'),
    blockBytes: get('blockBytes', blockBytes, 256),
    windowBytes: get('windowBytes', integer(0, 0xffff_ffff), 0),
    bytesPerToken: get('bytesPerToken', real(0, 64), 0),
    capacityTokens: get('capacityTokens', capacity, 0),
    weights: get('weights', readWeights, { prefix: 3, queue: 3, kv: 2 }),
    sessionKey: get('sessionKey', sessionKey, 'x-session-id'),
    prefixHeader: get('prefixHeader', prefixHeader, 'x-prefix-hash'),
    syncIntervalMs: get('syncIntervalMs', interval, syncIntervalMs),
    scrapeIntervalMs: get('scrapeIntervalMs', scrapeInterval, scrapeIntervalMs),
    kvEvents: get('kvEvents', kvEvents, 'off'),
  };
}

const KEYS = [
  'host',
  'port',
  'adminPort',
  'token',
  'secretFile',
  'scrapeIntervalMs',
  'scrapeTimeoutMs',
  'syncIntervalMs',
  'kubeconfig',
  'replica',
  'pools',
] as const;

export function readConfig(input: unknown): ControlPlaneConfig {
  const values = object(input, '', KEYS);
  const syncIntervalMs = optional(values, 'syncIntervalMs', '', interval, 50);
  const scrapeIntervalMs = optional(values, 'scrapeIntervalMs', '', scrapeInterval, 1_000);
  const list = values['pools'];
  if (!Array.isArray(list) || list.length === 0 || list.length > LIMITS.pools) {
    throw invalid('pools', list, `a list of 1 to ${LIMITS.pools} pools`);
  }
  const pools = list.map((pool, index) => readPool(pool, `pools[${index}]`, syncIntervalMs, scrapeIntervalMs));
  pools.forEach((pool, index) => {
    if (pools.findIndex((other) => other.name === pool.name) !== index) {
      throw invalid(`pools[${index}].name`, pool.name, 'a name that no other pool has');
    }
  });
  return {
    host: optional(values, 'host', '', string, '127.0.0.1'),
    port: optional(values, 'port', '', integer(0, 65_535), 0),
    adminPort: optional(values, 'adminPort', '', integer(0, 65_535), null),
    token: optional(values, 'token', '', token, null),
    secretFile: optional(values, 'secretFile', '', string, null),
    scrapeTimeoutMs: optional(values, 'scrapeTimeoutMs', '', integer(10, 60_000), 2_000),
    kubeconfig: optional(values, 'kubeconfig', '', string, null),
    replica: optional(values, 'replica', '', readReplica, null),
    pools,
  };
}

/** NAMESPACE/NAME as the command line has it; the pool is called the same. */
export function parseObjectFlag(kind: PoolObject['kind'], flag: string): { name: string; object: PoolObject } {
  const [namespace = '', name = '', ...rest] = flag.split('/');
  if (namespace === '' || name === '' || rest.length > 0) throw invalid(`--${kind}`, flag, 'NAMESPACE/NAME');
  return { name: flag, object: { kind, namespace, name } };
}

/** NAME=ENDPOINT,ENDPOINT as the command line has it. */
export function parsePoolFlag(flag: string): { name: string; endpoints: string[] } {
  const cut = flag.indexOf('=');
  const endpoints = flag.slice(cut + 1).split(',');
  if (cut < 1 || endpoints.includes('')) throw invalid('--pool', flag, 'NAME=ENDPOINT,ENDPOINT...');
  return { name: flag.slice(0, cut), endpoints };
}
