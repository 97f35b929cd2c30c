// llm-d's endpoint picker (EPP), where somebody names a binary of it: EPP_BIN, and EPP_ARGS for more arguments. It is set up as llm-d's guide for
// deployments without Kubernetes says: pods from a file, and the guide's scorers with their weights. The configuration is that
// of llm-d-router 0.10.
import { access, constants, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { socketAddress } from '../../envoy/cluster.ts';
import { freePort } from '../../envoy/ports.ts';
import { startChild, type Child } from './child.ts';

export interface PickerCommand {
  command: string;
  args: string[];
}

export interface RunningPicker extends Child {
  /** Where it serves ext_proc. */
  endpoint: string;
  /** As it tells it. */
  version: string;
}

const SCORERS = {
  'queue-scorer': 2,
  'kv-cache-utilization-scorer': 2,
  'prefix-cache-scorer': 3,
  'no-hit-lru-scorer': 2,
};

/** What EPP_BIN and EPP_ARGS name, or null without EPP_BIN. */
export async function pickerCommand(environment: NodeJS.ProcessEnv): Promise<PickerCommand | null> {
  const { EPP_BIN: command = '', EPP_ARGS: args = '' } = environment;
  if (command === '') return null;
  await access(command, constants.X_OK).catch((error: unknown) => {
    throw new Error(`EPP_BIN names no program that can be run: ${command}`, { cause: error });
  });
  return { command, args: args.split(/\s+/).filter((arg) => arg !== '') };
}

/** YAML, as all JSON is. */
export const endpointsFile = (workers: readonly string[]): object => ({
  endpoints: workers.map((endpoint, i) => {
    const { address, port_value: port } = socketAddress(endpoint);
    return { name: `worker-${i}`, address, port: String(port) };
  }),
});

export function configFile(endpointsPath: string): object {
  const own = (type: string, parameters?: object): object => ({ name: type, type, ...(parameters && { parameters }) });
  return {
    apiVersion: 'llm-d.ai/v1alpha1',
    kind: 'EndpointPickerConfig',
    plugins: [
      own('file-discovery', { path: endpointsPath }),
      ...Object.keys(SCORERS).map((type) => own(type)),
      own('metrics-data-source'),
      own('core-metrics-extractor'),
    ],
    schedulingProfiles: [
      {
        name: 'default',
        plugins: Object.entries(SCORERS).map(([pluginRef, weight]) => ({ pluginRef, weight })),
      },
    ],
    dataLayer: {
      injectDefaults: false,
      discovery: { pluginRef: 'file-discovery' },
      sources: [{ pluginRef: 'metrics-data-source', extractors: [{ pluginRef: 'core-metrics-extractor' }] }],
    },
  };
}

export async function startPicker(
  { command, args }: PickerCommand,
  workers: readonly string[],
): Promise<RunningPicker> {
  const directory = await mkdtemp(join(tmpdir(), 'warmpath-epp-'));
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true });
  try {
    const [endpoints, config] = [join(directory, 'endpoints.yaml'), join(directory, 'config.yaml')];
    await writeFile(endpoints, JSON.stringify(endpointsFile(workers)));
    await writeFile(config, JSON.stringify(configFile(endpoints)));
    const [port, healthPort, metricsPort] = [await freePort(), await freePort(), await freePort()];
    const flags = {
      'config-file': config,
      'pool-name': 'file-discovery',
      'pool-namespace': 'default',
      'grpc-port': port,
      'grpc-health-port': healthPort,
      'metrics-port': metricsPort,
      'secure-serving': false,
      // Nobody listens for traces here.
      tracing: false,
      v: 2,
    };
    let version = '';
    const child = await startChild({
      name: `EPP_BIN (${command})`,
      command,
      args: [...Object.entries(flags).map(([name, value]) => `--${name}=${value}`), ...args],
      isReady: async () => {
        version = await versionOf(metricsPort);
        return version !== '' && listens(port);
      },
    });
    const stop = async (): Promise<void> => {
      await child.stop();
      await remove();
    };
    return { ...child, stop, endpoint: `127.0.0.1:${port}`, version };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** It listens when it has read the file of its pods. */
function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

/** Empty while it does not answer. */
async function versionOf(metricsPort: number): Promise<string> {
  try {
    const answer = await fetch(`http://127.0.0.1:${metricsPort}/metrics`);
    return /build_ref="([^"]+)"/.exec(await answer.text())?.[1] ?? 'of unknown version';
  } catch {
    return '';
  }
}
