// Definitions of InferencePool in both of its groups, with the fields that Istio and Warmpath read. The Gateway API Inference Extension itself
// is on no registry.

import type { KubeData } from './client.ts';

const text = { type: 'string' };
const labels = { type: 'object', additionalProperties: text };
const number = { type: 'integer', minimum: 1, maximum: 65_535 };
const status = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };

function definition(group: string, version: string, spec: object): KubeData {
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `inferencepools.${group}`,
      annotations: {
        'api-approved.kubernetes.io': 'https://github.com/kubernetes-sigs/gateway-api-inference-extension',
      },
    },
    spec: {
      group,
      names: {
        kind: 'InferencePool',
        listKind: 'InferencePoolList',
        plural: 'inferencepools',
        singular: 'inferencepool',
      },
      scope: 'Namespaced',
      versions: [
        {
          name: version,
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', properties: { spec, status } } },
          subresources: { status: {} },
        },
      ],
    },
  };
}

export const inferencePoolDefinitions: KubeData[] = [
  definition('inference.networking.k8s.io', 'v1', {
    type: 'object',
    required: ['selector', 'targetPorts'],
    properties: {
      selector: { type: 'object', properties: { matchLabels: labels } },
      targetPorts: {
        type: 'array',
        minItems: 1,
        maxItems: 8,
        items: { type: 'object', required: ['number'], properties: { number } },
      },
      endpointPickerRef: {
        type: 'object',
        properties: {
          group: text,
          kind: { ...text, default: 'Service' },
          name: text,
          port: { type: 'object', properties: { number } },
          failureMode: { ...text, default: 'FailClose' },
        },
      },
    },
  }),
  definition('inference.networking.x-k8s.io', 'v1alpha2', {
    type: 'object',
    required: ['selector', 'targetPortNumber'],
    properties: {
      selector: labels,
      targetPortNumber: number,
      extensionRef: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
    },
  }),
];
