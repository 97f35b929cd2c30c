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
  /** After so many intervals without a good scrape the metrics of a pod are called stale. */
  scrapeStaleIntervals: 3,
  endpointsFileBytes: 1 << 20,
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
