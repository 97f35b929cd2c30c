// Every bound of the control plane in one place.
export const LIMITS = {
  pools: 8,
  /** Endpoints of one pool. */
  pods: 1024,
  /** Endpoints that were removed and are remembered, so that a new life gets a new id. */
  endpointsRemembered: 65_536,
  /** Gateways remembered for one pool; more are refused. */
  gateways: 1024,
  /** Lives of one gateway that are remembered beside each other. */
  gatewayLives: 4,
  /** Pods whose outcomes are remembered for one life of a gateway, those told of last. */
  outcomePods: 4096,
  /** A gateway that is silent for so long counts no more: its load is dropped. */
  gatewayStaleMs: 5_000,
  /** One that reports more seldom is silent after so many times the gap between its last two reports, which counts up to so much. */
  gatewayGaps: 3,
  gatewayGapMs: 60_000,
  /** Two lives of a gateway that report in turn so often within so long are two gateways with one name. */
  gatewayTurns: 20,
  gatewayTurnsMs: 10_000,
  /** What one gateway tells of a pod counts so much at most in the mean age and slowness, and slowness, in s a token, is cut: else sums lose the rest. */
  loadWeight: 1 << 20,
  loadSlowness: 10,
  /** A gateway that was asked for its table is waited for so long by those that joined meanwhile. */
  tableTellMs: 5_000,
  /** A gateway that is silent for so long is forgotten with its counters. */
  gatewayForgottenMs: 600_000,
  /** Body of one POST /v1/sync. */
  syncBodyBytes: 4 << 20,
  /** Touches of one answer that are not a snapshot; the rest comes with the next. */
  syncTouchBytes: 2 << 20,
  /** Touch records of one snapshot, newest first of each pod. */
  snapshotBytes: 16 << 20,
  /** Touches kept for gateways that lag behind; one that lags further gets a snapshot. */
  touchLogBytes: 16 << 20,
  /** A touch that claims to be further in the future is set back to now. */
  clockSkewMs: 1_000,
  /** Metrics text of one engine. */
  scrapeBytes: 8 << 20,
  scrapeConcurrency: 64,
  /** Adapters in use on one pod that gateways are told of. */
  adaptersPerPod: 16,
  /** Names of a pool's models that are told to gateways, and how often a life of an engine is asked for its own. */
  aliasesPerPool: 32,
  modelsTries: 3,
  /** After so many good scrapes one that gave up is asked again, and engines that are away are not waited for any more. */
  modelsAgainLooks: 60,
  modelsLooks: 10,
  /** After so many intervals without a good scrape the metrics of a pod are called stale. */
  scrapeStaleIntervals: 3,
  endpointsFileBytes: 1 << 20,
  /** What an engine says about where it publishes cache events. */
  kvSourcesBytes: 64 << 10,
  /** Publishers of one engine: one for each rank of data parallelism. */
  kvPublishers: 16,
  kvSockets: 4096,
  /** One message of cache events, and what may be in it. */
  kvMessageBytes: 2 << 20,
  kvEventsPerBatch: 16_384,
  kvListLength: 1 << 18,
  kvTextBytes: 4096,
  kvMapKeys: 64,
  /** Groups of layers with blocks of their own. */
  kvGroups: 64,
  kvBlockTokens: 65_536,
  /** Messages of one publisher that wait to be read; more are dropped and asked for again. */
  kvMessagesWaiting: 10_000,
  /** Messages that are asked for again, and how long each may take. vLLM keeps 10,000 of them by default. */
  kvReplayMessages: 10_000,
  kvReplayBytes: 64 << 20,
  kvReplayMs: 2_000,
  kvReplayConcurrency: 2,
  /** An engine's time that is further from ours than this is not used. */
  kvClockSkewMs: 5_000,
  /** From a request's arrival to the end of an idle engine's first step for it. */
  kvClearedBeforeMs: 250,
  /** An engine that has no events, or cannot be asked, is asked again after so long: longer each time. */
  kvRetryMsMin: 1_000,
  kvRetryMsMax: 60_000,
  /** Target ports of one pool in Kubernetes; each port of a pod is an endpoint. */
  poolPorts: 8,
  /** One request to the Kubernetes API, watches aside. */
  kubeRequestMs: 5_000,
  /** A try to hold the Lease: it must fail sooner than the Lease ends. */
  leaseRequestMs: 1_000,
  /** One event of a watch. etcd holds objects of 1.5 MiB at most. */
  kubeEventChars: 8 << 20,
  /** Events about annotations that wait to be written. */
  kubeEventsWaiting: 64,
  /** A fault that stays is told of again after so long; the API server forgets Events after an hour. */
  kubeEventRepeatMs: 1_800_000,
  /** Unknown annotations of one object that are named; the rest is not looked at. */
  annotationsUnknown: 16,
  /** Characters that are shown of an annotation's value. */
  annotationShown: 128,
  /** Bytes of a prompt's first blocks: this many at least and at most, and a multiple of the least. */
  keyBlockBytesMin: 64,
  keyBlockBytesMax: 4096,
  /** Blocks that all pods of one pool's table hold together. */
  tableNodes: 500_000,
  /** Pods that a table has room for, unless the pool begins with more than half as many. */
  tablePodsMin: 128,
  /** Pods that a pool from Kubernetes is expected to have. */
  tablePodsObject: 256,
} as const;
