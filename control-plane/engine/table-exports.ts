// The functions of engine.wasm that table.ts calls, with their types as WebAssembly passes them: u64 as bigint, everything
// else as number, bool as 0 or 1. Unsigned numbers arrive signed; table.ts puts that right.
export interface TableExports {
  tableInit(pods: number, nodes: number, seed: bigint): void;
  tableKeys(): number;
  tableNumbers(): number;
  randomSeed(seed: bigint): void;
  residencyPods(): number;
  residencyPodPool(pod: number): number;
  residencyPodAdd(pod: number, pool: number, capacityBytes: bigint): number;
  residencyPodRemove(pod: number): void;
  residencyPodCapacity(pod: number, capacityBytes: bigint): void;
  residencyPodClear(pod: number, timeMs: number): void;
  residencyPodBytes(pod: number): bigint;
  residencyPodCapacityBytes(pod: number): bigint;
  residencyPodBlocks(pod: number): number;
  residencyPodDigest(pod: number): bigint;
  residencyPodOrderDigest(pod: number): bigint;
  residencyHolds(pod: number, key: bigint): number;
  residencyKnows(key: bigint): number;
  residencyNodes(): number;
  residencyNodesUsed(): number;
  residencyEntriesUsed(): number;
  residencyBytesReserved(): number;
  residencyEvicted(): bigint;
  residencyExhausted(): bigint;
  residencyMisplaced(): bigint;
  residencyOrphans(): bigint;
  residencyTouchAt(
    pod: number,
    timeMs: number,
    parentKey: bigint,
    keys: number,
    weights: number,
    count: number,
  ): number;
  residencyTouchAnswer(pod: number, timeMs: number, deepestKey: bigint, bytes: number): bigint;
  residencyTouchChain(pod: number, timeMs: number, deepestKey: bigint): void;
  residencyLookupAt(pool: number, keys: number, ends: number, n: number): number;
  matchBytes(pod: number): number;
  matchKeys(pod: number): number;
  matchJudge(predicted: number, actual: number, block: number): number;
  residencyExport(pod: number, podId: number, cursor: bigint, ptr: number, room: number): number;
  exportNext(): bigint;
  exportRecords(): number;
  exportKeys(): number;
  podSet(pool: number, podId: number, capacityTokens: number, weight: number, flags: number): number;
  podFind(pool: number, podId: number): number;
  podRemove(pod: number): void;
  podIdOf(pod: number): number;
  podFlagsSet(pod: number, flags: number): void;
  podFlags(pod: number): number;
  podWeight(pod: number): number;
  podCapacityTokens(pod: number): number;
  podSlowness(pod: number): number;
  podInFlight(pod: number, nowMs: number): number;
  podQueued(pod: number, nowMs: number): number;
  podUsed(pod: number): number;
  podKvUsage(pod: number, nowMs: number): number;
  podCooling(pod: number, nowMs: number): number;
  poolPolicySet(pool: number, policy: number): void;
  poolPolicy(pool: number): number;
  poolBytesPerTokenSet(pool: number, ratio: number): void;
  poolBytesPerToken(pool: number): number;
  poolObservePrompt(pool: number, promptBytes: number, promptTokens: number): void;
  poolObserveOutput(pool: number, tokens: number): void;
  poolOutputTokens(pool: number): number;
  poolUncachedTokens(pool: number): number;
  poolCapacityRefresh(pool: number): void;
  loadDispatch(pod: number, u: number, nowMs: number): number;
  loadFirstToken(pod: number, u: number): void;
  loadEnd(pod: number, u: number, queued: number): void;
  loadOwnN(pod: number): number;
  loadOwnQ(pod: number): number;
  loadOwnUsed(pod: number): number;
  loadCold(pod: number, tokens: number, timeMs: number): void;
  podCold(pod: number): number;
  coldShare(nowMs: number): number;
  loadViolations(): bigint;
  loadObserveTtft(pod: number, ttftMs: number, w: number): void;
  loadSlownessLearn(pod: number, secondsPerToken: number): void;
  loadPredictedTtftMs(pod: number, u: number, nowMs: number): number;
  loadPrefillMs(pod: number, tokens: number): number;
  loadTold(pod: number, ttftMs: number, requests: number): void;
  podToldSlowness(pod: number): number;
  loadWaited(pod: number, sentMs: number, younger: number): number;
  loadCrowd(pod: number): number;
  loadExpectedMs(
    pod: number,
    sentMs: number,
    younger: number,
    aheadTokens: number,
    tokens: number,
    expectedMs: number,
  ): number;
  loadForeignSet(source: number, pod: number, n: number, q: number, used: number): void;
  loadForeignClear(source: number): void;
  loadForeignAge(source: number, ageMs: number): void;
  loadHadBegun(pod: number, sentMs: number, younger: number): number;
  loadMetrics(pod: number, running: number, waiting: number, kvUsage: number, atMs: number): number;
  loadFailure(pod: number, nowMs: number): void;
  loadSuccess(pod: number): void;
  loadAlive(pod: number, nowMs: number): void;
  loadSilence(pod: number, sentMs: number, predictedMs: number, nowMs: number): number;
  policyPick(pool: number, policy: number, promptBytes: number, key: bigint, adapter: number, nowMs: number): number;
  poolWeightsSet(pool: number, prefix: number, queue: number, kv: number): void;
  adapterHashOf(name: number, nameBytes: number): number;
  adaptersClear(pod: number): void;
  adaptersAdd(pod: number, hash: number): void;
  adaptersHas(pod: number, hash: number): number;
  pickedPod(index: number): number;
  pickedUncached(index: number): number;
}
