// The fields that Istio 1.27 and its Gateway API 1.3 have for the kinds that we render, as far as we render them or are tempted to. They were
// compared with the CRDs of the tag 1.27.9. Written by hand because those CRDs cannot be had from a package registry; the test beside it
// holds this list against the CRDs of the versions before and after.

import type { Schema } from './schema.ts';

const string: Schema = { type: 'string' };
const integer: Schema = { type: 'integer' };
const free: Schema = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
const list = (items: Schema): Schema => ({ type: 'array', items });
const object = (properties: Record<string, Schema>, ...required: string[]): Schema => ({
  type: 'object',
  properties,
  required,
});
const oneOf = (...values: string[]): Schema => ({ type: 'string', enum: values });

const targetRefs = list(object({ group: string, kind: string, name: string }, 'kind', 'name'));

const wasmPlugin = object(
  {
    targetRefs,
    url: string,
    sha256: { type: 'string', pattern: '^[a-f0-9]{64}$' },
    imagePullPolicy: oneOf('UNSPECIFIED_POLICY', 'IfNotPresent', 'Always'),
    imagePullSecret: string,
    pluginName: string,
    pluginConfig: free,
    phase: oneOf('UNSPECIFIED_PHASE', 'AUTHN', 'AUTHZ', 'STATS'),
    priority: integer,
    failStrategy: oneOf('FAIL_CLOSE', 'FAIL_OPEN', 'FAIL_RELOAD'),
    vmConfig: object({
      env: list(object({ name: string, value: string, valueFrom: oneOf('INLINE', 'HOST') }, 'name')),
    }),
  },
  'url',
);

const envoyFilter = object({
  targetRefs,
  priority: integer,
  configPatches: list(
    object({
      applyTo: oneOf('LISTENER', 'HTTP_FILTER', 'HTTP_ROUTE', 'CLUSTER', 'BOOTSTRAP'),
      match: object({
        context: oneOf('ANY', 'GATEWAY'),
        listener: object({
          filterChain: object({ filter: object({ name: string, subFilter: object({ name: string }) }) }),
        }),
        routeConfiguration: object({ vhost: object({ route: object({ name: string, action: string }) }) }),
        cluster: object({ name: string, service: string, portNumber: integer }),
      }),
      patch: object({
        operation: oneOf('MERGE', 'ADD', 'REMOVE', 'INSERT_BEFORE', 'INSERT_AFTER', 'INSERT_FIRST', 'REPLACE'),
        value: free,
      }),
    }),
  ),
});

const authorizationPolicy = object({
  selector: object({ matchLabels: { type: 'object', additionalProperties: string } }),
  action: oneOf('ALLOW', 'DENY', 'AUDIT', 'CUSTOM'),
  rules: list(
    object({
      from: list(object({ source: object({ principals: list(string), namespaces: list(string) }) })),
      to: list(object({ operation: object({ ports: list(string), paths: list(string), methods: list(string) }) })),
    }),
  ),
});

const backendRefs = list(
  object({ group: string, kind: string, name: string, namespace: string, port: integer, weight: integer }, 'name'),
);
const httpRoute = object({
  parentRefs: list(
    object({ group: string, kind: string, name: string, namespace: string, sectionName: string }, 'name'),
  ),
  hostnames: list(string),
  rules: list(
    object({
      // A name of the rule and retries are in the experimental channel only.
      matches: list(
        object({
          method: oneOf('GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'CONNECT', 'OPTIONS', 'TRACE', 'PATCH'),
          path: object({ type: oneOf('Exact', 'PathPrefix', 'RegularExpression'), value: string }),
        }),
      ),
      filters: list(
        object(
          { type: oneOf('RequestHeaderModifier'), requestHeaderModifier: object({ remove: list(string) }) },
          'type',
        ),
      ),
      backendRefs,
      timeouts: object({ request: string, backendRequest: string }),
    }),
  ),
});

const whole = (spec: Schema): Schema => object({ spec }, 'spec');

export const fields127 = new Map<string, Schema>([
  ['extensions.istio.io/v1alpha1 WasmPlugin', whole(wasmPlugin)],
  ['networking.istio.io/v1alpha3 EnvoyFilter', whole(envoyFilter)],
  ['security.istio.io/v1 AuthorizationPolicy', whole(authorizationPolicy)],
  ['gateway.networking.k8s.io/v1 HTTPRoute', whole(httpRoute)],
]);
