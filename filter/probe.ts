// A filter for tests: it says in the log what the host does to it, call by call, and does what request headers tell it to.
// The same tests run it in the proxy-wasm host for Node and in a real Envoy, which keeps the two alike.
//
//   x-probe-pick: LIST   leaves LIST in filter state `wasm.warmpath.pick` when the request has ended
//   x-probe-do: NAME     makes the host calls of that name in probe-calls.ts
//   x-probe-trap: yes    traps in the header callback
//   plugin configuration: `refuse` is refused; `tick` asks for a tick each 10 ms and counts them in shared data;
//   `call` starts a call to the cluster `warmpath` at each tick

import {
  bufferBytes,
  bufferSize,
  call,
  header,
  metric,
  metricAdd,
  property,
  propertySet,
  resultBytes,
  resultCas,
  resultNumber,
  resultPtr,
  sharedData,
  sharedDataCreate,
  sharedDataSwap,
  tickEvery,
} from './proxy-wasm/host';
import { lineBytesOf, lineLog, lineNumber, lineStart, lineText } from './proxy-wasm/line';
import {
  ACTION_CONTINUE,
  BUFFER_CALL_BODY,
  BUFFER_PLUGIN_CONFIGURATION,
  BUFFER_REQUEST_BODY,
  BUFFER_RESPONSE_BODY,
  HEADERS_CALL,
  HEADERS_REQUEST,
  HEADERS_RESPONSE,
  LOG_WARN,
  METRIC_COUNTER,
  METRIC_GAUGE,
  STATUS_OK,
} from './proxy-wasm/status';
import { perform } from './probe-calls';
import { Text, pairs, path, text, textBytes, textEquals, textPtr } from './proxy-wasm/text';

export { proxy_abi_version_0_2_1, proxy_on_memory_allocate } from './proxy-wasm/memory';

const SLOTS: u32 = 256;
const PICK_BYTES: i32 = 120;
// One slot a stream: | u32 bytes | PICK_BYTES |
const picks: usize = memory.data(256 * 124);

const SPACE: Text = text(' ');
const NOTHING: Text = text('-');
const PICK: Text = path(['warmpath.pick']);
const KEY: Text = text('probe.ticks');
const REFUSE: Text = text('refuse');
const TICK: Text = text('tick');
const CALL: Text = text('call');
const CLUSTER: Text = text('warmpath');
const CALL_HEADERS: Text = pairs([':method', 'POST', ':path', '/v1/sync', ':authority', 'warmpath']);
const HEADER_PICK: Text = text('x-probe-pick');
const HEADER_DO: Text = text('x-probe-do');
const HEADER_TRAP: Text = text('x-probe-trap');
const HEADER_STATUS: Text = text(':status');
const PROPERTY_PATH: Text = path(['request', 'path']);
const PROPERTY_CLUSTER: Text = path(['xds', 'cluster_name']);
const PROPERTY_UPSTREAM: Text = path(['upstream', 'address']);
const PROPERTY_CODE: Text = path(['response', 'code']);
const PROPERTY_PLUGIN: Text = path(['plugin_name']);
const SAY_VM_START: Text = text('vm_start');
const SAY_CONFIGURE: Text = text('configure');
const SAY_CREATE: Text = text('create');
const SAY_TICK: Text = text('tick');
const SAY_REQUEST_HEADERS: Text = text('request_headers');
const SAY_REQUEST_BODY: Text = text('request_body');
const SAY_REQUEST_TRAILERS: Text = text('request_trailers');
const SAY_RESPONSE_HEADERS: Text = text('response_headers');
const SAY_RESPONSE_BODY: Text = text('response_body');
const SAY_RESPONSE_TRAILERS: Text = text('response_trailers');
const SAY_ANSWER: Text = text('answer');
const SAY_DONE: Text = text('done');
const SAY_LOG: Text = text('log');
const SAY_DELETE: Text = text('delete');
const METRIC_REQUESTS: Text = text('warmpath_probe_requests_total.pool.p.result.ok');
const METRIC_OPEN: Text = text('warmpath_probe_open');

let requests: u32 = 0;
let open: u32 = 0;
let isCalling: bool = false;
const trap = new StaticArray<u8>(1);

export function proxy_on_vm_start(rootId: u32, _bytes: u32): bool {
  if (metric(METRIC_COUNTER, METRIC_REQUESTS) == STATUS_OK) requests = <u32>resultNumber;
  if (metric(METRIC_GAUGE, METRIC_OPEN) == STATUS_OK) open = <u32>resultNumber;
  say(SAY_VM_START, rootId);
  lineLog(LOG_WARN);
  return true;
}

export function proxy_on_configure(rootId: u32, bytes: u32): bool {
  say(SAY_CONFIGURE, rootId);
  sayResult(property(PROPERTY_PLUGIN));
  const status = bytes > 0 ? bufferBytes(BUFFER_PLUGIN_CONFIGURATION, 0, bytes) : 0;
  sayResult(status);
  lineLog(LOG_WARN);
  if (bytes == 0 || status != STATUS_OK) return true;
  isCalling = textEquals(CALL, resultPtr, resultBytes);
  if (isCalling || textEquals(TICK, resultPtr, resultBytes)) tickEvery(10);
  return !textEquals(REFUSE, resultPtr, resultBytes);
}

export function proxy_on_context_create(contextId: u32, parentId: u32): void {
  store<u32>(slotOf(contextId), 0);
  say(SAY_CREATE, contextId);
  lineText(SPACE);
  lineNumber(parentId);
  lineLog(LOG_WARN);
}

// Counts ticks of all VMs in one shared value, by compare-and-set.
export function proxy_on_tick(rootId: u32): void {
  let ticks: u64 = 0;
  let cas: u32 = 0;
  if (sharedData(textPtr(KEY), textBytes(KEY)) == STATUS_OK && resultBytes == 8) {
    ticks = load<u64>(resultPtr);
    cas = resultCas;
  }
  store<u64>(slotOf(0), ticks + 1);
  const status =
    cas == 0
      ? sharedDataCreate(textPtr(KEY), textBytes(KEY), slotOf(0), 8)
      : sharedDataSwap(textPtr(KEY), textBytes(KEY), slotOf(0), 8, cas);
  say(SAY_TICK, rootId);
  lineText(SPACE);
  lineNumber(ticks + 1);
  lineText(SPACE);
  lineNumber(status);
  if (isCalling) {
    lineText(SPACE);
    lineNumber(call(CLUSTER, CALL_HEADERS, textPtr(KEY), textBytes(KEY), 1000));
  }
  lineLog(LOG_WARN);
}

export function proxy_on_http_call_response(rootId: u32, _call: u32, headers: u32, bytes: u32, _trailers: u32): void {
  say(SAY_ANSWER, rootId);
  if (headers > 0) sayResult(header(HEADERS_CALL, HEADER_STATUS));
  lineText(SPACE);
  lineNumber(bytes);
  if (bytes > 0) {
    const status = bufferBytes(BUFFER_CALL_BODY, 0, bytes);
    lineText(SPACE);
    lineNumber(status);
    lineText(SPACE);
    lineNumber(resultBytes);
    lineText(SPACE);
    lineBytesOf(resultPtr, min<usize>(resultBytes, 8));
  }
  lineLog(LOG_WARN);
}

export function proxy_on_request_headers(contextId: u32, _headers: u32, endOfStream: bool): u32 {
  say(SAY_REQUEST_HEADERS, contextId);
  sayEnd(endOfStream);
  sayResult(property(PROPERTY_PATH));
  sayResult(property(PROPERTY_CLUSTER));
  lineLog(LOG_WARN);
  metricAdd(requests, 1);
  metricAdd(open, 1);
  if (header(HEADERS_REQUEST, HEADER_DO) == STATUS_OK) perform(resultPtr, resultBytes);
  if (header(HEADERS_REQUEST, HEADER_TRAP) == STATUS_OK) trap[<i32>resultBytes] = 0;
  const slot = slotOf(contextId);
  if (header(HEADERS_REQUEST, HEADER_PICK) == STATUS_OK && resultBytes <= <usize>PICK_BYTES) {
    store<u32>(slot, <u32>resultBytes);
    memory.copy(slot + 4, resultPtr, resultBytes);
  }
  if (endOfStream) pick(contextId);
  return ACTION_CONTINUE;
}

export function proxy_on_request_body(contextId: u32, bytes: u32, endOfStream: bool): u32 {
  say(SAY_REQUEST_BODY, contextId);
  sayEnd(endOfStream);
  sayBody(BUFFER_REQUEST_BODY, bytes);
  sayResult(property(PROPERTY_PATH));
  sayResult(property(PROPERTY_CLUSTER));
  lineLog(LOG_WARN);
  if (endOfStream) pick(contextId);
  return ACTION_CONTINUE;
}

export function proxy_on_request_trailers(contextId: u32, _trailers: u32): u32 {
  say(SAY_REQUEST_TRAILERS, contextId);
  lineLog(LOG_WARN);
  pick(contextId);
  return ACTION_CONTINUE;
}

export function proxy_on_response_headers(contextId: u32, _headers: u32, endOfStream: bool): u32 {
  say(SAY_RESPONSE_HEADERS, contextId);
  sayEnd(endOfStream);
  sayResult(header(HEADERS_RESPONSE, HEADER_STATUS));
  lineLog(LOG_WARN);
  return ACTION_CONTINUE;
}

export function proxy_on_response_body(contextId: u32, bytes: u32, endOfStream: bool): u32 {
  say(SAY_RESPONSE_BODY, contextId);
  sayEnd(endOfStream);
  sayBody(BUFFER_RESPONSE_BODY, bytes);
  lineLog(LOG_WARN);
  return ACTION_CONTINUE;
}

export function proxy_on_response_trailers(contextId: u32, _trailers: u32): u32 {
  say(SAY_RESPONSE_TRAILERS, contextId);
  lineLog(LOG_WARN);
  return ACTION_CONTINUE;
}

export function proxy_on_done(contextId: u32): bool {
  say(SAY_DONE, contextId);
  lineLog(LOG_WARN);
  return true;
}

export function proxy_on_log(contextId: u32): void {
  metricAdd(open, -1);
  say(SAY_LOG, contextId);
  lineText(SPACE);
  if (property(PROPERTY_CODE) == STATUS_OK && resultBytes == 8) lineNumber(load<i64>(resultPtr));
  sayResult(property(PROPERTY_CLUSTER));
  sayResult(property(PROPERTY_UPSTREAM));
  lineLog(LOG_WARN);
}

export function proxy_on_delete(contextId: u32): void {
  say(SAY_DELETE, contextId);
  lineLog(LOG_WARN);
}

function slotOf(contextId: u32): usize {
  return picks + <usize>(contextId & (SLOTS - 1)) * 124;
}

function pick(contextId: u32): void {
  const slot = slotOf(contextId);
  if (load<u32>(slot) > 0) propertySet(PICK, slot + 4, load<u32>(slot));
}

function say(what: Text, contextId: u32): void {
  lineStart();
  lineText(what);
  lineText(SPACE);
  lineNumber(contextId);
}

function sayEnd(endOfStream: bool): void {
  lineText(SPACE);
  lineNumber(endOfStream ? 1 : 0);
}

// What the last call found, or a dash.
function sayResult(status: u32): void {
  lineText(SPACE);
  if (status == STATUS_OK && resultBytes > 0) lineBytesOf(resultPtr, resultBytes);
  else lineText(NOTHING);
}

// How many bytes the callback spoke of, how many the buffer has, and the first few.
function sayBody(buffer: u32, bytes: u32): void {
  lineText(SPACE);
  lineNumber(bytes);
  lineText(SPACE);
  lineNumber(bufferSize(buffer) == STATUS_OK ? <i64>resultNumber : -1);
  sayResult(bytes > 0 ? bufferBytes(buffer, 0, <usize>min<u32>(bytes, 8)) : 0);
}
