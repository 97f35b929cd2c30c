// Who may do what: what the control plane may ask of the API server, and who may reach it. Every verb that is granted here is used,
// and nothing else is asked for.

import { kubeObject, type KubeObject, type ManifestFile } from './files.ts';
import { podLabels } from './control-plane.ts';
import { adminPort, poolGroups, syncPort, type ObjectName, type Parameters } from './parameters.ts';

interface Rule {
  apiGroups: string[];
  resources: string[];
  resourceNames?: string[];
  verbs: string[];
}

function role(parameters: Parameters, where: ObjectName, rules: Rule[]): KubeObject[] {
  const { name, namespace } = where;
  return [
    kubeObject('rbac.authorization.k8s.io/v1', 'Role', { name, namespace }, { rules }),
    kubeObject(
      'rbac.authorization.k8s.io/v1',
      'RoleBinding',
      { name, namespace },
      {
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name },
        subjects: [{ kind: 'ServiceAccount', name: parameters.name, namespace: parameters.systemNamespace }],
      },
    ),
  ];
}

/** What the replicas need in their own namespace. */
export function ownRoleFile(parameters: Parameters): ManifestFile {
  const { name, systemNamespace: namespace } = parameters;
  return {
    path: 'base/role.yaml',
    comment:
      'What the replicas need in their own namespace: the Lease by which one of them is elected, the endpoint of the Service that leads to ' +
      "it, and the Secret with the pools' secret, which the first replica makes. Making an object cannot be limited to a name.",
    objects: role(parameters, { namespace, name }, [
      { apiGroups: ['coordination.k8s.io'], resources: ['leases'], verbs: ['create'] },
      { apiGroups: ['coordination.k8s.io'], resources: ['leases'], resourceNames: [name], verbs: ['get', 'update'] },
      { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['create'] },
      {
        apiGroups: ['discovery.k8s.io'],
        resources: ['endpointslices'],
        resourceNames: [`${name}-active`],
        verbs: ['update'],
      },
      { apiGroups: [''], resources: ['secrets'], verbs: ['create'] },
      { apiGroups: [''], resources: ['secrets'], resourceNames: [`${name}-pools`], verbs: ['get', 'update'] },
    ]),
  };
}

/** What it needs where the pool is. */
export function poolRoleFile(parameters: Parameters, folder: string): ManifestFile {
  const { name, attach, pool } = parameters;
  const object: Rule =
    attach === 'service'
      ? { apiGroups: [''], resources: ['services'], verbs: ['list', 'watch'] }
      : { apiGroups: [...poolGroups], resources: ['inferencepools'], verbs: ['list', 'watch'] };
  return {
    path: `${folder}/pool-role.yaml`,
    comment:
      "What the control plane needs where the pool is: to watch the pool's object with its annotations and the pods behind it, and to write an " +
      'Event where an annotation is wrong.',
    objects: role(parameters, { namespace: pool.namespace, name: `${name}-${pool.name}` }, [
      object,
      { apiGroups: [''], resources: ['pods'], verbs: ['list', 'watch'] },
      { apiGroups: [''], resources: ['events'], verbs: ['create'] },
    ]),
  };
}

export function networkPolicyFile(parameters: Parameters): ManifestFile {
  const { name, systemNamespace: namespace, gateway } = parameters;
  const gatewayPods = {
    namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': gateway.namespace } },
    podSelector: { matchLabels: { 'gateway.networking.k8s.io/gateway-name': gateway.name } },
  };
  return {
    path: 'base/network-policy.yaml',
    comment:
      "Who reaches the control plane's ports: the gateway's pods the one for sync (and the mesh's tunnel, where there is one), everybody in " +
      'the cluster the one for metrics and state. What it reaches itself is not restricted.',
    objects: [
      kubeObject(
        'networking.k8s.io/v1',
        'NetworkPolicy',
        { name, namespace },
        {
          spec: {
            podSelector: { matchLabels: podLabels(parameters) },
            policyTypes: ['Ingress'],
            ingress: [
              {
                from: [gatewayPods],
                ports: [
                  { protocol: 'TCP', port: syncPort },
                  { protocol: 'TCP', port: 15008 },
                ],
              },
              { from: [{ namespaceSelector: {} }], ports: [{ protocol: 'TCP', port: adminPort }] },
            ],
          },
        },
      ),
    ],
  };
}

export function authorizationPolicyFile(parameters: Parameters): ManifestFile {
  const { name, systemNamespace: namespace, gateway, gatewayServiceAccount, trustDomain } = parameters;
  return {
    path: 'base/authorization-policy.yaml',
    comment:
      "Who may sync: the gateway's service account, as the mesh knows it by its certificate. Anyone else is refused by the sidecar (403) " +
      'before the control plane sees a byte. It speaks of accounts and ports only, so ztunnel can enforce it as well. Without sidecar and ' +
      'ztunnel it does nothing: use the component token there.',
    objects: [
      kubeObject(
        'security.istio.io/v1',
        'AuthorizationPolicy',
        { name, namespace },
        {
          spec: {
            selector: { matchLabels: podLabels(parameters) },
            action: 'ALLOW',
            rules: [
              {
                from: [
                  {
                    source: {
                      principals: [`${trustDomain}/ns/${gateway.namespace}/sa/${gatewayServiceAccount}`],
                    },
                  },
                ],
                to: [{ operation: { ports: [String(syncPort)] } }],
              },
              { to: [{ operation: { ports: [String(adminPort)] } }] },
            ],
          },
        },
      ),
    ],
  };
}
