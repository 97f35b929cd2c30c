// `warmpath control-plane`: the server that gateways synchronise with, with its configuration from options or from a file.

import { Command, Option } from 'commander';
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import {
  parseObjectFlag,
  parsePoolFlag,
  type ControlPlaneOptions,
  type PoolObject,
  type PoolOptions,
} from '../control-plane/config.ts';
import { POLICIES, POOL_MODES, type PolicyName, type PoolMode } from '../control-plane/engine/frames.ts';
import { ControlPlaneError } from '../control-plane/errors.ts';
import { stderrLog } from '../control-plane/log.ts';
import { wholeNumber } from './arguments.ts';
import { messageOf, UsageError } from './errors.ts';
import { watchInterrupt } from './interrupt.ts';

const details = `
Pools
  --pool NAME=IP:PORT,IP:PORT names the endpoints; --pool NAME takes them from --endpoints-file, a YAML or JSON file that is
  watched: a list of endpoints, or a mapping from pool name to list. --config FILE gives everything instead, in the same
  words as the options of startControlPlane (pools: [{name, endpoints, policy, mode, toolsPosition, ...}]).

In Kubernetes
  --inference-pool NAMESPACE/NAME and --service NAMESPACE/NAME watch an object, its annotations and its pods; the pool is called
  NAMESPACE/NAME, which is what the filter's configuration names. Two or more replicas elect one by a Lease when the
  environment has POD_NAME, POD_NAMESPACE, POD_UID and POD_IP: all of them scrape, the active one answers gateways and is the one
  address of the Service --name (whose EndpointSlice it writes), and the pools' secret is kept in the Secret NAME-pools.

Serves
  POST /v1/sync      what gateways report and are told (docs/WIRE.md)
  GET  /v1/state     what it knows, as JSON
  GET  /metrics      for Prometheus
  GET  /healthz, /readyz

Examples
  $ npx warmpath control-plane --pool llama=10.0.0.7:8000,10.0.0.8:8000
  $ npx warmpath control-plane --pool llama --endpoints-file endpoints.yaml --port 8090
  $ npx warmpath control-plane --inference-pool llm/llama --kubeconfig ~/.kube/config
  $ npx warmpath control-plane --config control-plane.yaml --token-file token`;

interface ControlPlaneFlags {
  config?: string;
  pool?: string[];
  endpointsFile?: string;
  inferencePool?: string[];
  service?: string[];
  kubeconfig?: string;
  name?: string;
  host?: string;
  port?: number;
  adminPort?: number;
  policy?: PolicyName;
  mode?: PoolMode;
  syncInterval?: number;
  scrapeInterval?: number;
  tokenFile?: string;
  secretFile?: string;
  json?: boolean;
}

const several = (flag: string, before: string[] | undefined): string[] => [...(before ?? []), flag];

export function controlPlaneCommand(): Command {
  return new Command('control-plane')
    .summary('the server that gateways synchronise with')
    .description('Scrapes the engines of each pool and tells gateways endpoints, settings and what others learned.')
    .option('--pool <name[=endpoints]>', 'a pool; can be given several times', several)
    .option('--endpoints-file <file>', 'where pools without endpoints of their own find them; watched')
    .option('--inference-pool <namespace/name>', 'a pool as an InferencePool says; can be given several times', several)
    .option(
      '--service <namespace/name>',
      'a pool as a Service with a selector says; can be given several times',
      several,
    )
    .option('--kubeconfig <file>', 'how to reach Kubernetes (default: as a pod does)')
    .option('--name <name>', 'of the Lease and the Service of the replicas (default: warmpath)')
    .option('--config <file>', 'everything from a YAML or JSON file instead')
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)')
    .option('--port <n>', 'port to listen on, 0 for any that is free (default: 8090)', wholeNumber(0, 65_535))
    .option('--admin-port <n>', 'another port for all but sync (default: the same)', wholeNumber(0, 65_535))
    .addOption(new Option('--policy <name>', 'policy of the pools').choices(POLICIES))
    .addOption(new Option('--mode <mode>', 'mode of the pools').choices(POOL_MODES))
    .option('--sync-interval <ms>', 'how often gateways call (default: 50)', wholeNumber(1, 60_000))
    .option('--scrape-interval <ms>', 'how often engines are scraped (default: 1000)', wholeNumber(10, 600_000))
    .option('--token-file <file>', 'a file with the token that gateways must show')
    .option('--secret-file <file>', 'a file that keeps the secret of the block keys, made when absent')
    .option('--json', 'print where it listens as a JSON document')
    .addHelpText('after', details)
    .action(serve);
}

async function serve(flags: ControlPlaneFlags): Promise<void> {
  const options = optionsOf(flags);
  const { startControlPlane } = await import('../control-plane/server.ts');
  const interrupt = watchInterrupt();
  try {
    const log = stderrLog(() => Date.now());
    const server = await startControlPlane(options, { log }).catch((error: unknown) => {
      const isConfiguration = error instanceof ControlPlaneError && /_CONFIG_|_FILE_/.test(error.code);
      throw isConfiguration ? new UsageError(error.message, { cause: error.cause }) : error;
    });
    const document = { url: server.url, port: server.port, adminUrl: server.adminUrl };
    process.stdout.write(flags.json ? `${JSON.stringify(document)}\n` : `listening on ${server.url}\n`);
    await new Promise<void>((resolve) => {
      interrupt.signal.addEventListener('abort', () => resolve(), { once: true });
      if (interrupt.signal.aborted) resolve();
    });
    await server.close();
  } finally {
    interrupt.stop();
  }
}

function optionsOf(flags: ControlPlaneFlags): ControlPlaneOptions {
  const { config, json: _json, ...others } = flags;
  if (config !== undefined) {
    if (Object.keys(others).length > 0) throw new UsageError('--config gives everything, so it goes with --json only');
    return parse(readText('--config', config)) as ControlPlaneOptions;
  }
  const pools = poolsOf(flags);
  if (pools.length === 0) {
    throw new UsageError('a pool is needed: --pool NAME=IP:PORT,..., --inference-pool or --service (or --config)');
  }
  return {
    port: flags.port ?? 8090,
    ...given({
      host: flags.host,
      adminPort: flags.adminPort,
      syncIntervalMs: flags.syncInterval,
      scrapeIntervalMs: flags.scrapeInterval,
      secretFile: flags.secretFile,
      kubeconfig: flags.kubeconfig,
      replica: replicaOf(process.env, flags.name),
      token: flags.tokenFile === undefined ? undefined : readText('--token-file', flags.tokenFile).trim(),
    }),
    pools: pools.map((pool) => ({ ...pool, ...given({ policy: flags.policy, mode: flags.mode }) })),
  };
}

function poolsOf(flags: ControlPlaneFlags): PoolOptions[] {
  const objects = (kind: PoolObject['kind'], names: string[] = []): PoolOptions[] =>
    names.map((name) => {
      try {
        return parseObjectFlag(kind, name);
      } catch (error) {
        throw new UsageError(messageOf(error));
      }
    });
  return [
    ...(flags.pool ?? []).map((pool) => poolOf(pool, flags)),
    ...objects('InferencePool', flags.inferencePool),
    ...objects('Service', flags.service),
  ];
}

/** Who this replica is, from what the Deployment puts into the environment; all of it or nothing. */
function replicaOf(environment: NodeJS.ProcessEnv, name: string | undefined): ControlPlaneOptions['replica'] {
  const { POD_NAME: podName, POD_NAMESPACE: namespace, POD_UID: podUid, POD_IP: podIp } = environment;
  const known = given({ podName, namespace, podUid, podIp });
  if (Object.keys(known).length === 0) return undefined;
  if (Object.keys(known).length < 4) {
    throw new UsageError('the environment has some of POD_NAME, POD_NAMESPACE, POD_UID and POD_IP, but not all');
  }
  return { ...known, ...given({ name }) };
}

function poolOf(flag: string, { endpointsFile }: ControlPlaneFlags): PoolOptions {
  if (flag.includes('=')) {
    try {
      return parsePoolFlag(flag);
    } catch (error) {
      throw new UsageError(messageOf(error));
    }
  }
  if (endpointsFile === undefined) {
    throw new UsageError(`--pool ${flag} has no endpoints: --pool ${flag}=IP:PORT,... or --endpoints-file FILE`);
  }
  return { name: flag, endpointsFile };
}

/** Leaves out what was not given, so that defaults stay in one place: the control plane's configuration. */
function given<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}

function readText(option: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`${option} ${file} cannot be read: ${messageOf(error)}`);
  }
}
