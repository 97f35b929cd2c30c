// `warmpath manifests`: what is applied to a cluster, for a given gateway, pool, route and module.

import { Command, InvalidArgumentError, Option } from 'commander';
import { existsSync } from 'node:fs';
import { objectName, wholeNumber } from '../arguments.ts';
import { CommandError, UsageError } from '../errors.ts';
import { streamText, type ManifestFile } from './files.ts';
import { attachModes, defaults, failStrategies, ParameterError, poolGroups } from './parameters.ts';
import type { AttachMode, FailStrategy, ObjectName, Parameters, PoolGroup } from './parameters.ts';
import { builtFiles, treeFiles } from './tree.ts';
import { writeFiles } from './write.ts';

const details = `
What it prints
  YAML documents for kubectl apply -f -, one concern after the other, each with a comment that says why it is there. --json
  prints the same as a List; --output writes them as a kustomize tree in place of that, with an overlay to build:
  kubectl apply -k FOLDER/overlays/service. istio/ in this repository is that tree with the defaults.

The module
  oci:// takes the digest of the image's manifest, http(s):// the SHA-256 of filter.wasm; npm run image:filter prints both.
  file:// is a path in the gateway's container, and needs none.

Two ways to attach
  service         the route goes to a Service over the engines' pods, made here when --selector is given
  inference-pool  the route goes to an InferencePool that exists, whose endpoint picker is left out

Examples
  $ npx warmpath manifests --gateway llm/inference-gateway --pool llm/vllm --selector app=vllm --hostname llm.example \\
      --module oci://registry.example/warmpath/filter:0.1.0 --sha256 SHA256 --image registry.example/warmpath/control-plane:0.1.0
  $ npx warmpath manifests --gateway llm/inference-gateway --pool llm/vllm --attach inference-pool --module ... --output istio-llm
  $ npx warmpath manifests --gateway llm/inference-gateway --pool llm/vllm --module ... --json`;

interface ManifestFlags {
  gateway: ObjectName;
  pool: ObjectName;
  module: string;
  sha256?: string;
  attach: AttachMode;
  poolGroup: PoolGroup;
  selector?: Record<string, string>;
  poolPort: number;
  route?: string;
  hostname?: string[];
  image: string;
  replicas: number;
  name: string;
  namespace: string;
  listen: string;
  gatewayServiceAccount?: string;
  failStrategy: FailStrategy;
  requestBytesMax: number;
  pods?: number;
  blocks?: number;
  streams?: number;
  token?: boolean;
  statsTags?: boolean;
  clusterDomain: string;
  trustDomain: string;
  output?: string;
  json?: boolean;
}

export function manifestsCommand(): Command {
  return new Command('manifests')
    .summary('what is applied to a cluster, for a given gateway, pool, route and module')
    .description('Prints or writes the Kubernetes and Istio objects that put Warmpath into a gateway.')
    .requiredOption('--gateway <namespace/name>', 'the Gateway that picks', objectName)
    .requiredOption('--pool <namespace/name>', 'the Service or InferencePool that it picks for', objectName)
    .requiredOption('--module <url>', 'where the gateway finds filter.wasm: oci://, https://, http:// or file://')
    .option('--sha256 <hex>', 'digest of the module')
    .addOption(
      new Option('--attach <mode>', 'how the route reaches the pods').choices(attachModes).default(defaults.attach),
    )
    .addOption(
      new Option('--pool-group <group>', 'API group of the InferencePool; Istio 1.27 watches the first')
        .choices(poolGroups)
        .default(defaults.poolGroup),
    )
    .option('--selector <key=value,...>', "labels of the engines' pods: makes a headless Service for them", labels)
    .option('--pool-port <n>', 'port of the Service and of the engines', wholeNumber(1, 65_535), defaults.poolPort)
    .option('--route <name>', "name of the HTTPRoute (default: the pool's)")
    .option('--hostname <host...>', 'hosts of the HTTPRoute (default: all)')
    .option('--image <name>', 'image of the control plane', defaults.image)
    .option('--replicas <n>', 'of the control plane', wholeNumber(1, 8), defaults.replicas)
    .option('--name <name>', "of the control plane's objects, and in front of others", defaults.name)
    .option('--namespace <name>', 'where the control plane runs', defaults.systemNamespace)
    .option('--listen <address>', 'address that the control plane listens on', defaults.listenHost)
    .option('--gateway-service-account <name>', "account of the gateway's pods (default: GATEWAY-istio)")
    .addOption(
      new Option('--fail-strategy <strategy>', 'what the gateway does when the filter fails')
        .choices(failStrategies)
        .default(defaults.failStrategy),
    )
    .option(
      '--request-bytes-max <n>',
      'largest body on the LLM paths, more is answered 413',
      wholeNumber(1 << 10, 1 << 30),
      defaults.requestBytesMax,
    )
    .option('--pods <n>', 'most pods that the filter has room for', wholeNumber(1, 1024))
    .option('--blocks <n>', 'most blocks that it remembers', wholeNumber(1024, 4_194_304))
    .option('--streams <n>', 'most requests at once of one worker', wholeNumber(16, 65_536))
    .option('--token', 'gateways show a token, for where there is no mesh identity')
    .option('--stats-tags', "labels for the filter's metrics, by the gateway's bootstrap")
    .option('--cluster-domain <domain>', 'DNS domain of the cluster', defaults.clusterDomain)
    .option('--trust-domain <domain>', 'trust domain of the mesh', defaults.trustDomain)
    .option('--output <folder>', 'write a kustomize tree there in place of printing')
    .option('--json', 'print one JSON document on standard output')
    .addHelpText('after', details)
    .action(run);
}

function run(flags: ManifestFlags): void {
  const parameters = parametersOf(flags);
  const files = made(() => (flags.output === undefined ? builtFiles(parameters) : treeFiles(parameters)));
  if (flags.output !== undefined) {
    if (existsSync(flags.output) && flags.output !== '.') throw new CommandError(`${flags.output} exists already`);
    writeFiles(flags.output, files);
    const paths = files.map(({ path }) => path);
    const overlay = `${flags.output}/overlays/${parameters.attach}`;
    process.stdout.write(
      flags.json
        ? `${JSON.stringify({ folder: flags.output, overlay, files: paths }, null, 2)}\n`
        : `wrote ${paths.length} files; apply them with: kubectl apply -k ${overlay}\n`,
    );
    return;
  }
  process.stdout.write(flags.json ? `${JSON.stringify(list(files), null, 2)}\n` : streamText(files));
}

const list = (files: readonly ManifestFile[]): object => ({
  apiVersion: 'v1',
  kind: 'List',
  items: files.flatMap(({ objects }) => objects),
});

function parametersOf(flags: ManifestFlags): Parameters {
  const { gateway, pool, module, attach } = flags;
  if (flags.sha256 === undefined && !module.startsWith('file://'))
    throw new UsageError('--sha256 is needed: without it the gateway takes whatever the address serves');
  if (attach === 'inference-pool' && flags.selector !== undefined)
    throw new UsageError("--selector goes with --attach service; an InferencePool has its pods' labels itself");
  const { pods, blocks, streams } = flags;
  return {
    name: flags.name,
    systemNamespace: flags.namespace,
    image: flags.image,
    replicas: flags.replicas,
    listenHost: flags.listen,
    gateway,
    gatewayServiceAccount: flags.gatewayServiceAccount ?? `${gateway.name}-istio`,
    attach,
    poolGroup: flags.poolGroup,
    pool,
    selector: flags.selector ?? null,
    poolPort: flags.poolPort,
    route: flags.route ?? pool.name,
    hostnames: flags.hostname ?? [],
    moduleUrl: module,
    moduleSha256: flags.sha256 ?? '',
    failStrategy: flags.failStrategy,
    requestBytesMax: flags.requestBytesMax,
    bounds: {
      ...(pods === undefined ? {} : { pods }),
      ...(blocks === undefined ? {} : { blocks }),
      ...(streams === undefined ? {} : { streams }),
    },
    token: flags.token ?? false,
    statsTags: flags.statsTags ?? false,
    clusterDomain: flags.clusterDomain,
    trustDomain: flags.trustDomain,
  };
}

function made<T>(make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (error instanceof ParameterError) throw new UsageError(error.message);
    throw error;
  }
}

function labels(text: string): Record<string, string> {
  const pairs = text.split(',').map((pair) => /^([^=]+)=([^=]*)$/.exec(pair));
  if (pairs.includes(null)) throw new InvalidArgumentError('Expected KEY=VALUE,KEY=VALUE...');
  return Object.fromEntries(pairs.map((pair) => [pair?.[1] ?? '', pair?.[2] ?? '']));
}
