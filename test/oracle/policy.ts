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
  /** As its engine tells, 0 = not told. */
  toldSlowness: number;
  /** 0 = unknown. */
  capacityTokens: number;
  /** undefined = not known or not fresh. */
  kvUsage: number | undefined;
  matchBytes: number;
  /** Tokens that the pod was given to compute lately, faded. */
  coldTokens: number;
}

export interface PoolState {
  bytesPerToken: number;
  outputTokens: number;
  /** Mean uncached tokens of a prompt. */
  uncachedTokens: number;
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

/** Beside others that have been seen, or of which engines tell where none has been; a pod that has not counts as one of them. */
function relativeSlowness(pods: readonly PodState[]): (pod: PodState) => number {
  const isSeen = pods.some((pod) => pod.slowness > 0);
  const of = (pod: PodState): number => (isSeen ? pod.slowness : pod.toldSlowness);
  const known = pods.filter((pod) => of(pod) > 0);
  const mean = known.reduce((sum, pod) => sum + of(pod), 0) / known.length;
  return (pod) => (of(pod) > 0 ? of(pod) / mean : 1);
}

/** Tokens for which a pod's KV cache has no room. */
function overfullTokens(pod: PodState, pool: PoolState, u: number): number {
  const { inFlight: n, capacityTokens } = pod;
  if (capacityTokens === 0) return 0;
  const used = Math.max(pod.usedTokens + (n * pool.outputTokens) / 2, (pod.kvUsage ?? 0) * capacityTokens);
  return Math.max(0, used + u + pool.outputTokens - 0.95 * capacityTokens);
}

/** What prefill-cost knows of each pod: its own price b and, with what is lost elsewhere, its cost c. */
export interface Prices {
  bare: number[];
  costs: number[];
}

export function prefillPrices(pods: readonly PodState[], pool: PoolState, promptBytes: number): Prices {
  const [K, Y, G, H, N0, B] = [0.6, 0.15, 100, 15, 10, 0.3];
  const mean = (of: (pod: PodState) => number): number => pods.reduce((sum, pod) => sum + of(pod), 0) / pods.length;
  const held = (pod: PodState): number => Math.min(pod.matchBytes, promptBytes) / pool.bytesPerToken;
  const most = Math.max(...pods.map(held));
  const inFlightMean = mean((pod) => pod.inFlight);
  const cold = (pod: PodState): number => pod.coldTokens / pod.weight;
  const coldMean = mean(cold);
  const ubar = pool.uncachedTokens;
  const newShare = promptBytes === 0 ? 1 : 1 - (most * pool.bytesPerToken) / promptBytes;
  const slowness = relativeSlowness(pods);
  const bare: number[] = [];
  const costs: number[] = [];
  for (const pod of pods) {
    const u = uncachedTokens(pod, pool, promptBytes);
    const n = pod.inFlight;
    const scale = slowness(pod) / pod.weight;
    const spread = ubar === 0 ? 0 : (H * ubar * newShare * (cold(pod) - coldMean)) / (coldMean + N0 * ubar);
    const again = most - held(pod);
    const delay = ubar === 0 ? 0 : (B * again * pod.queuedTokens) / ubar;
    const base = (pod.queuedTokens + u + delay) * (1 + Y * n) + G * n + spread + overfullTokens(pod, pool, u);
    bare.push(base * scale);
    costs.push((base + K * inFlightMean * again) * scale);
  }
  return { bare, costs };
}

/** Whether the request goes from its cheapest pod to the one with the lowest own price, and the regret that is then kept. */
export function stayOrMove({ bare, costs }: Prices, stay: number, regret: number): { pick: number; regret: number } {
  const move = bare.indexOf(Math.min(...bare));
  const gain = bare[stay]! - bare[move]!;
  const price = costs[move]! - bare[move]! - (costs[stay]! - bare[stay]!);
  if (gain <= SPREAD_TOKENS || price <= 0) return { pick: stay, regret };
  return regret + gain >= price ? { pick: move, regret: 0 } : { pick: stay, regret: regret + gain };
}

/** The first form of prefill-cost, word for word. */
export function prefillCostsFirst(pods: readonly PodState[], pool: PoolState, promptBytes: number): number[] {
  const K = 0.25;
  const G = 400;
  const slowness = relativeSlowness(pods);
  return pods.map((pod) => {
    const u = uncachedTokens(pod, pool, promptBytes);
    const n = pod.inFlight;
    const cost = (1 + 0.2 * n) * pod.queuedTokens + (1 + K + 0.5 * n) * u + G * n + overfullTokens(pod, pool, u);
    return (cost * slowness(pod)) / pod.weight;
  });
}

export function leastRequestCosts(pods: readonly PodState[]): number[] {
  return pods.map((pod) => (pod.inFlight + 1) / pod.weight);
}

/** weighted: shares of the prompt that are missing, of the longest queue and of the memory in use, added by weight. */
export function weightedCosts(
  pods: readonly Pick<
    PodState,
    'matchBytes' | 'queuedTokens' | 'usedTokens' | 'inFlight' | 'capacityTokens' | 'kvUsage' | 'weight'
  >[],
  weights: { prefix: number; queue: number; kv: number },
  { outputTokens, promptBytes }: { outputTokens: number; promptBytes: number },
): number[] {
  const queues = pods.map((pod) => pod.queuedTokens / pod.weight);
  const [least, most] = [Math.min(...queues), Math.max(...queues)];
  return pods.map((pod, i) => {
    const missing = 1 - Math.min(pod.matchBytes, promptBytes) / promptBytes;
    const waiting = most > least ? (queues[i]! - least) / (most - least) : 0;
    const expected = (pod.usedTokens + (pod.inFlight * outputTokens) / 2) / pod.capacityTokens;
    const used = pod.kvUsage ?? Math.min(1, expected);
    return (weights.prefix * missing + weights.queue * waiting + weights.kv * used) / pod.weight;
  });
}
