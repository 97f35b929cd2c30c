// Checked host calls for a filter. No call allocates and no call traps: each returns a status of status.ts, and leaves what
// it found in the variables below, which the next call overwrites. After any status but STATUS_OK they are zero.

import {
  proxy_add_header_map_value,
  proxy_close_stream,
  proxy_continue_stream,
  proxy_define_metric,
  proxy_done,
  proxy_get_buffer_bytes,
  proxy_get_buffer_status,
  proxy_get_current_time_nanoseconds,
  proxy_get_header_map_pairs,
  proxy_get_header_map_value,
  proxy_get_log_level,
  proxy_get_metric,
  proxy_get_property,
  proxy_get_shared_data,
  proxy_http_call,
  proxy_increment_metric,
  proxy_log,
  proxy_record_metric,
  proxy_remove_header_map_value,
  proxy_replace_header_map_value,
  proxy_send_local_response,
  proxy_set_effective_context,
  proxy_set_property,
  proxy_set_shared_data,
  proxy_set_tick_period_milliseconds,
} from './env';
import { environ_get, environ_sizes_get, random_get } from './wasi_snapshot_preview1';
import { landAt, landInScratch, landed } from './memory';
import { LOG_INFO, STATUS_INTERNAL_FAILURE, STATUS_NOT_FOUND, STATUS_OK } from './status';
import { Text, textBytes, textPtr } from './text';

// The bytes of the last result: where they are, and how many.
export let resultPtr: usize = 0;
export let resultBytes: usize = 0;
// The version of the last shared-data value, for a compare-and-set.
export let resultCas: u32 = 0;
// The last number: a metric's id or value, a call's id, a size.
export let resultNumber: u64 = 0;

// A version no value ever has while the host hands out fewer than 2^32 - 1: see sharedDataCreate.
const CAS_NEVER: u32 = 0xffff_ffff;

// Words the host writes: | ptr u32 | bytes u32 | cas u32 | - | number u64 |
const out: usize = memory.data(24, 16);
const outBytes: usize = out + 4;
const outCas: usize = out + 8;
const outNumber: usize = out + 16;

// ---- log and time

export function log(level: u32, ptr: usize, bytes: usize): u32 {
  return proxy_log(level, ptr, bytes);
}

export function logText(level: u32, message: Text): u32 {
  return proxy_log(level, textPtr(message), textBytes(message));
}

// The level below which the host drops messages.
export function logLevel(): u32 {
  clear();
  return proxy_get_log_level(outNumber) == STATUS_OK ? load<u32>(outNumber) : LOG_INFO;
}

// Unix time. Within one callback the host may repeat the same instant.
export function nowNs(): u64 {
  store<u64>(outNumber, 0);
  proxy_get_current_time_nanoseconds(outNumber);
  return load<u64>(outNumber);
}

export function nowMs(): f64 {
  return <f64>nowNs() / 1e6;
}

// Asks for proxy_on_tick on the current root context; 0 ends it.
export function tickEvery(periodMs: u32): u32 {
  return proxy_set_tick_period_milliseconds(periodMs);
}

// ---- contexts

// Host calls that follow act for this context, until the callback returns.
export function actFor(contextId: u32): u32 {
  return proxy_set_effective_context(contextId);
}

// Tells the host that a context whose proxy_on_done returned 0 is done now.
export function done(): u32 {
  return proxy_done();
}

// ---- properties

// A property by its path(); numbers come as 8 bytes, little-endian.
export function property(path: Text): u32 {
  clear();
  return taken(proxy_get_property(textPtr(path), textBytes(path), out, outBytes));
}

export function propertySet(path: Text, ptr: usize, bytes: usize): u32 {
  return proxy_set_property(textPtr(path), textBytes(path), ptr, bytes);
}

// ---- headers and trailers: `map` is one of HEADERS_... and TRAILERS_...

export function header(map: u32, name: Text): u32 {
  return headerNamed(map, textPtr(name), textBytes(name));
}

export function headerNamed(map: u32, namePtr: usize, nameBytes: usize): u32 {
  clear();
  return taken(proxy_get_header_map_value(map, namePtr, nameBytes, out, outBytes));
}

export function headerAdd(map: u32, name: Text, ptr: usize, bytes: usize): u32 {
  return proxy_add_header_map_value(map, textPtr(name), textBytes(name), ptr, bytes);
}

export function headerReplace(map: u32, name: Text, ptr: usize, bytes: usize): u32 {
  return proxy_replace_header_map_value(map, textPtr(name), textBytes(name), ptr, bytes);
}

export function headerRemove(map: u32, name: Text): u32 {
  return proxy_remove_header_map_value(map, textPtr(name), textBytes(name));
}

// The whole map, serialised as in text.ts.
export function headerPairs(map: u32): u32 {
  clear();
  return taken(proxy_get_header_map_pairs(map, out, outBytes));
}

// The same, written by the host straight to `ptr`.
export function headerPairsInto(map: u32, ptr: usize, bytesMax: usize): u32 {
  landAt(ptr, bytesMax);
  const status = headerPairs(map);
  landInScratch();
  return status;
}

// ---- buffers: `buffer` is one of BUFFER_...

// How many bytes a buffer holds now, in resultNumber.
export function bufferSize(buffer: u32): u32 {
  clear();
  const status = proxy_get_buffer_status(buffer, outBytes, out);
  if (status == STATUS_OK) resultNumber = load<u32>(outBytes);
  return status;
}

// Up to `bytesMax` bytes from `start`, which must not lie behind the buffer's end.
export function bufferBytes(buffer: u32, start: usize, bytesMax: usize): u32 {
  clear();
  return taken(proxy_get_buffer_bytes(buffer, start, bytesMax, out, outBytes));
}

// The same, written by the host straight to `ptr`.
export function bufferBytesInto(buffer: u32, start: usize, ptr: usize, bytesMax: usize): u32 {
  clear();
  landAt(ptr, bytesMax);
  const status = taken(proxy_get_buffer_bytes(buffer, start, bytesMax, out, outBytes));
  landInScratch();
  return status;
}

// ---- flow of a stream: `stream` is STREAM_REQUEST or STREAM_RESPONSE

export function streamContinue(stream: u32): u32 {
  return proxy_continue_stream(stream);
}

export function streamClose(stream: u32): u32 {
  return proxy_close_stream(stream);
}

// Answers the request here. `headers` comes from pairs().
export function respond(statusCode: u32, details: Text, body: Text, headers: Text): u32 {
  return proxy_send_local_response(
    statusCode,
    textPtr(details),
    textBytes(details),
    textPtr(body),
    textBytes(body),
    textPtr(headers),
    textBytes(headers),
    -1,
  );
}

// ---- data shared by the VMs of one proxy. Its keys are shared by every plugin with the same vm_id: prefix them.

export function sharedData(keyPtr: usize, keyBytes: usize): u32 {
  clear();
  return shared(taken(proxy_get_shared_data(keyPtr, keyBytes, out, outBytes, outCas)));
}

// The same, written by the host straight to `ptr`.
export function sharedDataInto(keyPtr: usize, keyBytes: usize, ptr: usize, bytesMax: usize): u32 {
  clear();
  landAt(ptr, bytesMax);
  const status = shared(taken(proxy_get_shared_data(keyPtr, keyBytes, out, outBytes, outCas)));
  landInScratch();
  return status;
}

// Sets a value whatever was there.
export function sharedDataSet(keyPtr: usize, keyBytes: usize, ptr: usize, bytes: usize): u32 {
  return proxy_set_shared_data(keyPtr, keyBytes, ptr, bytes, 0);
}

// Sets a value if it is still the one that was read with `cas`; STATUS_CAS_MISMATCH if not. A key that is gone is created.
export function sharedDataSwap(keyPtr: usize, keyBytes: usize, ptr: usize, bytes: usize, cas: u32): u32 {
  return proxy_set_shared_data(keyPtr, keyBytes, ptr, bytes, cas);
}

// Sets a value if the key does not exist yet; STATUS_CAS_MISMATCH if it does. The host compares versions only where there is
// a value, so a version that no value has creates and never overwrites.
export function sharedDataCreate(keyPtr: usize, keyBytes: usize, ptr: usize, bytes: usize): u32 {
  return proxy_set_shared_data(keyPtr, keyBytes, ptr, bytes, CAS_NEVER);
}

// ---- calls out

// Starts a call to a cluster; `headers` comes from pairs() and needs :method, :path and :authority. The call's id is in
// resultNumber; the answer comes to proxy_on_http_call_response.
export function call(cluster: Text, headers: Text, bodyPtr: usize, bodyBytes: usize, timeoutMs: u32): u32 {
  clear();
  const status = proxy_http_call(
    textPtr(cluster),
    textBytes(cluster),
    textPtr(headers),
    textBytes(headers),
    bodyPtr,
    bodyBytes,
    0,
    0,
    timeoutMs,
    outNumber,
  );
  if (status == STATUS_OK) resultNumber = load<u32>(outNumber);
  return status;
}

// ---- metrics: `kind` is one of METRIC_...

// Defines a metric, or finds the one defined before; its id is in resultNumber.
export function metric(kind: u32, name: Text): u32 {
  clear();
  const status = proxy_define_metric(kind, textPtr(name), textBytes(name), outNumber);
  if (status == STATUS_OK) resultNumber = load<u32>(outNumber);
  return status;
}

export function metricAdd(id: u32, offset: i64): u32 {
  return proxy_increment_metric(id, offset);
}

export function metricSet(id: u32, value: u64): u32 {
  return proxy_record_metric(id, value);
}

export function metricValue(id: u32): u32 {
  clear();
  const status = proxy_get_metric(id, outNumber);
  if (status == STATUS_OK) resultNumber = load<u64>(outNumber);
  return status;
}

// ---- start-up

// A random number of 64 bits from the host, for seeds.
export function randomSeed(): u64 {
  store<u64>(outNumber, 0);
  random_get(outNumber, 8);
  return load<u64>(outNumber);
}

// A variable of the VM's environment. Allocates: for start-up and configuration. The result lies in memory of its own
// until the next call of this function.
export function environment(name: Text): u32 {
  clear();
  if (environ_sizes_get(outNumber, outNumber + 4) != 0) return STATUS_INTERNAL_FAILURE;
  const count: usize = load<u32>(outNumber);
  const bytes: usize = load<u32>(outNumber + 4);
  if (environmentBlock != 0) heap.free(environmentBlock);
  environmentBlock = heap.alloc(count * 4 + bytes + 1);
  if (environ_get(environmentBlock, environmentBlock + count * 4) != 0) return STATUS_INTERNAL_FAILURE;
  const nameBytes = textBytes(name);
  let at = environmentBlock + count * 4;
  const end = at + bytes;
  while (at < end) {
    let stop = at;
    while (stop < end && load<u8>(stop) != 0) stop += 1;
    if (
      stop - at > nameBytes &&
      load<u8>(at + nameBytes) == 0x3d &&
      memory.compare(at, textPtr(name), nameBytes) == 0
    ) {
      resultPtr = at + nameBytes + 1;
      resultBytes = stop - resultPtr;
      return STATUS_OK;
    }
    at = stop + 1;
  }
  return STATUS_NOT_FOUND;
}

let environmentBlock: usize = 0;

// ---- shared by the calls above

function clear(): void {
  resultPtr = 0;
  resultBytes = 0;
  resultCas = 0;
  resultNumber = 0;
  // A host leaves these unwritten when a result is empty.
  store<u64>(out, 0);
  store<u64>(outCas, 0);
  store<u64>(outNumber, 0);
}

// Takes over a result's region once it is known to lie where the host was told to write.
function taken(status: u32): u32 {
  if (status != STATUS_OK) return status;
  const ptr: usize = load<u32>(out);
  const bytes: usize = load<u32>(outBytes);
  if (!landed(ptr, bytes)) return STATUS_INTERNAL_FAILURE;
  resultPtr = ptr;
  resultBytes = bytes;
  return STATUS_OK;
}

function shared(status: u32): u32 {
  if (status == STATUS_OK) resultCas = load<u32>(outCas);
  return status;
}
