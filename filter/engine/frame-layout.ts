// The constants of the wire format: sizes, numbers of kinds, sections, flags and errors. All of them are permanent; a
// change of meaning raises FRAME_VERSION and adds a golden vector.
export const FRAME_MAGIC: u32 = 0x46504d57; // "WMPF"
export const FRAME_VERSION: u16 = 2;
export const FRAME_HEADER_BYTES: u32 = 48;
export const SECTION_HEADER_BYTES: u32 = 8;

export const KIND_REPORT: u16 = 1;
export const KIND_DELTA: u16 = 2;
export const KIND_SNAPSHOT: u16 = 3;
export const KIND_SEGMENT: u16 = 4;

// FLAG_WANT_SNAPSHOT: the sender of a report asks for the whole table.
// FLAG_MORE: a further frame of the same snapshot follows in this body.
// FLAG_WANT_TABLE: the control plane is new and asks the gateway to send up what it holds.
// FLAG_TABLE: the touches of this report are what the gateway holds, not what is new.
export const FLAG_WANT_SNAPSHOT: u32 = 1;
export const FLAG_MORE: u32 = 2;
export const FLAG_WANT_TABLE: u32 = 4;
export const FLAG_TABLE: u32 = 8;
export const FLAGS_KNOWN: u32 = 15;

export const SECTION_POOL: u16 = 1;
export const SECTION_SECRET: u16 = 2;
export const SECTION_ENDPOINTS: u16 = 3;
export const SECTION_LOAD: u16 = 4;
export const SECTION_METRICS: u16 = 5;
export const SECTION_TOUCHES: u16 = 6;
export const SECTION_OUTCOMES: u16 = 7;
export const SECTION_GATEWAY: u16 = 8;
export const SECTION_ADAPTERS: u16 = 9;
export const SECTION_ALIASES: u16 = 10;
export const SECTIONS: u16 = 10;

export const POOL_BYTES: u32 = 32;
// What may follow the pool's settings: where the policies session and prefix-header find their key.
export const POOL_KEY_BYTES: u32 = 8;
export const KEY_SOURCE_HEADER: u8 = 1;
export const KEY_SOURCE_COOKIE: u8 = 2;
export const SECRET_BYTES: u32 = 32;
export const ENDPOINT_BYTES: u32 = 40;
export const LOAD_BYTES: u32 = 24;
export const METRICS_BYTES: u32 = 32;
export const TOUCHES_HEADER_BYTES: u32 = 8;
export const TOUCH_BYTES: u32 = 24;
export const OUTCOMES_HEADER_BYTES: u32 = 16;
export const OUTCOME_BYTES: u32 = 120;
export const OUTCOME_KIND_BYTES: u32 = 152;
export const GATEWAY_BYTES: u32 = 24;
export const ADAPTER_BYTES: u32 = 8;
export const ALIAS_BYTES: u32 = 8;

export const ENDPOINT_READY: u16 = 1;
export const ENDPOINT_DRAIN: u16 = 2;
export const METRICS_RUNNING: u32 = 1;
export const METRICS_WAITING: u32 = 2;
export const METRICS_KV_USAGE: u32 = 4;
export const METRICS_STALE: u32 = 8;
export const TOUCH_CLEAR: u16 = 1;

// The eight-byte counters of an outcome record, in their order.
export const OUTCOME_OK: u32 = 0;
export const OUTCOME_CLIENT_ERRORS: u32 = 1;
export const OUTCOME_SERVER_ERRORS: u32 = 2;
export const OUTCOME_ELSEWHERE: u32 = 3;
export const OUTCOME_PROMPT_BYTES: u32 = 4;
export const OUTCOME_PROMPT_TOKENS: u32 = 5;
export const OUTCOME_PREDICTED_CACHED_TOKENS: u32 = 6;
export const OUTCOME_ACTUAL_CACHED_TOKENS: u32 = 7;
export const OUTCOME_COMPLETION_TOKENS: u32 = 8;
export const OUTCOME_TTFT_COUNT: u32 = 9;
// Matches by what usage said of them: held as believed, less than believed, more than believed.
export const OUTCOME_CONFIRMED: u32 = 10;
export const OUTCOME_CONTRADICTED: u32 = 11;
export const OUTCOME_EXCEEDED: u32 = 12;
export const OUTCOME_COUNTERS: u32 = 13;

// The kinds of requests that are told apart: by API, numbered from 0, and by language. A kind's number is api * LANGUAGES + language.
export const KIND_APIS: u32 = 4;
export const LANGUAGES: u32 = 4;
export const OUTCOME_KINDS: u32 = 16;

// The eight-byte counters of a kind's record, in their order; the last are the buckets of the prediction's error.
export const OUTCOME_KIND_REQUESTS: u32 = 0;
export const OUTCOME_KIND_PROMPT_BYTES: u32 = 1;
export const OUTCOME_KIND_PROMPT_TOKENS: u32 = 2;
export const OUTCOME_KIND_ESTIMATED_TOKENS: u32 = 3;
export const OUTCOME_KIND_PREDICTED_TOKENS: u32 = 4;
export const OUTCOME_KIND_ACTUAL_TOKENS: u32 = 5;
export const OUTCOME_KIND_CLOSE: u32 = 6;
export const OUTCOME_KIND_ERRORS: u32 = 7;
export const OUTCOME_ERRORS: u32 = 11;
export const OUTCOME_KIND_COUNTERS: u32 = 18;

// What frameCheck() found wrong. The numbers are permanent; docs/WIRE.md explains each.
export const FRAME_OK: u32 = 0;
export const FRAME_ERROR_SHORT: u32 = 1;
export const FRAME_ERROR_MAGIC: u32 = 2;
export const FRAME_ERROR_VERSION: u32 = 3;
export const FRAME_ERROR_KIND: u32 = 4;
export const FRAME_ERROR_LENGTH: u32 = 5;
export const FRAME_ERROR_CHECK: u32 = 6;
export const FRAME_ERROR_FLAGS: u32 = 7;
export const FRAME_ERROR_SECTION: u32 = 8;
export const FRAME_ERROR_SECTION_LENGTH: u32 = 9;
export const FRAME_ERROR_COUNT: u32 = 10;
export const FRAME_ERROR_VALUE: u32 = 11;
export const FRAME_ERROR_NOT_ALLOWED: u32 = 12;
export const FRAME_ERROR_NO_GATEWAY: u32 = 13;
