// The raw host calls of proxy-wasm ABI 0.2.1, and the only file that declares them. The compiler names the import module
// after the file, so everything here is imported from module `env` and needs no decorator. Nothing is checked here:
// a filter calls host.ts. Every call returns a status of status.ts.
//
// Naming: `ptr` and `bytes` give the host a region to read; `...Out` is the address of a word the host writes. Where a
// result has a `valuePtrOut`, the host asks proxy_on_memory_allocate (memory.ts) for room first.

/* eslint-disable @typescript-eslint/naming-convention -- these are the names of the ABI */

export declare function proxy_log(level: u32, messagePtr: usize, messageBytes: usize): u32;
export declare function proxy_get_log_level(levelOut: usize): u32;

export declare function proxy_get_current_time_nanoseconds(timeOut: usize): u32;
export declare function proxy_set_tick_period_milliseconds(periodMs: u32): u32;
export declare function proxy_set_effective_context(contextId: u32): u32;
export declare function proxy_done(): u32;

export declare function proxy_get_property(
  pathPtr: usize,
  pathBytes: usize,
  valuePtrOut: usize,
  valueBytesOut: usize,
): u32;
export declare function proxy_set_property(pathPtr: usize, pathBytes: usize, valuePtr: usize, valueBytes: usize): u32;

export declare function proxy_get_header_map_value(
  map: u32,
  namePtr: usize,
  nameBytes: usize,
  valuePtrOut: usize,
  valueBytesOut: usize,
): u32;
export declare function proxy_get_header_map_pairs(map: u32, pairsPtrOut: usize, pairsBytesOut: usize): u32;
export declare function proxy_get_header_map_size(map: u32, bytesOut: usize): u32;
export declare function proxy_add_header_map_value(
  map: u32,
  namePtr: usize,
  nameBytes: usize,
  valuePtr: usize,
  valueBytes: usize,
): u32;
export declare function proxy_replace_header_map_value(
  map: u32,
  namePtr: usize,
  nameBytes: usize,
  valuePtr: usize,
  valueBytes: usize,
): u32;
export declare function proxy_remove_header_map_value(map: u32, namePtr: usize, nameBytes: usize): u32;

export declare function proxy_get_buffer_bytes(
  buffer: u32,
  start: usize,
  bytesMax: usize,
  valuePtrOut: usize,
  valueBytesOut: usize,
): u32;
export declare function proxy_get_buffer_status(buffer: u32, bytesOut: usize, flagsOut: usize): u32;
export declare function proxy_set_buffer_bytes(
  buffer: u32,
  start: usize,
  bytesReplaced: usize,
  valuePtr: usize,
  valueBytes: usize,
): u32;

export declare function proxy_continue_stream(stream: u32): u32;
export declare function proxy_close_stream(stream: u32): u32;
export declare function proxy_send_local_response(
  statusCode: u32,
  detailsPtr: usize,
  detailsBytes: usize,
  bodyPtr: usize,
  bodyBytes: usize,
  pairsPtr: usize,
  pairsBytes: usize,
  grpcStatus: i32,
): u32;

export declare function proxy_get_shared_data(
  keyPtr: usize,
  keyBytes: usize,
  valuePtrOut: usize,
  valueBytesOut: usize,
  casOut: usize,
): u32;
export declare function proxy_set_shared_data(
  keyPtr: usize,
  keyBytes: usize,
  valuePtr: usize,
  valueBytes: usize,
  cas: u32,
): u32;

export declare function proxy_http_call(
  clusterPtr: usize,
  clusterBytes: usize,
  pairsPtr: usize,
  pairsBytes: usize,
  bodyPtr: usize,
  bodyBytes: usize,
  trailersPtr: usize,
  trailersBytes: usize,
  timeoutMs: u32,
  callOut: usize,
): u32;

export declare function proxy_define_metric(kind: u32, namePtr: usize, nameBytes: usize, metricOut: usize): u32;
export declare function proxy_increment_metric(metric: u32, offset: i64): u32;
export declare function proxy_record_metric(metric: u32, value: u64): u32;
export declare function proxy_get_metric(metric: u32, valueOut: usize): u32;
