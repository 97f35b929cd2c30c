// Every bound of the engine in one place. A table that is full degrades and counts; it never grows and never fails.

// Wire format (frame.ts).
// One frame of the sync or of a shared-data segment; a body may carry several frames.
export const FRAME_BYTES_MAX: u32 = 1 << 20;
// Keys of one touch record. A longer chain is sent as several touches, each naming its predecessor's last key.
export const FRAME_TOUCH_KEYS_MAX: u32 = 8192;
// A gateway's name, in visible ASCII.
export const FRAME_NAME_BYTES_MAX: u32 = 256;
// The name of the header or cookie that a policy takes its key from, in visible ASCII.
export const FRAME_KEY_NAME_BYTES_MAX: u32 = 64;

// Pools and pods (residency.ts, load.ts, policy.ts).
// Pools of one VM. Several plugins may share a VM, each with its own pool.
export const POOLS_MAX: u32 = 8;
// Pod slots of one VM, over all pools.
export const PODS_MAX: u32 = 1024;
// What the table may take: the control plane, which asks for most, must stay below 512 MB. A table for more blocks than fit
// is as large as fits.
export const TABLE_BYTES_MAX: usize = 384 << 20;
// Blocks from the first one of a prompt to a block of it; a chain is not followed further.
export const CHAIN_BLOCKS_MAX: u32 = 8192;
// What one block may weigh; a heavier one counts as this heavy.
export const BLOCK_BYTES_MAX: u32 = (1 << 19) - 1;
// Steps that one touch may take to find its place by time. Beyond them it is put where the search stands.
export const TOUCH_STEPS_MAX: i32 = 1 << 15;
// Who tells of load beside this VM: sibling workers and other gateways.
export const LOAD_SOURCES_MAX: u32 = 72;
// Pods that a pick names, best first.
export const PICKS_MAX: u32 = 3;
// Adapters of one pod that are known to be in use.
export const ADAPTERS_PER_POD: u32 = 16;
/** Names of one pool under which a model is served that has others as well. */
export const ALIASES_PER_POOL: u32 = 32;
// Metrics older than this say nothing any more.
export const METRICS_FRESH_MS: f64 = 5000;
// What was sent so shortly before metrics were read may not have been in the engine's count yet.
export const METRICS_ARRIVAL_MS: f64 = 50;
// Requests for which a tick asks metrics whether they have begun; each asks once of each metrics, the rest at the next tick.
export const BEGUN_ASKS_PER_TICK: u32 = 64;
// One scrape is told many times, and its time comes out differently by what the way took. What is newer by less is no other.
export const METRICS_JITTER_MS: f64 = 50;
// So many failures without a success between them make a pod one that fails. One alone may be the request's own fault, and
// leaving a pod alone costs its prefixes.
export const STRIKES_MAX: u32 = 3;
// How long a pod that fails is left alone: doubled from the first to the last with each failed trial, and forgotten
// when no failure came for a while.
export const COOL_MS_MIN: f64 = 1000;
export const COOL_MS_MAX: f64 = 30000;
export const COOL_FORGET_MS: f64 = 120000;
// A pod is silent when a first token is out for so long, and for so many times what was predicted, and it showed no other
// sign of life meanwhile.
export const SILENCE_MS_MIN: f64 = 1000;
export const SILENCE_PREDICTIONS: f64 = 4;
// The epoch of cold work (load-cold.ts) moves on when it is so many decay times away; a later time counts as late as this.
export const COLD_EPOCH_TAUS_MAX: f64 = 16;
// Prefixes whose regret is kept (regret.ts), a power of two, in sets of so many.
export const REGRETS: u32 = 4096;
export const REGRET_WAYS: u32 = 8;
// Bytes per token: what is taken before anything is known, and what can be believed.
export const BYTES_PER_TOKEN_DEFAULT: f64 = 4;
export const BYTES_PER_TOKEN_MIN: f64 = 0.5;
export const BYTES_PER_TOKEN_MAX: f64 = 16;
// A request behind more tokens than these on its pod waits, and what was held when it was sent may have been forgotten before its turn: what
// usage says of its match says nothing of capacity.
export const MATCH_QUEUE_TOKENS_MAX: f64 = 4096;
// KV capacity of a pod that does not tell it, for the table only. Too little costs more than too much.
export const CAPACITY_TOKENS_DEFAULT: f64 = 400000;

// Numbers from elsewhere that can be believed, and what the tables can tell apart.
// Seconds per prompt token.
export const SLOWNESS_MAX: f64 = 10;
// How much more work a pod is given than others.
export const WEIGHT_MAX: f64 = 1000;
// Requests or tokens that somebody tells of.
export const NUMBER_MAX: f64 = 1e12;
// Times are kept in 48 bits of 1/64 ms.
export const TIME_UNITS_MAX: f64 = 281474976710655;
// Hash heads take this much a node at most.
export const HEADS_BYTES_MAX: usize = 12;

// The filter (filter/*.ts).
// A name in the configuration: pool, gateway, cluster, authority, plugin.
export const NAME_BYTES_MAX: u32 = 128;
// All cluster names of a configuration together.
export const LIST_BYTES_MAX: u32 = 4096;
// "[", 39 characters of an IPv6 address, "]:" and a port of 5 digits, rounded up.
export const ADDRESS_BYTES_MAX: u32 = 48;
// A request's headers, serialised, that are read in one piece; larger ones are asked for one by one. Envoy lets 60 KiB through.
export const HEADERS_BYTES_MAX: u32 = 64 * 1024;
// Root contexts of one VM: each configuration change makes a new one, and the old one stays while it has streams.
export const ROOTS_MAX: i32 = 64;
// VMs of one gateway that tell each other what they pick: its workers and its main thread.
export const SEGMENTS_MAX: i32 = 64;
// The first of the load sources that stand for all other gateways of a pool together, one a pool; those before are segments.
export const SOURCE_GATEWAYS: u32 = 64;
// Touches that one VM keeps readable for its siblings. They read at every pick and every tick: an idle one, which ticks
// each 50 ms, keeps up with 5,120 a second of each sibling, and counts what it misses.
export const RING_RECORDS: u32 = 256;
// Addresses of a subset that are looked at, and the shortest that there is: [::1]:1.
export const SUBSET_ADDRESSES_MAX: u32 = 1024;
export const ADDRESS_BYTES_MIN: u32 = 7;
// Ends of requests that wait to be told to siblings with the next pick or tick.
export const RENEWALS_MAX: u32 = 32;
// Frames of touches from the control plane that stay readable for VMs that are behind.
export const TABLE_RING: u32 = 64;
// Keys of those frames that a VM applies at one tick, but for the last record: some 3 ms. A snapshot of 16 MiB takes half a second.
export const TABLE_TICK_KEYS: u32 = 16384;
// The same at a pick, for whose request others wait: some 0.2 ms, and as much for a long frame that is read on from where the last pick stopped.
export const TABLE_PICK_KEYS: u32 = 1024;
// Touches that wait for the next report.
export const OUTBOX_BYTES: u32 = 512 * 1024;
// A report: those touches, and load and outcomes of all pods.
export const REPORT_BYTES: u32 = 640 * 1024;
// Bytes of a body that are fetched from the host in one piece.
export const STREAM_CHUNK_BYTES: u32 = 64 * 1024;
// Requests are read for a moment and answered for long: of so many streams at a time one is expected to be read.
export const STREAMS_PER_SCAN: u32 = 8;
export const SCANS_MIN: u32 = 64;
// Pages of 64 digests reserved for each request that is being read, on average.
export const DIGEST_PAGES_PER_SCAN: u32 = 4;

// The request reader (record.ts, scan.ts, chain.ts).
// Nesting of a body. Real requests stay below 20.
export const DEPTH_MAX: u32 = 64;
// Pages of 64 words that one request may take from the arena: about 8,000 messages.
export const TAPE_PAGES_MAX: u32 = 512;
// Bytes of the model's name that are kept.
export const MODEL_BYTES_MAX: u32 = 128;
// Runs of one message: at most one for each key that names.ts knows in a message.
export const MESSAGE_RUNS_MAX: u32 = 16;
// Keys of one request. A prompt's tail beyond them is not indexed.
export const KEYS_MAX: u32 = 8192;
// The pool's setting block-bytes, a multiple of 64.
export const KEY_BLOCK_BYTES_MIN: u32 = 64;
export const KEY_BLOCK_BYTES_MAX: u32 = 4096;
export const KEY_BLOCK_BYTES_DEFAULT: u32 = 256;
