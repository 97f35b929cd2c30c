// Request records, and what is said of many of them. Virtual and real runs are summed up here alike, so their numbers can be compared.

export interface RequestRecord {
  session: string;
  measured: boolean;
  /** When it was sent, from the start of the run. */
  sentMs: number;
  ttftMs: number | null;
  tpotMs: number | null;
  e2eMs: number | null;
  promptTokens: number | null;
  cachedTokens: number | null;
  outputTokens: number | null;
  pod: string | null;
  status: number | null;
  failed: boolean;
  /** No end within the time allowed; hung requests are failed ones too. */
  hung: boolean;
  error: string | null;
}

export interface DriveSummary {
  requests: number;
  failed: number;
  hung: number;
  ttftMs: { mean: number; p50: number; p95: number; p99: number };
  tpotMs: { p50: number; p95: number };
  e2eMs: { mean: number };
  hitShareTokens: number;
  requestsPerSecond: number;
  busiestPodShare: number;
  seconds: number;
}

/** The value below which that share of the sorted values lies; the nearest rank, 0 of nothing. */
export function percentile(sorted: readonly number[], share: number): number {
  if (sorted.length === 0) return 0;
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!;
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

function sorted(values: readonly (number | null)[]): number[] {
  return values.filter((value) => value !== null).toSorted((a, b) => a - b);
}

/** Sums up the measured requests; replicas is how many pods there were, busy or not. */
export function summarise(records: readonly RequestRecord[], replicas: number): DriveSummary {
  const measured = records.filter((record) => record.measured);
  const ttftMs = sorted(measured.map((record) => record.ttftMs));
  const tpotMs = sorted(measured.map((record) => record.tpotMs));
  let promptTokens = 0;
  let cachedTokens = 0;
  let firstMs = Infinity;
  let lastMs = 0;
  const byPod = new Map<string, number>();
  for (const record of measured) {
    promptTokens += record.promptTokens ?? 0;
    cachedTokens += record.cachedTokens ?? 0;
    firstMs = Math.min(firstMs, record.sentMs);
    lastMs = Math.max(lastMs, record.sentMs + (record.e2eMs ?? 0));
    if (record.pod !== null) byPod.set(record.pod, (byPod.get(record.pod) ?? 0) + 1);
  }
  const seconds = measured.length === 0 ? 0 : (lastMs - firstMs) / 1000;
  const placed = [...byPod.values()];
  const placedSum = placed.reduce((sum, count) => sum + count, 0);
  return {
    requests: measured.length,
    failed: measured.filter((record) => record.failed).length,
    hung: measured.filter((record) => record.hung).length,
    ttftMs: {
      mean: mean(ttftMs),
      p50: percentile(ttftMs, 0.5),
      p95: percentile(ttftMs, 0.95),
      p99: percentile(ttftMs, 0.99),
    },
    tpotMs: { p50: percentile(tpotMs, 0.5), p95: percentile(tpotMs, 0.95) },
    e2eMs: { mean: mean(sorted(measured.map((record) => record.e2eMs))) },
    hitShareTokens: promptTokens === 0 ? 0 : cachedTokens / promptTokens,
    requestsPerSecond: seconds === 0 ? 0 : measured.length / seconds,
    busiestPodShare: placedSum === 0 ? 0 : (Math.max(...placed) * Math.max(replicas, placed.length)) / placedSum,
    seconds,
  };
}
