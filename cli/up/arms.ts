// Drives a workload through every arm of a stage, at the same time or one after the other, and boils each down to its row.

import { drive, type RequestRecord } from '../../sim/drive.ts';
import { traceWorkload } from '../../sim/trace.ts';
import type { Workload } from '../../sim/workload.ts';
import { workload } from '../../sim/workloads.ts';
import type { RunPlan, UpOptions } from './options.ts';
import type { Progress } from './progress.ts';
import { armResult, type ArmResult } from './results.ts';
import { podHeader, type Arm, type Stage } from './stage.ts';

/** Later than this the driver itself was late, and its times say more of this machine than of the gateway. */
const lagMsMax = 50;
/** The same for the simulated replicas, summed over the run. */
const lateMsMax = 1_000;

export interface DrivenArm {
  result: ArmResult;
  /** Whether the machine was too busy for the numbers to mean anything. */
  disturbed: boolean;
}

/** The plan's workload, the same for every arm; on real engines, which all arms share, each arm has texts of its own. */
export function workloadOf(plan: RunPlan, options: UpOptions, arm: number): Workload {
  const seed = options.upstreams.length > 0 ? options.seed + arm : options.seed;
  if (plan.workload !== 'trace') return workload(plan.workload, seed);
  return traceWorkload(options.trace?.file ?? '', options.trace?.limit, { seed });
}

export async function driveArms(
  stage: Stage,
  plan: RunPlan,
  options: UpOptions,
  progress: Progress,
  signal: AbortSignal,
): Promise<DrivenArm[]> {
  const driveOne = (arm: Arm, i: number) =>
    driveArm(stage, arm, workloadOf(plan, options, i), plan, options, progress, signal);
  if (plan.armsAtOnce) return Promise.all(stage.arms.map(driveOne));
  const results: DrivenArm[] = [];
  for (const [i, arm] of stage.arms.entries()) results.push(await driveOne(arm, i));
  return results;
}

async function driveArm(
  stage: Stage,
  arm: Arm,
  work: Workload,
  plan: RunPlan,
  options: UpOptions,
  progress: Progress,
  signal: AbortSignal,
): Promise<DrivenArm> {
  // The driver starts nothing more after its signal, but sees what is under way to its end: just what --duration means.
  const enough = options.durationSeconds === null ? [] : [AbortSignal.timeout(options.durationSeconds * 1000)];
  const { summary, records, lagMs } = await drive({
    baseUrl: arm.baseUrl,
    workload: work,
    model: stage.model,
    replicas: plan.replicas,
    podHeader,
    signal: AbortSignal.any([signal, ...enough]),
    onProgress: ({ done, inFlight, failed }) => progress.update(arm.name, { done, inFlight, failed }),
  });
  signal.throwIfAborted();
  const disturbances = disturbancesOf(lagMs.p99, await arm.lateMs());
  for (const line of [...disturbances, ...errorsOf(records)]) progress.say(`${plan.workload}, ${arm.name}: ${line}`);
  return { result: armResult(arm.name, summary), disturbed: disturbances.length > 0 };
}

/** Signs that the machine had no time for the measurement. */
function disturbancesOf(lagMs: number, lateMs: number): string[] {
  const found: string[] = [];
  if (lagMs > lagMsMax)
    found.push(`the driver ran ${lagMs.toFixed(0)} ms late at times; this machine is too busy to trust it`);
  if (lateMs > lateMsMax)
    found.push(`a replica lost ${lateMs.toFixed(0)} ms in all; this machine is too busy to trust it`);
  return found;
}

/** Why requests failed, each reason once. */
function errorsOf(records: readonly RequestRecord[]): string[] {
  const counts = new Map<string, number>();
  for (const { error } of records) if (error !== null) counts.set(error, (counts.get(error) ?? 0) + 1);
  return [...counts].map(([error, count]) => `${count} failed: ${error}`);
}
