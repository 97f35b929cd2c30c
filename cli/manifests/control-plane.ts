// The control plane's own objects: where it runs, how it is reached, and how it survives the loss of a node.

import { kubeObject, yamlOf, type ManifestFile } from './files.ts';
import { adminPort, syncPort, type Parameters } from './parameters.ts';

export const podLabels = ({ name }: Parameters): Record<string, string> => ({
  'app.kubernetes.io/name': name,
  'app.kubernetes.io/component': 'control-plane',
});

export const tokenPath = '/etc/warmpath/token';
export const tokenSecret = ({ name }: Parameters): string => `${name}-sync-token`;

export function namespaceFile({ systemNamespace }: Parameters): ManifestFile {
  return {
    path: 'base/namespace.yaml',
    comment: 'Where the control plane runs: a namespace of its own, so that what it may do can be said by namespace.',
    objects: [kubeObject('v1', 'Namespace', { name: systemNamespace })],
  };
}

export function serviceAccountFile({ name, systemNamespace: namespace }: Parameters): ManifestFile {
  return {
    path: 'base/service-account.yaml',
    comment: "The control plane's identity, to the API server and to the mesh.",
    objects: [kubeObject('v1', 'ServiceAccount', { name, namespace })],
  };
}

export function serviceFile(parameters: Parameters): ManifestFile {
  const { name, systemNamespace: namespace } = parameters;
  return {
    path: 'base/service.yaml',
    comment:
      'How the control plane is reached. Gateways sync with the active replica only: the first Service has no selector, since that replica ' +
      'writes its endpoint itself, as soon as it is elected. The second one is for metrics and state, which every replica has.',
    objects: [
      kubeObject(
        'v1',
        'Service',
        { name, namespace },
        { spec: { ports: [{ name: 'http', port: syncPort, targetPort: syncPort, appProtocol: 'http' }] } },
      ),
      kubeObject(
        'v1',
        'Service',
        { name: `${name}-admin`, namespace },
        {
          spec: {
            selector: podLabels(parameters),
            ports: [{ name: 'admin', port: adminPort, targetPort: 'admin', appProtocol: 'http' }],
          },
        },
      ),
    ],
  };
}

/** Which pool it serves is said by the overlay. */
export function deploymentFile(parameters: Parameters): ManifestFile {
  const { name, systemNamespace: namespace, replicas, image, listenHost } = parameters;
  const labels = podLabels(parameters);
  const field = (env: string, fieldPath: string): object => ({ name: env, valueFrom: { fieldRef: { fieldPath } } });
  const probe = (path: string, periodSeconds: number, failureThreshold: number): object => ({
    httpGet: { path, port: 'admin' },
    periodSeconds,
    failureThreshold,
    timeoutSeconds: 2,
  });
  const container = {
    name: 'control-plane',
    image,
    args: [
      'control-plane',
      `--name=${name}`,
      `--host=${listenHost}`,
      `--port=${syncPort}`,
      `--admin-port=${adminPort}`,
    ],
    env: [
      field('POD_NAME', 'metadata.name'),
      field('POD_NAMESPACE', 'metadata.namespace'),
      field('POD_UID', 'metadata.uid'),
      field('POD_IP', 'status.podIP'),
    ],
    ports: [
      { name: 'sync', containerPort: syncPort },
      { name: 'admin', containerPort: adminPort },
    ],
    startupProbe: probe('/healthz', 1, 60),
    livenessProbe: probe('/healthz', 10, 3),
    readinessProbe: probe('/readyz', 2, 2),
    resources: { requests: { cpu: '250m', memory: '256Mi' }, limits: { memory: '512Mi' } },
    securityContext: {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    },
  };
  return {
    path: 'base/deployment.yaml',
    comment:
      'Two replicas of the control plane. Both know everything, one is elected by a Lease and answers gateways; the other takes over within ' +
      'seconds. They run without root, without capabilities and on a file system that they cannot write to. The label of the mesh asks for a ' +
      'sidecar, which guards the sync port (authorization-policy.yaml).',
    objects: [
      kubeObject(
        'apps/v1',
        'Deployment',
        { name, namespace, labels },
        {
          spec: {
            replicas,
            selector: { matchLabels: labels },
            strategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } },
            template: {
              metadata: {
                labels: { ...labels, 'sidecar.istio.io/inject': 'true' },
                annotations: {
                  'prometheus.io/scrape': 'true',
                  'prometheus.io/port': String(adminPort),
                  'prometheus.io/path': '/metrics',
                },
              },
              spec: {
                serviceAccountName: name,
                terminationGracePeriodSeconds: 15,
                securityContext: {
                  runAsNonRoot: true,
                  runAsUser: 65532,
                  runAsGroup: 65532,
                  seccompProfile: { type: 'RuntimeDefault' },
                },
                topologySpreadConstraints: [
                  {
                    maxSkew: 1,
                    topologyKey: 'kubernetes.io/hostname',
                    whenUnsatisfiable: 'ScheduleAnyway',
                    labelSelector: { matchLabels: labels },
                  },
                ],
                containers: [container],
              },
            },
          },
        },
      ),
    ],
  };
}

export function disruptionBudgetFile(parameters: Parameters): ManifestFile {
  const { name, systemNamespace: namespace } = parameters;
  return {
    path: 'base/disruption-budget.yaml',
    comment: 'A drained node takes one replica at most: the other one must be there to take over.',
    objects: [
      kubeObject(
        'policy/v1',
        'PodDisruptionBudget',
        { name, namespace },
        { spec: { minAvailable: 1, selector: { matchLabels: podLabels(parameters) } } },
      ),
    ],
  };
}

/** Settings of the pods of a gateway that Istio deploys. */
export function gatewayParametersFile(
  { gateway }: Parameters,
  { path, name, comment, env }: { path: string; name: string; comment: string; env: object[] },
): ManifestFile {
  const deployment = { spec: { template: { spec: { containers: [{ name: 'istio-proxy', env }] } } } };
  return {
    path,
    comment,
    objects: [
      kubeObject(
        'v1',
        'ConfigMap',
        { name, namespace: gateway.namespace },
        { data: { deployment: yamlOf(deployment) } },
      ),
    ],
  };
}
