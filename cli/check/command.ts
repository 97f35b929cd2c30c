// `warmpath check`: looks at a cluster before and after installing, through the same API that kubectl uses.

import { Command } from 'commander';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { objectName } from '../arguments.ts';
import { CommandError, messageOf } from '../errors.ts';
import { defaults } from '../manifests/parameters.ts';
import type { ObjectName } from '../manifests/parameters.ts';
import { assess, type Finding, type Verdict } from './findings.ts';
import { readSnapshot, type Target } from './snapshot.ts';

const details = `
What it looks at
  Before installing: Istio's and the Gateway API's kinds, the Gateway, the Service or InferencePool with its annotations and pods,
  DestinationRules that Envoy would refuse together with a pick. After installing: the filter, each patch against what this
  version has, the route and its held rule, the control plane, its Lease and endpoint, and who may sync. It changes nothing.

Exit code 1 when something is missing or wrong.

Examples
  $ npx warmpath check --gateway llm/inference-gateway --pool llm/vllm
  $ npx warmpath check --gateway llm/inference-gateway --pool llm/vllm --kubeconfig ~/.kube/config --json`;

interface CheckFlags {
  gateway: ObjectName;
  pool: ObjectName;
  route?: string;
  name: string;
  namespace: string;
  kubeconfig?: string;
  json?: boolean;
}

export function checkCommand(): Command {
  return new Command('check')
    .summary('looks at a cluster before and after installing: what is missing or wrong, what the fallback does')
    .description('Compares what is in a cluster with what Warmpath needs and has.')
    .requiredOption('--gateway <namespace/name>', 'the Gateway that picks', objectName)
    .requiredOption('--pool <namespace/name>', 'the Service or InferencePool that it picks for', objectName)
    .option('--route <name>', "name of the HTTPRoute (default: the pool's)")
    .option('--name <name>', "of the control plane's objects", defaults.name)
    .option('--namespace <name>', 'where the control plane runs', defaults.systemNamespace)
    .option('--kubeconfig <file>', 'how to reach Kubernetes (default: KUBECONFIG, else ~/.kube/config)')
    .option('--json', 'print one JSON document on standard output')
    .addHelpText('after', details)
    .action(run);
}

async function run(flags: CheckFlags): Promise<void> {
  const { gateway, pool, name, namespace: systemNamespace } = flags;
  const target: Target = { gateway, pool, route: flags.route ?? pool.name, name, systemNamespace };
  const file = flags.kubeconfig ?? process.env.KUBECONFIG ?? join(homedir(), '.kube', 'config');
  const { KubeApi } = await import('../../control-plane/kube/api.ts');
  const verdict = await (async () => assess(await readSnapshot(KubeApi.load(file), target), target))().catch(
    (error: unknown) => {
      throw new CommandError(`the cluster of ${file} cannot be asked: ${messageOf(error)}`);
    },
  );
  process.stdout.write(flags.json ? `${JSON.stringify(verdict, null, 2)}\n` : shown(verdict));
  const bad = verdict.findings.filter(({ status }) => status === 'missing' || status === 'wrong').length;
  if (bad > 0) throw new CommandError(`${bad} of ${verdict.findings.length} findings need something done`);
}

function shown({ isInstalled, findings, fallback }: Verdict): string {
  const line = ({ status, what, message }: Finding): string => `  ${status.padEnd(7)}  ${what}: ${message}\n`;
  const head = isInstalled ? 'Warmpath is installed\n' : 'Warmpath is not installed; this is what it would meet\n';
  return `${head}${findings.map(line).join('')}  fallback ${fallback}\n`;
}
