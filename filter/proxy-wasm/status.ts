// Every number of the ABI that has a meaning, by name.

// What a host call returns.
export const STATUS_OK: u32 = 0;
export const STATUS_NOT_FOUND: u32 = 1;
export const STATUS_BAD_ARGUMENT: u32 = 2;
export const STATUS_SERIALIZATION_FAILURE: u32 = 3;
export const STATUS_PARSE_FAILURE: u32 = 4;
export const STATUS_BAD_EXPRESSION: u32 = 5;
// Also what a call returns when its result is larger than the room that memory.ts offers.
export const STATUS_INVALID_MEMORY_ACCESS: u32 = 6;
export const STATUS_EMPTY: u32 = 7;
export const STATUS_CAS_MISMATCH: u32 = 8;
export const STATUS_RESULT_MISMATCH: u32 = 9;
export const STATUS_INTERNAL_FAILURE: u32 = 10;
export const STATUS_BROKEN_CONNECTION: u32 = 11;
export const STATUS_UNIMPLEMENTED: u32 = 12;

// What a header or body callback returns.
export const ACTION_CONTINUE: u32 = 0;
// Keeps the headers back for ever unless the host allows it, which Istio cannot say: never return it from a header callback.
export const ACTION_STOP: u32 = 1;
export const ACTION_STOP_AND_BUFFER: u32 = 2;

export const LOG_TRACE: u32 = 0;
export const LOG_DEBUG: u32 = 1;
export const LOG_INFO: u32 = 2;
export const LOG_WARN: u32 = 3;
export const LOG_ERROR: u32 = 4;
export const LOG_CRITICAL: u32 = 5;

export const HEADERS_REQUEST: u32 = 0;
export const TRAILERS_REQUEST: u32 = 1;
export const HEADERS_RESPONSE: u32 = 2;
export const TRAILERS_RESPONSE: u32 = 3;
export const HEADERS_CALL: u32 = 6;
export const TRAILERS_CALL: u32 = 7;

export const BUFFER_REQUEST_BODY: u32 = 0;
export const BUFFER_RESPONSE_BODY: u32 = 1;
export const BUFFER_CALL_BODY: u32 = 4;
export const BUFFER_VM_CONFIGURATION: u32 = 6;
export const BUFFER_PLUGIN_CONFIGURATION: u32 = 7;

export const STREAM_REQUEST: u32 = 0;
export const STREAM_RESPONSE: u32 = 1;

export const METRIC_COUNTER: u32 = 0;
export const METRIC_GAUGE: u32 = 1;
export const METRIC_HISTOGRAM: u32 = 2;
