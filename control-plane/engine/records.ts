// What stands in frames, as plain objects (docs/WIRE.md).
import type { PolicyKey } from './policies.ts';

export const POOL_MODES = ['off', 'shadow', 'active'] as const;
export type PoolMode = (typeof POOL_MODES)[number];
export const TOOLS_POSITIONS = ['auto', 'after-system', 'first'] as const;
export type ToolsPosition = (typeof TOOLS_POSITIONS)[number];

export interface PoolRecord {
  mode: PoolMode;
  /** One of POLICY_CODES; a receiver that does not know it takes the default. */
  policy: number;
  toolsPosition: ToolsPosition;
  blockBytes: number;
  windowBytes: number;
  syncIntervalMs: number;
  bytesPerToken: number;
  weights: { prefix: number; queue: number; kv: number };
  policyKey?: PolicyKey;
}

export interface EndpointRecord {
  podId: number;
  /** 16 bytes in network order, IPv4 mapped. */
  address: Uint8Array;
  port: number;
  ready: boolean;
  drain: boolean;
  weight: number;
  capacityTokens: number;
  startedSeconds: number;
}

export interface LoadRecord {
  podId: number;
  inFlight: number;
  prefillTokens: number;
  usedTokens: number;
  ageMs: number;
  slowness: number;
}

/** What an engine's metrics say. */
export interface MetricsKnown {
  running: number | null;
  waiting: number | null;
  kvUsage: number | null;
  ttftMs: number;
  ttftRequests: number;
}

export interface MetricsRecord extends MetricsKnown {
  podId: number;
  ageMs: number;
  stale: boolean;
}

/** An adapter that a pod has in use, by the hash of its name. */
export interface AdapterRecord {
  podId: number;
  hash: number;
}

/** A name of a model that has others as well, by its hash, and the hash of the name that stands for all of them. */
export interface AliasRecord {
  name: number;
  group: number;
}

export interface TouchRecord {
  podId: number;
  clear: boolean;
  timeMs: number;
  parentKey: bigint;
  keys: BigUint64Array;
  weights: Uint32Array;
}

/** All touch records of a frame as they stand in it, to be passed on without being taken apart. */
export interface TouchChunk {
  bytes: Uint8Array;
  records: number;
  keys: number;
}

export interface GatewayRecord {
  incarnation: bigint;
  touchesNext: bigint;
  workers: number;
  name: string;
}

/** Load records as plain numbers, the fields of LoadRecord in its order, one pod after the other. */
export interface LoadRows {
  count: number;
  numbers: Float64Array;
}
export const LOAD_FIELDS = 6;

export function noLoadRows(): LoadRows {
  return { count: 0, numbers: new Float64Array(0) };
}

export function loadRecords({ count, numbers }: LoadRows): LoadRecord[] {
  return Array.from({ length: count }, (_, i) => {
    const [podId = 0, inFlight = 0, prefillTokens = 0, usedTokens = 0, ageMs = 0, slowness = 0] = numbers.subarray(
      i * LOAD_FIELDS,
    );
    return { podId, inFlight, prefillTokens, usedTokens, ageMs, slowness };
  });
}

export function loadRows(records: LoadRecord[]): LoadRows {
  const numbers = records.flatMap((r) => [r.podId, r.inFlight, r.prefillTokens, r.usedTokens, r.ageMs, r.slowness]);
  return { count: records.length, numbers: Float64Array.from(numbers) };
}

/** Takes what is known of one pod from its metrics. */
export type PutMetrics = (podId: number, known: MetricsKnown, ageMs: number, stale: boolean) => void;
