// The pool's route, and the Service behind it where the route does not go to an InferencePool.

import { kubeObject, type ManifestFile } from './files.ts';
import { askedHeaders } from '../../envoy/names.ts';
import { heldPaths, type Parameters } from './parameters.ts';

export function serviceFile({ pool, selector, poolPort }: Parameters, folder: string): ManifestFile {
  return {
    path: `${folder}/service.yaml`,
    comment:
      "The pool: a headless Service over the engines' pods. Its annotations under warmpath.dev/ are the pool's settings (docs/ANNOTATIONS.md).",
    objects: [
      kubeObject('v1', 'Service', pool, {
        spec: {
          clusterIP: 'None',
          selector,
          ports: [{ name: 'http', port: poolPort, targetPort: poolPort, appProtocol: 'http' }],
        },
      }),
    ],
  };
}

export function httpRouteFile(parameters: Parameters, folder: string): ManifestFile {
  const { pool, route, gateway, hostnames, attach, poolGroup, poolPort } = parameters;
  const backendRefs =
    attach === 'service'
      ? [{ name: pool.name, port: poolPort }]
      : [{ group: poolGroup, kind: 'InferencePool', name: pool.name }];
  // A generation takes as long as it takes: the gateway sets no limit to a whole request.
  const timeouts = { request: '0s' };
  return {
    path: `${folder}/http-route.yaml`,
    comment:
      'The route to the pool. Its first rule has exactly the requests that are held until their body is whole: POST to the LLM paths; what they ask a picker for is read by the filter and taken off here. The second ' +
      "has all others, which are balanced by load. The order matters: held-routes.yaml names the first rule's routes by its number.",
    objects: [
      kubeObject(
        'gateway.networking.k8s.io/v1',
        'HTTPRoute',
        { name: route, namespace: pool.namespace },
        {
          spec: {
            parentRefs: [
              { name: gateway.name, ...(gateway.namespace === pool.namespace ? {} : { namespace: gateway.namespace }) },
            ],
            ...(hostnames.length > 0 ? { hostnames } : {}),
            rules: [
              {
                matches: heldPaths.map((value) => ({ method: 'POST', path: { type: 'Exact', value } })),
                filters: [{ type: 'RequestHeaderModifier', requestHeaderModifier: { remove: [...askedHeaders] } }],
                backendRefs,
                timeouts,
              },
              { matches: [{ path: { type: 'PathPrefix', value: '/' } }], backendRefs, timeouts },
            ],
          },
        },
      ),
    ],
  };
}
