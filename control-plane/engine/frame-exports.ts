// The functions of engine.wasm that frames.ts calls, with their types as WebAssembly passes them: u64 as bigint, everything
// else as number, bool as 0 or 1. Unsigned numbers arrive signed; frames.ts puts that right.
export interface FrameExports {
  readonly memory: { readonly buffer: ArrayBuffer };
  framePoolHashOf(name: number, nameBytes: number): bigint;
  frameForget(): void;
  frameCheck(frame: number, available: number): number;
  frameKind(): number;
  frameBytes(): number;
  frameEpoch(): bigint;
  frameSequence(): bigint;
  framePool(): bigint;
  frameSettingsVersion(): number;
  frameFlags(): number;
  frameHas(section: number): number;
  frameCount(section: number): number;
  frameMode(): number;
  framePolicy(): number;
  frameToolsPosition(): number;
  frameBlockBytes(): number;
  frameWindowBytes(): number;
  frameSyncIntervalMs(): number;
  frameBytesPerToken(): number;
  frameWeightPrefix(): number;
  frameWeightQueue(): number;
  frameWeightKv(): number;
  framePolicyKeySource(): number;
  framePolicyKeyName(): number;
  framePolicyKeyNameBytes(): number;
  frameSecret(): number;
  endpointCount(): number;
  endpointPodId(index: number): number;
  endpointPort(index: number): number;
  endpointFlags(index: number): number;
  endpointAddress(index: number): number;
  endpointWeight(index: number): number;
  endpointCapacityTokens(index: number): number;
  endpointStartedSeconds(index: number): number;
  loadCount(): number;
  loadPodId(index: number): number;
  loadInFlight(index: number): number;
  loadPrefillTokens(index: number): number;
  loadUsedTokens(index: number): number;
  loadAgeMs(index: number): number;
  loadSlowness(index: number): number;
  metricsCount(): number;
  metricsPodId(index: number): number;
  metricsRunning(index: number): number;
  metricsWaiting(index: number): number;
  metricsKvUsage(index: number): number;
  metricsAgeMs(index: number): number;
  metricsFlags(index: number): number;
  metricsTtftMs(index: number): number;
  metricsTtftRequests(index: number): number;
  touchesCount(): number;
  touchesKeyCount(): number;
  touchesRecords(): number;
  touchesRecordsBytes(): number;
  touchesClampTime(maxMs: number): number;
  touchesRewind(): void;
  touchesTake(pool: number, from: number, records: number): number;
  touchesNext(): number;
  touchPodId(): number;
  touchFlags(): number;
  touchCount(): number;
  touchTimeMs(): number;
  touchParentKey(): bigint;
  touchKeys(): number;
  touchWeights(): number;
  touchKey(index: number): bigint;
  touchWeight(index: number): number;
  touchRecord(): number;
  touchRecordBytes(): number;
  outcomesBytesPerToken(): number;
  outcomesRatioTokens(): number;
  outcomeCount(): number;
  outcomePodId(index: number): number;
  outcomeResets(index: number): number;
  outcomeTotal(index: number, counter: number): bigint;
  outcomeTtftMsSum(index: number): number;
  outcomeKindCount(): number;
  outcomeKindApi(index: number): number;
  outcomeKindLanguage(index: number): number;
  outcomeKindTotal(index: number, counter: number): bigint;
  gatewayIncarnation(): bigint;
  gatewayTouchesNext(): bigint;
  gatewayWorkers(): number;
  gatewayNameBytes(): number;
  gatewayName(): number;
  frameBegin(
    region: number,
    capacity: number,
    kind: number,
    epoch: bigint,
    sequence: bigint,
    poolHash: bigint,
    settingsVersion: number,
    flags: number,
  ): number;
  frameSequenceSet(sequence: bigint): void;
  frameFlagsSet(flags: number): void;
  frameRoom(): number;
  frameEnd(): number;
  writeSection(type: number): number;
  adapterPodId(index: number): number;
  adapterHash(index: number): number;
  aliasName(index: number): number;
  aliasGroupName(index: number): number;
  writeAlias(name: number, group: number): number;
  writeAdapter(podId: number, hash: number): number;
  writePolicyKey(source: number, name: number, nameBytes: number): number;
  writePool(
    mode: number,
    policy: number,
    toolsPosition: number,
    blockBytes: number,
    windowBytes: number,
    syncIntervalMs: number,
    bytesPerToken: number,
    weightPrefix: number,
    weightQueue: number,
    weightKv: number,
  ): number;
  writeSecret(secret: number): number;
  writeEndpoint(
    podId: number,
    port: number,
    flags: number,
    address: number,
    weight: number,
    capacityTokens: number,
    startedSeconds: number,
  ): number;
  writeLoad(
    podId: number,
    inFlight: number,
    prefillTokens: number,
    usedTokens: number,
    ageMs: number,
    slowness: number,
  ): number;
  writeMetrics(
    podId: number,
    running: number,
    waiting: number,
    kvUsage: number,
    ageMs: number,
    flags: number,
    ttftMs: number,
    ttftRequests: number,
  ): number;
  writeTouch(podId: number, flags: number, timeMs: number, parentKey: bigint, count: number): number;
  writeTouchKey(index: number, key: bigint, weightBytes: number): void;
  writeTouchRecord(from: number, bytes: number): number;
  writeTouchRecords(from: number, bytes: number, records: number, keys: number): number;
  writeOutcomes(bytesPerToken: number, ratioTokens: number): number;
  writeOutcome(podId: number, resets: number, ttftMsSum: number): number;
  writeOutcomeKind(api: number, language: number): number;
  writeOutcomeTotal(counter: number, total: bigint): void;
  writeGateway(incarnation: bigint, touchesNext: bigint, workers: number, name: number, nameBytes: number): number;
  frameInput(): number;
  frameOutput(): number;
  frameScratch(): number;
}
