// Puts the files together as a kustomize tree: base/ has what does not depend on how the route reaches the pods, overlays/ has one
// folder for each way, components/ what is wanted in some clusters only. The folder istio/ of this repository is this tree for the
// default parameters, and `warmpath manifests` prints what building it with kustomize gives: one source for both.

import { authorizationPolicyFile, networkPolicyFile, ownRoleFile, poolRoleFile } from './access.ts';
import * as controlPlane from './control-plane.ts';
import type { KubeObject, ManifestFile } from './files.ts';
import * as gateway from './gateway.ts';
import { checkParameters, poolName, type AttachMode, type Parameters } from './parameters.ts';
import * as pool from './pool.ts';

interface Patch {
  target: { kind: string; name: string };
  operations: { op: 'add'; path: string; value: unknown }[];
}

/** A folder of the tree: its own files, what it builds on, and what it changes in that. */
export interface Folder {
  path: string;
  comment: string;
  files: ManifestFile[];
  below: string[];
  components: string[];
  patches: Patch[];
  isComponent?: boolean;
}

const containerPath = '/spec/template/spec/containers/0';

const withComment = (comment: string, rest: Omit<Folder, 'comment'>): Folder => ({ comment, ...rest });

function base(parameters: Parameters): Folder {
  return withComment('What does not depend on how the route reaches the pods. Use an overlay, which builds on this.', {
    path: 'base',
    below: [],
    components: [],
    patches: [],
    files: [
      controlPlane.namespaceFile(parameters),
      controlPlane.serviceAccountFile(parameters),
      ownRoleFile(parameters),
      controlPlane.serviceFile(parameters),
      controlPlane.deploymentFile(parameters),
      controlPlane.disruptionBudgetFile(parameters),
      networkPolicyFile(parameters),
      authorizationPolicyFile(parameters),
      gateway.holdFile(parameters),
      gateway.steerFile(parameters),
    ],
  });
}

const overlayComments: Record<AttachMode, string> = {
  service:
    "The route goes to a Service over the engines' pods. This is the way to begin with: it needs no InferencePool.",
  'inference-pool': 'The route goes to an InferencePool, whose endpoint picker is left out.',
};

function overlay(parameters: Parameters): Folder {
  const { attach, name, selector } = parameters;
  const path = `overlays/${attach}`;
  const common = [
    poolRoleFile(parameters, path),
    pool.httpRouteFile(parameters, path),
    gateway.wasmPluginFile(parameters, path),
    gateway.heldRoutesFile(parameters, path),
    gateway.balancingFile(parameters, path),
  ];
  const own =
    attach === 'service'
      ? selector === null
        ? []
        : [pool.serviceFile(parameters, path)]
      : [gateway.feedFile(parameters, path), gateway.withoutPickerFile(parameters, path)];
  const argument = attach === 'service' ? '--service' : '--inference-pool';
  return withComment(overlayComments[attach], {
    path,
    below: ['base'],
    components: [
      ...(parameters.token ? ['components/token'] : []),
      ...(parameters.statsTags ? ['components/stats-tags'] : []),
    ],
    files: [...own, ...common],
    patches: [
      {
        target: { kind: 'Deployment', name },
        operations: [{ op: 'add', path: `${containerPath}/args/-`, value: `${argument}=${poolName(parameters)}` }],
      },
    ],
  });
}

function tokenComponent(parameters: Parameters): Folder {
  const { name } = parameters;
  const secretName = controlPlane.tokenSecret(parameters);
  return withComment(
    `A token for gateways that have no mesh identity. It is in a Secret ${secretName} with the key token, which you make in the control plane's ` +
      "namespace and in the gateway's; the gateway's pods get it as WARMPATH_SYNC_TOKEN (gateway-environment.yaml). It never stands in the " +
      "plugin's configuration, which everyone who can read WasmPlugins could read.",
    {
      path: 'components/token',
      isComponent: true,
      below: [],
      components: [],
      files: [gatewayEnvironmentFile(parameters)],
      patches: [
        {
          target: { kind: 'Deployment', name },
          operations: [
            { op: 'add', path: `${containerPath}/args/-`, value: `--token-file=${controlPlane.tokenPath}/token` },
            {
              op: 'add',
              path: `${containerPath}/volumeMounts`,
              value: [{ name: 'token', mountPath: controlPlane.tokenPath, readOnly: true }],
            },
            {
              op: 'add',
              path: '/spec/template/spec/volumes',
              value: [{ name: 'token', secret: { secretName, items: [{ key: 'token', path: 'token' }] } }],
            },
          ],
        },
        {
          target: { kind: 'WasmPlugin', name: gateway.pluginObjectName(parameters) },
          operations: [{ op: 'add', path: '/spec/vmConfig', value: { env: [gateway.tokenVariable] } }],
        },
      ],
    },
  );
}

function gatewayEnvironmentFile(parameters: Parameters): ManifestFile {
  const { name } = parameters;
  const variable = {
    name: gateway.tokenVariable.name,
    valueFrom: { secretKeyRef: { name: controlPlane.tokenSecret(parameters), key: 'token' } },
  };
  return controlPlane.gatewayParametersFile(parameters, {
    path: 'components/token/gateway-environment.yaml',
    name: `${name}-gateway`,
    comment:
      "The environment of the gateway's pods, for gateways that Istio deploys: name this ConfigMap in the Gateway's " +
      'spec.infrastructure.parametersRef. A gateway of the Helm chart takes the same variable from its value envVarFrom.',
    env: [variable],
  });
}

function statsTagsComponent(parameters: Parameters): Folder {
  const path = 'components/stats-tags';
  return withComment("Labels for the filter's metrics. Without it they carry the same in their names.", {
    path,
    isComponent: true,
    below: [],
    components: [],
    files: [gateway.statsTagsFile(parameters, path)],
    patches: [],
  });
}

/** All folders for these parameters, whichever components they use: a tree offers both. */
export function folders(parameters: Parameters): Folder[] {
  checkParameters(parameters);
  return [base(parameters), overlay(parameters), tokenComponent(parameters), statsTagsComponent(parameters)];
}

const relative = (from: string, to: string): string => `${'../'.repeat(from.split('/').length)}${to}`;

export function kustomizationFile(folder: Folder): ManifestFile {
  const { path, comment, files, below, components, patches, isComponent } = folder;
  return {
    path: `${path}/kustomization.yaml`,
    comment,
    objects: [
      {
        apiVersion: isComponent ? 'kustomize.config.k8s.io/v1alpha1' : 'kustomize.config.k8s.io/v1beta1',
        kind: isComponent ? 'Component' : 'Kustomization',
        resources: [
          ...below.map((other) => relative(path, other)),
          ...files.map((file) => file.path.slice(path.length + 1)),
        ],
        ...(components.length > 0 ? { components: components.map((other) => relative(path, other)) } : {}),
        ...(patches.length > 0
          ? { patches: patches.map(({ target, operations }) => ({ target, patch: JSON.stringify(operations) })) }
          : {}),
      },
    ],
  };
}

/** The tree as files. */
export function treeFiles(parameters: Parameters): ManifestFile[] {
  return folders(parameters).flatMap((folder) => [kustomizationFile(folder), ...folder.files]);
}

function patched(object: KubeObject, patches: readonly Patch[]): KubeObject {
  const copy = structuredClone(object);
  for (const { target, operations } of patches) {
    if (target.kind !== copy.kind || target.name !== copy.metadata.name) continue;
    for (const { path, value } of operations) {
      const keys = path.split('/').slice(1);
      const last = keys.pop() ?? '';
      const parent = keys.reduce<Record<string, unknown>>((at, key) => at[key] as Record<string, unknown>, copy);
      if (Array.isArray(parent)) parent.push(value);
      else parent[last] = value;
    }
  }
  return copy;
}

/** What building the overlay with kustomize gives, file by file: what is applied to a cluster. */
export function builtFiles(parameters: Parameters): ManifestFile[] {
  const all = folders(parameters);
  const top = all.find(({ path }) => path.startsWith('overlays/'));
  if (top === undefined) throw new Error('a tree has an overlay');
  const used = all.filter(({ path }) => path === top.path || [...top.below, ...top.components].includes(path));
  // As kustomize does it: components first, then what the overlay itself changes.
  const patches = [...used.filter((folder) => folder !== top), top].flatMap((folder) => folder.patches);
  return used.flatMap(({ files }) =>
    files.map((file) => ({ ...file, objects: file.objects.map((object) => patched(object as KubeObject, patches)) })),
  );
}
