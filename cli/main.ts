// The command line: one program, its commands registered by the files beside this one, and the exit codes in one place
// (0 done, 1 failed, 2 used wrongly).

import { Command, CommanderError } from 'commander';
import { readFileSync } from 'node:fs';
import { checkCommand } from './check/command.ts';
import { controlPlaneCommand } from './control-plane.ts';
import { messageOf, UsageError } from './errors.ts';
import { explainCommand } from './explain.ts';
import { keysCommand } from './keys.ts';
import { manifestsCommand } from './manifests/command.ts';
import { replayCommand } from './replay.ts';
import { upCommand } from './up/command.ts';

export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;

const hint = '(--help shows what there is)';

const teaching = `
Examples
  $ npx warmpath up                         the demo: a real Envoy, simulated replicas, three policies side by side
  $ npx warmpath up --once --json           the same comparison for a program to read, then exit
  $ npx warmpath up --upstream http://10.0.0.7:8000 http://10.0.0.8:8000
                                            your own engines in place of simulated ones
  $ npx warmpath keys request.json          how the filter reads a request: model, tokens, block keys
  $ npx warmpath replay W3s --seeds 3       policies compared in virtual time, on a named workload or a trace
  $ npx warmpath control-plane --pool llama=10.0.0.7:8000,10.0.0.8:8000
                                            the server that gateways synchronise with
  $ npx warmpath manifests --gateway llm/inference-gateway --pool llm/vllm --module ... --sha256 ...
                                            what is applied to a cluster with Istio
  $ npx warmpath check --gateway llm/inference-gateway --pool llm/vllm
                                            what is missing or wrong in a cluster
  $ npx warmpath explain llm/vllm           its settings in force, where each comes from, what was refused

Every command has --help and --json. Exit codes: 0 done, 1 failed, 2 used wrongly.`;

/** The whole program, ready to parse. A fresh one each time, because commander keeps parsed values in it. */
export function program(): Command {
  const version = (JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string })
    .version;
  const warmpath = new Command('warmpath')
    .description(
      'Sends each LLM request to the replica that already holds the longest part of its prompt, from inside Envoy.',
    )
    .version(version)
    .addHelpText('after', teaching)
    .helpCommand(false);
  for (const command of [
    upCommand(),
    keysCommand(),
    replayCommand(),
    controlPlaneCommand(),
    manifestsCommand(),
    explainCommand(),
    checkCommand(),
  ])
    warmpath.addCommand(command);
  for (const command of [warmpath, ...warmpath.commands]) {
    command.exitOverride().showHelpAfterError(hint).configureHelp({ helpWidth: 118 });
  }
  return warmpath;
}

/** Runs one command line and gives its exit code. */
export async function main(args: readonly string[]): Promise<number> {
  // Whoever reads our output may stop early, as `head` does; that is no failure of ours.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    process.exit(0);
  });
  try {
    await program().parseAsync(args, { from: 'user' });
    return 0;
  } catch (error) {
    return exitCodeOf(error);
  }
}

function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) {
    // Commander has already printed; help that was asked for is a success, help in place of a missing command is not.
    return error.exitCode === 0 ? 0 : EXIT_USAGE;
  }
  process.stderr.write(`warmpath: ${messageOf(error)}\n`);
  if (error instanceof UsageError) {
    process.stderr.write(`${hint}\n`);
    return EXIT_USAGE;
  }
  if (process.env.WARMPATH_DEBUG && error instanceof Error) process.stderr.write(`${error.stack}\n`);
  return EXIT_FAILED;
}
