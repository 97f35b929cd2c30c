// `warmpath explain POOL`: which settings of a pool are in force, where each comes from, what was refused, and who has synchronised. All of it is
// the control plane's own knowledge, asked for over HTTP.

import { Command } from 'commander';
import type { AnnotationStatus } from '../control-plane/annotations.ts';
import type { PoolSourceState } from '../control-plane/kube/pool-source.ts';
import { urlList } from './arguments.ts';
import { CommandError, messageOf, UsageError } from './errors.ts';

const details = `
What it prints
  The object that the pool comes from, each setting with the value in force and its source, what annotations say that was refused and
  why (the last good value stays), pods with annotations of their own, and the gateways with the time since they last reported.

  source: annotation = as the object says; last-good = what it says is refused, so what it said before; default = as the
  control plane was started with.

Exit code 1 when the pool is not known, cannot be used, or has annotations that are refused.

Examples
  $ npx warmpath explain llm/vllm
  $ npx warmpath explain llm/vllm --control-plane http://127.0.0.1:8091 --json`;

const timeoutMs = 10_000;

/** What is read of GET /v1/state. */
interface State {
  ready: boolean;
  active: boolean;
  replica: { name: string; active: boolean; holder: string | null } | null;
  pools: {
    name: string;
    settingsVersion: number;
    settings: Record<string, unknown>;
    endpoints: { endpoint: string; weight: number; drain: boolean; capacityTokens: number }[];
    gateways: { name: string; live: boolean; ageMs: number; workers: number }[];
    object: PoolSourceState | null;
  }[];
}

export interface Explanation {
  pool: string;
  ready: boolean;
  active: boolean;
  replica: State['replica'];
  object: Omit<PoolSourceState, 'annotations' | 'pods'> | null;
  settings: Pick<AnnotationStatus, 'key' | 'value' | 'inForce' | 'source' | 'fault' | 'message'>[];
  pods: { name: string; annotations: readonly AnnotationStatus[] }[];
  endpoints: State['pools'][number]['endpoints'];
  gateways: State['pools'][number]['gateways'];
}

export function explainCommand(): Command {
  return new Command('explain')
    .summary('the settings of a pool in force, where each comes from, and what was refused')
    .description('Asks a control plane what it knows of a pool.')
    .argument('<pool>', 'name of the pool: NAMESPACE/NAME in Kubernetes')
    .option('--control-plane <url>', 'where it answers (default: http://127.0.0.1:8090)', (text) => urlList(text)[0])
    .option('--json', 'print one JSON document on standard output')
    .addHelpText('after', details)
    .action(async (pool: string, { controlPlane = 'http://127.0.0.1:8090', json }: ExplainFlags) => {
      const explanation = explain(await stateOf(controlPlane), pool);
      process.stdout.write(json ? `${JSON.stringify(explanation, null, 2)}\n` : shown(explanation));
      const complaint = complaintOf(explanation);
      if (complaint !== null) throw new CommandError(complaint);
    });
}

interface ExplainFlags {
  controlPlane?: string;
  json?: boolean;
}

async function stateOf(url: string): Promise<State> {
  try {
    const response = await fetch(`${url}/v1/state`, { signal: AbortSignal.timeout(timeoutMs) });
    if (!response.ok) throw new Error(`it answers ${response.status}; is that the port for all but sync?`);
    return (await response.json()) as State;
  } catch (error) {
    throw new CommandError(`the control plane at ${url} cannot be asked: ${messageOf(error)}`);
  }
}

export function explain(state: State, name: string): Explanation {
  const pool = state.pools.find((candidate) => candidate.name === name);
  if (pool === undefined) {
    const known = state.pools.map((candidate) => candidate.name).join(', ');
    throw new UsageError(`the control plane knows no pool ${name}; it knows ${known === '' ? 'none yet' : known}`);
  }
  const { annotations = null, pods = [], ...object } = pool.object ?? {};
  return {
    pool: name,
    ready: state.ready,
    active: state.active,
    replica: state.replica ?? null,
    object: pool.object === null ? null : (object as Explanation['object']),
    settings: [...(annotations ?? startSettings(pool.settings))],
    pods,
    endpoints: pool.endpoints.map(({ endpoint, weight, drain, capacityTokens }) => ({
      endpoint,
      weight,
      drain,
      capacityTokens,
    })),
    gateways: pool.gateways.map(({ name: gateway, live, ageMs, workers }) => ({ name: gateway, live, ageMs, workers })),
  };
}

/** A pool that has no object has its settings from the start. */
function startSettings(settings: Record<string, unknown>): Explanation['settings'] {
  return Object.entries(settings).map(([key, value]) => ({
    key,
    value: null,
    inForce: typeof value === 'string' ? value : JSON.stringify(value),
    source: 'default',
    fault: null,
    message: null,
  }));
}

/** Null when all is well. */
function complaintOf({ pool, object, settings, pods }: Explanation): string | null {
  if (object !== null && object.unusable !== null) return `${pool} makes no pool: ${object.unusable}`;
  const rows = [...settings, ...pods.flatMap(({ annotations }) => annotations)];
  const refused = rows.filter(({ fault }) => fault !== null).length;
  return refused === 0 ? null : `${refused} of its annotations ${refused === 1 ? 'is' : 'are'} refused`;
}

function shown(explanation: Explanation): string {
  const { pool, ready, active, replica, object, settings, pods, endpoints, gateways } = explanation;
  const lines = [pool];
  if (!ready) lines.push('  the control plane is still reading the pools');
  if (!active)
    lines.push(`  this replica is a standby; ${replica?.holder ?? 'nobody'} is active and knows the gateways`);
  if (object !== null) {
    const where = `${object.kind} ${object.namespace}/${object.name}`;
    lines.push(`  from       ${where}, ${object.apiVersion ?? 'which does not exist'}`);
    lines.push(`  selects    ${object.selector ?? '-'}, ports ${object.ports.join(', ') || '-'}`);
  }
  lines.push('  settings');
  const keyChars = Math.max(...settings.map(({ key }) => key.length));
  for (const { key, inForce, source, message } of settings) {
    lines.push(`    ${key.padEnd(keyChars)}  ${inForce.padEnd(14)}  ${source}`);
    if (message !== null) lines.push(`      refused: ${message}`);
  }
  for (const { name, annotations } of pods) {
    lines.push(`  pod ${name}`);
    for (const { key, inForce, message } of annotations)
      lines.push(`    ${key} ${inForce}${message === null ? '' : `, refused: ${message}`}`);
  }
  lines.push(`  endpoints  ${endpoints.length === 0 ? 'none' : ''}`.trimEnd());
  for (const { endpoint, weight, drain, capacityTokens } of endpoints)
    lines.push(`    ${endpoint}  ${capacityTokens} tokens, weight ${weight}${drain ? ', draining' : ''}`);
  lines.push(`  gateways   ${gateways.length === 0 ? 'none has reported' : ''}`.trimEnd());
  for (const { name, live, ageMs, workers } of gateways)
    lines.push(`    ${name}  ${workers} workers, ${live ? 'live' : 'silent'}, reported ${Math.round(ageMs)} ms ago`);
  return `${lines.join('\n')}\n`;
}
