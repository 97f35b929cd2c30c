// The course of `up`: for each workload a stage is set up, every arm is driven, and the result is shown; the last stage stays up. Whatever
// happens on the way, everything that was opened is closed.

import { Closers } from '../closers.ts';
import { CommandError } from '../errors.ts';
import { orInterrupted, watchInterrupt } from '../interrupt.ts';
import { driveArms, workloadOf } from './arms.ts';
import { failures } from './claims.ts';
import type { RunPlan, UpOptions } from './options.ts';
import { Progress } from './progress.ts';
import { runReport } from './report.ts';
import type { RunResult, UpDocument } from './results.ts';
import { startStage, type Stage } from './stage.ts';

const repeatsMax = 1;
const repeatSecondsMax = 120;

interface Compared {
  run: RunResult;
  disturbed: boolean;
}

export async function up(options: UpOptions): Promise<void> {
  const progress = new Progress(process.stderr);
  const interrupt = watchInterrupt();
  const closers = new Closers();
  try {
    const runs: RunResult[] = [];
    let stage: Stage | null = null;
    for (const plan of options.plans) {
      let run: RunResult;
      for (let repeats = 0; ; repeats++) {
        await closers.closeAll();
        stage = await startStage(plan, options, closers, progress, interrupt.signal);
        const compared = await compare(stage, plan, options, progress, interrupt.signal);
        run = compared.run;
        if (repeats === repeatsMax || !isWorthRepeating(plan, options, compared)) break;
        progress.say(`${plan.workload}: not as claimed, on a machine that had no time for it; once more`);
      }
      runs.push(run);
      if (!options.json) process.stdout.write(`\n${runReport(run, plan.asSpecified)}\n`);
    }
    if (options.json) process.stdout.write(`${JSON.stringify({ runs } satisfies UpDocument, null, 2)}\n`);
    if (!options.once && stage !== null) await stayUp(stage, progress, interrupt.signal);
    else reportFailures(runs, options.plans);
  } finally {
    progress.end();
    const stuck = await closers.closeAll();
    if (stuck.length > 0) progress.say(`could not be closed in time: ${stuck.join(', ')}`);
    interrupt.stop();
  }
}

async function compare(
  stage: Stage,
  plan: RunPlan,
  options: UpOptions,
  progress: Progress,
  interrupted: AbortSignal,
): Promise<Compared> {
  // The drive ends early when somebody interrupts, and also when a part of the stage dies: nobody wants to wait for an Envoy that is gone.
  const broken = new AbortController();
  stage.broken.catch((error: unknown) => broken.abort(error));
  const signal = AbortSignal.any([interrupted, broken.signal]);
  progress.begin(plan.workload);
  const arms = await orInterrupted(driveArms(stage, plan, options, progress, signal), signal);
  progress.end();
  const run = {
    workload: plan.workload,
    engine: stage.engine,
    replicas: plan.replicas,
    arms: arms.map(({ result }) => result),
    published: workloadOf(plan, options, 0).published,
  };
  return { run, disturbed: arms.some(({ disturbed }) => disturbed) };
}

/** A measurement that the machine spoiled says nothing, good or bad; a short one is taken again when it does not show the claims. */
function isWorthRepeating(plan: RunPlan, options: UpOptions, { run, disturbed }: Compared): boolean {
  if (!disturbed || !plan.asSpecified || failures(run, true).length === 0) return false;
  return workloadOf(plan, options, 0).seconds <= repeatSecondsMax;
}

function reportFailures(runs: RunResult[], plans: RunPlan[]): void {
  const texts = runs.flatMap((run, i) =>
    failures(run, plans[i]?.asSpecified ?? false).map((verdict) => `\n  ${run.workload}: ${verdict.text}`),
  );
  if (texts.length === 0) return;
  throw new CommandError(`the comparison does not show what it should:${texts.join('')}`);
}

/** Keeps the gateway open until Ctrl-C, which is then the good end. */
async function stayUp(stage: Stage, progress: Progress, interrupted: AbortSignal): Promise<void> {
  const best = stage.arms.at(-1);
  if (best === undefined) return;
  const body = JSON.stringify({ model: stage.model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 20 });
  process.stderr.write(
    [
      '',
      'Everything stays up until Ctrl-C. To try the gateway:',
      '',
      `  curl ${best.baseUrl}/v1/chat/completions -H 'content-type: application/json' -d '${body}'`,
      '',
      ...stage.arms.map((arm) => `  gateway, ${arm.name.padEnd(17)} ${arm.baseUrl}`),
      ...stage.addresses.map(({ name, address }) => `  ${name.padEnd(26)} ${address}`),
      '',
      '',
    ].join('\n'),
  );
  const ended = new Promise<never>((_, reject) => {
    interrupted.addEventListener('abort', () => reject(interrupted.reason as Error), { once: true });
  });
  try {
    await Promise.race([stage.broken, ended]);
  } catch (error) {
    if (!interrupted.aborted) throw error;
  }
  progress.say('closing');
}
