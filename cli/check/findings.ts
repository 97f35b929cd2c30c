// What a snapshot of a cluster says about Warmpath in it: what is missing, what is wrong, and what happens to requests meanwhile. Pure: objects
// in, findings out.

import { isDeepStrictEqual } from 'node:util';
import { PodAnnotations, PoolAnnotations, settingsOf } from '../../control-plane/annotations.ts';
import { readConfig } from '../../control-plane/config.ts';
import { heldPaths } from '../../envoy/names.ts';
import type { KubeObject } from '../manifests/files.ts';
import { defaults, type AttachMode, type Parameters } from '../manifests/parameters.ts';
import { builtFiles } from '../manifests/tree.ts';
import { needed, selectorOf, type Found, type Snapshot, type Target } from './snapshot.ts';

export const statuses = ['ok', 'warning', 'missing', 'wrong'] as const;

export interface Finding {
  status: (typeof statuses)[number];
  what: string;
  message: string;
}

export interface Verdict {
  /** Whether any of Warmpath's own objects is there. */
  isInstalled: boolean;
  findings: Finding[];
  /** What the gateway does with LLM requests as things are. */
  fallback: string;
}

type Say = (status: Finding['status'], what: string, message: string) => void;

export function assess(snapshot: Snapshot, target: Target): Verdict {
  const findings: Finding[] = [];
  const say: Say = (status, what, message) => void findings.push({ status, what, message });
  const { attach, plugin } = placeOf(snapshot, target);
  const isInstalled = plugin !== null || snapshot.deployment !== null;
  for (const path of snapshot.refused) say('warning', 'access', `may not be read: ${path}`);
  cluster(snapshot, say);
  gateway(snapshot, target, say);
  pool(snapshot, target, attach, say);
  if (isInstalled) {
    chain(snapshot, target, attach, plugin, say);
    route(snapshot, target, attach, say);
    controlPlane(snapshot, target, plugin, say);
  }
  return { isInstalled, findings, fallback: fallback(snapshot, attach, plugin) };
}

/** How it is attached: as the filter's configuration says, or as what is there suggests. */
function placeOf(
  { wasmPlugins, service }: Snapshot,
  { name, pool: { name: poolName } }: Target,
): { attach: AttachMode; plugin: Found | null } {
  const plugin = wasmPlugins.find(({ metadata }) => metadata.name === `${name}-${poolName}`) ?? null;
  const clusters = (plugin?.spec?.['pluginConfig'] as { clusters?: string[] } | undefined)?.clusters ?? [];
  const isPool = plugin === null ? service === null : clusters.some((cluster) => cluster.includes('-ip-'));
  return { attach: isPool ? 'inference-pool' : 'service', plugin };
}

function cluster({ served }: Snapshot, say: Say): void {
  for (const groupVersion of needed)
    if (!served.includes(groupVersion))
      say('missing', groupVersion, 'the API server has no such group: is Istio, or the Gateway API, installed?');
  if (served.length === needed.length) say('ok', 'API groups', needed.join(', '));
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

interface Condition {
  type: string;
  status: string;
  message?: string;
}
const conditionOf = (conditions: unknown, type: string): Condition | undefined =>
  (conditions as Condition[] | undefined)?.find((condition) => condition.type === type);

function gateway(
  { gateway: found, gatewayClass }: Snapshot,
  { gateway: { namespace, name }, pool: { namespace: poolNamespace } }: Target,
  say: Say,
): void {
  const what = `Gateway ${namespace}/${name}`;
  if (found === null) return say('missing', what, 'there is no such Gateway');
  const controller = gatewayClass?.spec?.['controllerName'];
  if (controller !== undefined && controller !== 'istio.io/gateway-controller')
    return say('wrong', what, `its class belongs to ${textOf(controller)}, not to Istio`);
  const programmed = conditionOf(found.status?.['conditions'], 'Programmed');
  if (programmed?.status === 'False') say('wrong', what, `it is not programmed: ${programmed.message ?? ''}`);
  const listeners = (found.spec?.['listeners'] ?? []) as { allowedRoutes?: { namespaces?: { from?: string } } }[];
  const opens = listeners.some(({ allowedRoutes }) =>
    ['All', 'Selector'].includes(allowedRoutes?.namespaces?.from ?? 'Same'),
  );
  if (poolNamespace !== namespace && !opens)
    return say('wrong', what, `none of its listeners takes routes of the namespace ${poolNamespace}`);
  say('ok', what, 'is there');
}

function pool(snapshot: Snapshot, { pool: { namespace, name } }: Target, attach: AttachMode, say: Say): void {
  const { service, inferencePool, pods, destinationRules } = snapshot;
  const found = attach === 'service' ? service : inferencePool;
  const kind = attach === 'service' ? 'Service' : 'InferencePool';
  const what = `${kind} ${namespace}/${name}`;
  if (found === null) return say('missing', what, `there is no such ${kind}`);
  const selector = selectorOf(found);
  if (selector === null)
    return say('wrong', what, 'it selects no pods, and its pods are what the control plane follows');
  const ready = pods.filter(({ status }) => conditionOf(status?.['conditions'], 'Ready')?.status === 'True').length;
  if (ready === 0) say('wrong', what, `none of ${pods.length} pods with ${selector} is ready`);
  else say('ok', what, `${ready} of ${pods.length} pods with ${selector} are ready`);
  const [config] = readConfig({ pools: [{ name: `${namespace}/${name}`, endpoints: [] }] }).pools;
  const settings = new PoolAnnotations(settingsOf(config!));
  settings.take(found.metadata.annotations ?? {});
  for (const { message } of settings.faults) say('wrong', what, message);
  for (const pod of pods) {
    const annotations = new PodAnnotations();
    annotations.take(pod.metadata.annotations ?? {});
    for (const { message } of annotations.faults) say('wrong', `Pod ${namespace}/${pod.metadata.name}`, message);
  }
  if (attach === 'service') for (const rule of destinationRules) destinationRule(rule, { namespace, name }, say);
}

/** What Envoy refuses, or would ignore, together with override_host. */
function destinationRule(
  { metadata, spec }: Found,
  { namespace, name }: { namespace: string; name: string },
  say: Say,
): void {
  const host = textOf(spec?.['host']);
  if (![name, `${name}.${namespace}`].includes(host) && !host.startsWith(`${name}.${namespace}.svc`)) return;
  const policy = (spec?.['trafficPolicy'] ?? {}) as {
    loadBalancer?: { simple?: string; localityLbSetting?: { failoverPriority?: unknown[] } };
    outlierDetection?: object;
  };
  const what = `DestinationRule ${namespace}/${metadata.name}`;
  if (policy.loadBalancer?.simple === 'PASSTHROUGH')
    say('wrong', what, 'PASSTHROUGH: Envoy refuses the cluster with it, and the gateway keeps the old one');
  else if (
    policy.outlierDetection !== undefined &&
    policy.loadBalancer?.localityLbSetting?.failoverPriority !== undefined
  )
    say('wrong', what, 'outlierDetection with failoverPriority: Envoy refuses the cluster with them');
  else say('ok', what, 'goes with the pick');
}

/** Parameters that give the objects that should be there, taken from the filter's own where they are free. */
function expectedObjects(snapshot: Snapshot, target: Target, attach: AttachMode): KubeObject[] {
  const hold = snapshot.envoyFilters.find(({ metadata }) => metadata.name === `${target.name}-hold`);
  const bytes = /"max_request_bytes":(\d+)/.exec(JSON.stringify(hold ?? {}))?.[1];
  const port = ((snapshot.service?.spec?.['ports'] ?? []) as { port: number }[])[0]?.port;
  const parameters: Parameters = {
    ...defaults,
    name: target.name,
    systemNamespace: target.systemNamespace,
    gateway: target.gateway,
    pool: target.pool,
    route: target.route,
    attach,
    poolPort: port ?? defaults.poolPort,
    requestBytesMax: bytes === undefined ? defaults.requestBytesMax : Number(bytes),
  };
  return builtFiles(parameters).flatMap(({ objects }) => objects as KubeObject[]);
}

/** Whether everything that is wanted stands in what is there, which may have more: an API server fills in defaults. */
function contains(there: unknown, wanted: unknown): boolean {
  if (Array.isArray(wanted))
    return (
      Array.isArray(there) && there.length === wanted.length && wanted.every((item, i) => contains(there[i], item))
    );
  if (typeof wanted !== 'object' || wanted === null) return isDeepStrictEqual(there, wanted);
  if (typeof there !== 'object' || there === null) return false;
  return Object.entries(wanted).every(([key, value]) => contains((there as Record<string, unknown>)[key], value));
}

function chain(snapshot: Snapshot, target: Target, attach: AttachMode, plugin: Found | null, say: Say): void {
  const { namespace } = target.gateway;
  for (const object of expectedObjects(snapshot, target, attach).filter(({ kind }) => kind === 'EnvoyFilter')) {
    const { name } = object.metadata;
    const what = `EnvoyFilter ${namespace}/${name}`;
    const found = snapshot.envoyFilters.find(({ metadata }) => metadata.name === name);
    if (found === undefined) say('missing', what, 'without it the chain is not whole');
    else if (contains(found.spec, object['spec'])) say('ok', what, 'is as this version has it');
    else say('warning', what, 'differs from what this version has; it may be of another version, or changed by hand');
  }
  if (plugin === null)
    return say(
      'missing',
      `WasmPlugin ${namespace}/${target.name}-${target.pool.name}`,
      'the filter is not in the gateway',
    );
  wasmPlugin(plugin, target, say);
}

function wasmPlugin({ metadata, spec }: Found, { gateway: { name: gatewayName } }: Target, say: Say): void {
  const what = `WasmPlugin ${metadata.namespace}/${metadata.name}`;
  const {
    url = '',
    sha256 = '',
    failStrategy,
    targetRefs = [],
  } = (spec ?? {}) as {
    url?: string;
    sha256?: string;
    failStrategy?: string;
    targetRefs?: { name: string }[];
  };
  if (!targetRefs.some(({ name }) => name === gatewayName))
    say('wrong', what, `it is not for the Gateway ${gatewayName}`);
  if (/^0*$/.test(sha256) && !url.startsWith('file://'))
    say(
      'wrong',
      what,
      'it has no digest of the module: Istio lets everything through, silently, when the digest does not fit',
    );
  if (failStrategy !== 'FAIL_OPEN')
    say(
      'warning',
      what,
      `${failStrategy ?? 'FAIL_CLOSE'}: a module that cannot be fetched makes the gateway answer 403 to everything`,
    );
  say('ok', what, `module ${url}`);
}

function route(snapshot: Snapshot, target: Target, attach: AttachMode, say: Say): void {
  const what = `HTTPRoute ${target.pool.namespace}/${target.route}`;
  const found = snapshot.httpRoute;
  if (found === null)
    return say(
      'missing',
      what,
      'the hold is switched on for its routes; without it no request is picked for by its body',
    );
  const rules = (found.spec?.['rules'] ?? []) as {
    matches?: unknown;
    backendRefs?: { kind?: string; name: string }[];
  }[];
  const held = heldPaths.map((value) => ({ method: 'POST', path: { type: 'Exact', value } }));
  if (!contains(rules[0]?.matches, held))
    say(
      'wrong',
      what,
      'its first rule, whose requests are held, has not exactly POST to the LLM paths: others may hang',
    );
  const kind = attach === 'service' ? 'Service' : 'InferencePool';
  const misses = rules.some(
    ({ backendRefs = [] }) =>
      !backendRefs.some((ref) => ref.name === target.pool.name && (ref.kind ?? 'Service') === kind),
  );
  if (misses) say('wrong', what, `not all of its rules go to the ${kind} ${target.pool.name}`);
  const parents = (found.status?.['parents'] ?? []) as { conditions?: Condition[] }[];
  const refusal = parents
    .map(({ conditions }) => conditionOf(conditions, 'Accepted'))
    .find((condition) => condition?.status === 'False');
  if (refusal !== undefined) say('wrong', what, `the Gateway does not accept it: ${refusal.message ?? ''}`);
  else say('ok', what, parents.length > 0 ? 'is accepted' : 'is there; nobody has said yet whether it is accepted');
}

const leaseStaleMs = 15_000;

function controlPlane(snapshot: Snapshot, target: Target, plugin: Found | null, say: Say): void {
  const { deployment, lease, slice, controlPlanePods, authorizationPolicy } = snapshot;
  const what = `Deployment ${target.systemNamespace}/${target.name}`;
  if (deployment === null)
    return say(
      'missing',
      what,
      'there is no control plane: gateways learn from their own traffic only, and know no pods',
    );
  const wanted = Number(deployment.spec?.['replicas'] ?? 1);
  const ready = Number(deployment.status?.['readyReplicas'] ?? 0);
  say(ready === 0 ? 'wrong' : ready < wanted ? 'warning' : 'ok', what, `${ready} of ${wanted} replicas are ready`);
  const holder = lease?.spec?.['holderIdentity'];
  const renewedMs = Date.parse(textOf(lease?.spec?.['renewTime']));
  const leaseName = `Lease ${target.systemNamespace}/${target.name}`;
  if (typeof holder !== 'string' || holder === '') say('wrong', leaseName, 'no replica is active');
  else if (!(Date.now() - renewedMs < leaseStaleMs))
    say('wrong', leaseName, `${holder} has not renewed it lately: clocks differ, or it is gone`);
  else say('ok', leaseName, `${holder} is active`);
  if (slice === null)
    say(
      'wrong',
      `Service ${target.systemNamespace}/${target.name}`,
      'it leads nowhere: no replica has written its endpoint',
    );
  // Who may sync: the mesh asks for an account, or the control plane for a token.
  const hasToken = JSON.stringify(deployment.spec ?? {}).includes('--token-file=');
  const hasSidecar =
    controlPlanePods.length > 0 &&
    controlPlanePods.every(({ spec }) => JSON.stringify(spec ?? {}).includes('"istio-proxy"'));
  const asks = JSON.stringify(plugin?.spec ?? {}).includes('WARMPATH_SYNC_TOKEN');
  const guard = 'who may sync';
  if (hasToken !== asks && plugin !== null)
    say(
      'wrong',
      guard,
      hasToken
        ? 'the control plane wants a token that the filter does not show'
        : 'the filter shows a token that nobody asks for',
    );
  if (hasToken) say('ok', guard, 'a token');
  else if (hasSidecar && authorizationPolicy !== null) say('ok', guard, "the gateway's account, by the sidecar");
  else
    say(
      'warning',
      guard,
      'neither a sidecar nor a token was seen: unless ztunnel guards it, whoever can connect can sync',
    );
}

function fallback({ envoyFilters, gateway: found }: Snapshot, attach: AttachMode, plugin: Found | null): string {
  if (found === null) return 'there is no gateway';
  const balances = attach === 'service' && envoyFilters.some(({ metadata }) => metadata.name.endsWith('-balancing'));
  const how = balances
    ? 'by least request'
    : attach === 'service'
      ? "as Istio's load balancing is set"
      : 'by round robin';
  if (plugin === null) return `requests are balanced ${how}, without looking into them`;
  return `a request without a pick (filter gone, body unreadable, pods unknown) is balanced ${how}`;
}
