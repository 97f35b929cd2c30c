// The filter that does nothing: it stands in for Warmpath's in the same Envoy chain, so that a benchmark or a test can tell
// what the chain costs from what the filter costs: it takes the same callbacks, since Envoy pays for each. It is also the shortest complete example of a proxy-wasm filter here.

import { ACTION_CONTINUE } from './proxy-wasm/status';

export { proxy_abi_version_0_2_1, proxy_on_memory_allocate } from './proxy-wasm/memory';

export function proxy_on_vm_start(_rootId: u32, _configurationBytes: u32): bool {
  return true;
}

export function proxy_on_configure(_rootId: u32, _configurationBytes: u32): bool {
  return true;
}

export function proxy_on_context_create(_contextId: u32, _parentId: u32): void {}

export function proxy_on_request_headers(_contextId: u32, _headers: u32, _endOfStream: bool): u32 {
  return ACTION_CONTINUE;
}

export function proxy_on_request_body(_contextId: u32, _bytes: u32, _endOfStream: bool): u32 {
  return ACTION_CONTINUE;
}

export function proxy_on_request_trailers(_contextId: u32, _trailers: u32): u32 {
  return ACTION_CONTINUE;
}

export function proxy_on_response_headers(_contextId: u32, _headers: u32, _endOfStream: bool): u32 {
  return ACTION_CONTINUE;
}

export function proxy_on_response_body(_contextId: u32, _bytes: u32, _endOfStream: bool): u32 {
  return ACTION_CONTINUE;
}

export function proxy_on_done(_contextId: u32): bool {
  return true;
}
