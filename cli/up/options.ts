// The options of `up`, checked together before anything is started, so that a wrong one costs no waiting.

import { existsSync } from 'node:fs';
import type { PolicyName } from '../../control-plane/engine/frames.ts';
import type { EngineName } from '../../sim/constants.ts';
import { UsageError } from '../errors.ts';

export const workloadNames = ['W1', 'W3s'] as const;

export type WorkloadName = (typeof workloadNames)[number] | 'trace';

/** The options as commander leaves them. */
export interface UpFlags {
  once?: boolean;
  json?: boolean;
  workload?: (typeof workloadNames)[number][];
  policies: PolicyName[];
  replicas?: number;
  engine?: EngineName;
  upstream?: string[];
  model?: string;
  trace?: string;
  limit: number;
  seed: number;
  concurrency: number;
  oneByOne?: boolean;
  envoyVersion?: string;
  duration?: number;
  port: number;
}

/** One comparison: a workload on a number of replicas of an engine. */
export interface RunPlan {
  workload: WorkloadName;
  engine: EngineName;
  replicas: number;
  /** True when the shape is the one that the claims were made for; a trace is anybody's, so it has none. */
  asSpecified: boolean;
  armsAtOnce: boolean;
}

export interface UpOptions {
  plans: RunPlan[];
  policies: PolicyName[];
  upstreams: string[];
  model: string | null;
  trace: { file: string; limit: number } | null;
  seed: number;
  concurrency: number;
  envoyVersion: string | null;
  durationSeconds: number | null;
  port: number;
  once: boolean;
  json: boolean;
}

/** The shape each workload was measured in elsewhere. */
const shapes: Readonly<Record<WorkloadName, { engine: EngineName; replicas: number }>> = {
  W1: { engine: 'L4-8B', replicas: 4 },
  W3s: { engine: 'H100-8B', replicas: 4 },
  trace: { engine: '2xH100-32B', replicas: 8 },
};

export function checkOptions(flags: UpFlags): UpOptions {
  const upstreams = flags.upstream ?? [];
  if (flags.trace !== undefined && flags.workload !== undefined) {
    throw new UsageError('--trace and --workload exclude each other: a trace is a workload of its own');
  }
  if (flags.trace !== undefined && !existsSync(flags.trace)) throw new UsageError(traceAbsent(flags.trace));
  if (upstreams.length > 0 && (flags.engine !== undefined || flags.replicas !== undefined)) {
    throw new UsageError(
      '--engine and --replicas describe simulated replicas; --upstream uses real ones in their place',
    );
  }
  if (flags.model !== undefined && upstreams.length === 0) throw new UsageError('--model goes with --upstream');
  const workloads: WorkloadName[] = flags.trace === undefined ? (flags.workload ?? [...workloadNames]) : ['trace'];
  return {
    plans: workloads.map((workload) => planOf(workload, flags, upstreams.length)),
    policies: flags.policies,
    upstreams,
    model: flags.model ?? null,
    trace: flags.trace === undefined ? null : { file: flags.trace, limit: flags.limit },
    seed: flags.seed,
    concurrency: flags.concurrency,
    envoyVersion: flags.envoyVersion ?? null,
    durationSeconds: flags.duration ?? null,
    port: flags.port,
    once: flags.once ?? false,
    json: flags.json ?? false,
  };
}

function planOf(workload: WorkloadName, flags: UpFlags, upstreams: number): RunPlan {
  const shape = shapes[workload];
  const engine = flags.engine ?? shape.engine;
  const replicas = upstreams > 0 ? upstreams : (flags.replicas ?? shape.replicas);
  const asSpecified =
    workload !== 'trace' &&
    upstreams === 0 &&
    engine === shape.engine &&
    replicas === shape.replicas &&
    flags.duration === undefined;
  return {
    workload,
    engine,
    replicas,
    asSpecified,
    // Real engines are shared by all arms; simulated ones are not, and two cores carry three arms without their times changing.
    armsAtOnce: !flags.oneByOne && upstreams === 0,
  };
}

function traceAbsent(file: string): string {
  return (
    `there is no file ${file}. --trace takes a request trace in Mooncake's format, one JSON object a line:\n` +
    '  {"timestamp": MS, "input_length": TOKENS, "output_length": TOKENS, "hash_ids": [ONE FOR EACH 512 TOKENS]}\n' +
    '  Traces are not part of this repository. The Mooncake project publishes its own, conversation_trace.jsonl among them;\n' +
    '  download one and give its path.'
  );
}
