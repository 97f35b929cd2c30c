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
