// Names that more than one part of the gateway's configuration must agree on. The filter uses the first three.

/** The filter state object in which the filter leaves its pick. */
export const pickState = 'wasm.warmpath.pick';
/** The cluster that the filter calls to sync. */
export const controlPlaneCluster = 'warmpath';
/** The header that override_host reads. Set inside the gateway only: a client's own is removed. */
export const destinationHeader = 'x-gateway-destination-endpoint';
/** The response header that names the pod that really answered, by the protocol of the Gateway API's inference extension. The filter reads it. */
export const servedHeader = 'x-gateway-destination-endpoint-served';
/** The response header that names the pod's address, where the configuration asks for it. */
export const upstreamHeader = 'x-warmpath-upstream';
/** The response header that tells how many pods were tried, beside that one. */
export const attemptsHeader = 'x-warmpath-attempts';

/** The metadata of another filter that binds a request to some of the pods, by the same protocol: its namespace and its key. */
export const subsetHint = { namespace: 'envoy.lb.subset_hint', key: 'x-gateway-destination-endpoint-subset' } as const;
/** What clients may ask a picker for, and what only a picker may be told. The filter has read them; engines do not get them. */
export const askedHeaders = [
  'x-gateway-inference-objective',
  'x-llm-d-inference-objective',
  'x-gateway-inference-fairness-id',
  'x-llm-d-inference-fairness-id',
  subsetHint.key,
] as const;

/** Requests that are held until their body is whole: POST to one of these, exactly. */
export const heldPaths = ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages'] as const;

/** Label names in the filter's metrics, `warmpath_NAME.LABEL.VALUE...`; each becomes a stats tag. */
export const metricLabels = ['pool', 'policy', 'reason', 'result', 'pod'] as const;

/**
 * `wasmcustom.warmpath_picks_total.pool.p.policy.x` becomes warmpath_picks_total{pool="p",policy="x"}. Labels and values are skipped in
 * pairs, so a pool may be called `policy`.
 */
export const statsTags = (): object[] =>
  metricLabels.map((label) => ({
    tag_name: label,
    regex: `^wasmcustom\\.warmpath_\\w+(?:\\.\\w+\\.[^.]+)*?(\\.${label}\\.([^.]+))`,
  }));

/** A typed extension message. */
export const typed = (type: string, fields: object = {}): object => ({
  '@type': `type.googleapis.com/${type}`,
  ...fields,
});
