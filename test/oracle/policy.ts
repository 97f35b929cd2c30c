// The naive policies: each gives the cost of every candidate from plain numbers, as docs and tests can read them.
export interface PodState {
  pod: number;
  podId: number;
  ready: boolean;
  drain: boolean;
  cooling: boolean;
  weight: number;
  /** n, Q and the sum of u in flight, others' and unexplained requests included. */
  inFlight: number;
  queuedTokens: number;
  usedTokens: number;
  /** Seconds per token, 0 = not seen. */
  slowness: number;
  /** 0 = unknown. */
  capacityTokens: number;
  /** undefined = not known or not fresh. */
  kvUsage: number | undefined;
  matchBytes: number;
}

export interface PoolState {
  bytesPerToken: number;
  outputTokens: number;
}

export const SPREAD_TOKENS = 32;

export function candidatesOf(pods: readonly PodState[]): PodState[] {
  const open = pods.filter((pod) => pod.ready && !pod.drain);
  const warm = open.filter((pod) => !pod.cooling);
  return warm.length > 0 ? warm : open;
}

export function uncachedTokens(pod: PodState, pool: PoolState, promptBytes: number): number {
  return Math.max(1, Math.ceil((promptBytes - Math.min(pod.matchBytes, promptBytes)) / pool.bytesPerToken));
}

/** The first form of prefill-cost, word for word. */
export function prefillCosts(pods: readonly PodState[], pool: PoolState, promptBytes: number): number[] {
  const K = 0.25;
  const G = 400;
  const seen = pods.filter((pod) => pod.slowness > 0);
  const mean = seen.reduce((sum, pod) => sum + pod.slowness, 0) / seen.length;
  return pods.map((pod) => {
    const u = uncachedTokens(pod, pool, promptBytes);
    const n = pod.inFlight;
    let cost = (1 + 0.2 * n) * pod.queuedTokens + (1 + K + 0.5 * n) * u + G * n;
    const used = Math.max(pod.usedTokens + (n * pool.outputTokens) / 2, (pod.kvUsage ?? 0) * pod.capacityTokens);
    if (pod.capacityTokens > 0) cost += Math.max(0, used + u + pool.outputTokens - 0.95 * pod.capacityTokens);
    if (pod.slowness > 0) cost *= pod.slowness / mean;
    return cost / pod.weight;
  });
}

export function leastRequestCosts(pods: readonly PodState[]): number[] {
  return pods.map((pod) => (pod.inFlight + 1) / pod.weight);
}
