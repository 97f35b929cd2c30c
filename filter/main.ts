// The callbacks that Envoy calls, one line each. Whatever a callback does stands in plugin.ts (a root context's part) or in
// stream.ts (a request's part). Every header and body callback continues: this filter never holds anything back,
// and the one request that it answers itself (subset.ts) is over.
export { proxy_abi_version_0_2_1, proxy_on_memory_allocate } from './proxy-wasm/memory';
import { garbageCollect } from './garbage';
import {
  pluginAnswered,
  pluginConfigure,
  pluginIsRoot,
  pluginRootCreate,
  pluginRootDelete,
  pluginTick,
} from './plugin';
import { pickRefusedTake } from './pick';
import { ACTION_CONTINUE, ACTION_STOP } from './proxy-wasm/status';
import {
  streamCreate,
  streamDone,
  streamRequestBody,
  streamRequestHeaders,
  streamRequestTrailers,
  streamResponseBody,
  streamResponseHeaders,
} from './stream';

export function proxy_on_context_create(context: u32, root: u32): void {
  if (root == 0) pluginRootCreate(context);
  else streamCreate(context, root);
}

export function proxy_on_vm_start(_root: u32, _bytes: u32): u32 {
  garbageCollect();
  return 1;
}

export function proxy_on_configure(root: u32, bytes: u32): u32 {
  const isTaken = pluginConfigure(root, bytes);
  garbageCollect();
  return isTaken ? 1 : 0;
}

export function proxy_on_tick(root: u32): void {
  pluginTick(root);
  garbageCollect();
}

export function proxy_on_http_call_response(root: u32, call: u32, _headers: u32, _bytes: u32, _trailers: u32): void {
  pluginAnswered(root, call);
}

/** Where the request was answered by the filter itself the host is to go no further with it. */
function requestAction(): u32 {
  return pickRefusedTake() ? ACTION_STOP : ACTION_CONTINUE;
}

export function proxy_on_request_headers(context: u32, _headers: u32, endOfStream: u32): u32 {
  streamRequestHeaders(context, endOfStream != 0);
  return requestAction();
}

export function proxy_on_request_body(context: u32, bytes: u32, endOfStream: u32): u32 {
  streamRequestBody(context, bytes, endOfStream != 0);
  return requestAction();
}

export function proxy_on_request_trailers(context: u32, _trailers: u32): u32 {
  streamRequestTrailers(context);
  return requestAction();
}

export function proxy_on_response_headers(context: u32, _headers: u32, endOfStream: u32): u32 {
  streamResponseHeaders(context, endOfStream != 0);
  return ACTION_CONTINUE;
}

export function proxy_on_response_body(context: u32, bytes: u32, endOfStream: u32): u32 {
  streamResponseBody(context, bytes, endOfStream != 0);
  return ACTION_CONTINUE;
}

/** The end of a stream or a root. Envoy would also call proxy_on_log before and proxy_on_delete behind; each call into a VM has its price. */
export function proxy_on_done(context: u32): u32 {
  if (!streamDone(context) && pluginIsRoot(context)) pluginRootDelete(context);
  return 1;
}
