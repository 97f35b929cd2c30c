// What one arm of the comparison did, boiled down from its request records to the numbers that `up` prints. This is the shape of the JSON
// document, so a change here is a change for whoever reads it.

/** What is needed to know of one request; the load driver's records have this and more. */
export interface RequestFacts {
  ttftMs: number | null;
  tpotMs: number | null;
  promptTokens: number | null;
  cachedTokens: number | null;
  pod: string | null;
  failed: boolean;
  hung: boolean;
}

export interface ArmResult {
  name: string;
  requests: number;
  failed: number;
  hung: number;
  ttftMs: { p50: number; p95: number; p99: number };
  tpotMs: { p50: number; p95: number };
  hitShareTokens: number;
  requestsPerSecond: number;
  /** Requests of the busiest pod over the mean of all pods: 1 is perfectly even, the number of replicas is one pod doing everything. */
  busiestPodShare: number;
  seconds: number;
}

/** One row of somebody else's measurement of the same workload; what they did not publish is absent. */
export interface PublishedArm {
  name: string;
  ttftMs: { p95: number; p99?: number };
  hitShareTokens?: number;
}

export interface RunResult {
  workload: string;
  engine: string;
  replicas: number;
  arms: ArmResult[];
  published: PublishedArm[];
}

export interface UpDocument {
  runs: RunResult[];
}

/** The nearest-rank percentile: a value that really occurred. 0 when there are no values. */
export function percentile(values: readonly number[], share: number): number {
  if (values.length === 0) return 0;
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
const known = (values: readonly (number | null)[]) => values.filter((value) => value !== null);

export function summarise(
  name: string,
  requests: readonly RequestFacts[],
  seconds: number,
  replicas: number,
): ArmResult {
  const ttftMs = known(requests.map((request) => request.ttftMs));
  const tpotMs = known(requests.map((request) => request.tpotMs));
  const promptTokens = sum(known(requests.map((request) => request.promptTokens)));
  const cachedTokens = sum(known(requests.map((request) => request.cachedTokens)));
  const requestsByPod = new Map<string, number>();
  for (const { pod } of requests) if (pod !== null) requestsByPod.set(pod, (requestsByPod.get(pod) ?? 0) + 1);
  const placed = sum([...requestsByPod.values()]);
  return {
    name,
    requests: requests.length,
    failed: requests.filter((request) => request.failed).length,
    hung: requests.filter((request) => request.hung).length,
    ttftMs: {
      p50: round(percentile(ttftMs, 0.5), 1),
      p95: round(percentile(ttftMs, 0.95), 1),
      p99: round(percentile(ttftMs, 0.99), 1),
    },
    tpotMs: { p50: round(percentile(tpotMs, 0.5), 2), p95: round(percentile(tpotMs, 0.95), 2) },
    hitShareTokens: promptTokens === 0 ? 0 : round(cachedTokens / promptTokens, 4),
    requestsPerSecond: seconds === 0 ? 0 : round(requests.length / seconds, 3),
    busiestPodShare: placed === 0 ? 0 : round(Math.max(...requestsByPod.values()) / (placed / replicas), 3),
    seconds: round(seconds, 1),
  };
}
