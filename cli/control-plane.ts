// `warmpath control-plane`: the server that gateways synchronise with, with its configuration from options or from a file.

import { Command, Option } from 'commander';
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { parsePoolFlag, type ControlPlaneOptions, type PoolOptions } from '../control-plane/config.ts';
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

Serves
  POST /v1/sync      what gateways report and are told (docs/WIRE.md)
  GET  /v1/state     what it knows, as JSON
  GET  /metrics      for Prometheus
  GET  /healthz, /readyz

Examples
  $ npx warmpath control-plane --pool llama=10.0.0.7:8000,10.0.0.8:8000
  $ npx warmpath control-plane --pool llama --endpoints-file endpoints.yaml --port 8090
  $ npx warmpath control-plane --config control-plane.yaml --token-file token`;

interface ControlPlaneFlags {
  config?: string;
  pool?: string[];
  endpointsFile?: string;
  host?: string;
  port?: number;
  policy?: PolicyName;
  mode?: PoolMode;
  syncInterval?: number;
  scrapeInterval?: number;
  tokenFile?: string;
  secretFile?: string;
  json?: boolean;
}

export function controlPlaneCommand(): Command {
  return new Command('control-plane')
    .summary('the server that gateways synchronise with')
    .description('Scrapes the engines of each pool and tells gateways endpoints, settings and what others learned.')
    .option(
      '--pool <name[=endpoints]>',
      'a pool; can be given several times',
      (flag: string, before: string[] | undefined) => [...(before ?? []), flag],
    )
    .option('--endpoints-file <file>', 'where pools without endpoints of their own find them; watched')
    .option('--config <file>', 'everything from a YAML or JSON file instead')
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)')
    .option('--port <n>', 'port to listen on, 0 for any that is free (default: 8090)', wholeNumber(0, 65_535))
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
    const document = { url: server.url, port: server.port };
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
  if (flags.pool === undefined)
    throw new UsageError('--pool NAME=IP:PORT,... is needed, once for each pool (or --config)');
  return {
    port: flags.port ?? 8090,
    ...given({
      host: flags.host,
      syncIntervalMs: flags.syncInterval,
      scrapeIntervalMs: flags.scrapeInterval,
      secretFile: flags.secretFile,
      token: flags.tokenFile === undefined ? undefined : readText('--token-file', flags.tokenFile).trim(),
    }),
    pools: flags.pool.map((pool) => ({ ...poolOf(pool, flags), ...given({ policy: flags.policy, mode: flags.mode }) })),
  };
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
