// What the endpoint picker protocol of the Gateway API's inference extension has a gateway ask of whoever picks: only some of the pods
// (metadata that another filter has set), a priority and a fair share (headers of the client).
//
// A pick outside the subset would be wrong, and none inside it is answered 503, as the protocol wants. For priority and fair share something
// must wait, and here nothing does: engines queue. So they are counted, not obeyed, and the routes take them off what engines get.
import { subsetAdd, subsetBegin } from './engine/subset';
import { Counters } from './counters';
import { headerFind } from './headers';
import { podOfAddress } from './pods';
import { property, respond, resultBytes, resultPtr } from './proxy-wasm/host';
import { ADDRESS_BYTES_MAX, ADDRESS_BYTES_MIN, SUBSET_ADDRESSES_MAX } from './engine/limits';
import { STATUS_NOT_FOUND, STATUS_OK } from './proxy-wasm/status';
import { pairs, path, text, Text } from './proxy-wasm/text';

const PROPERTY_SUBSET: Text = path([
  'metadata',
  'filter_metadata',
  'envoy.lb.subset_hint',
  'x-gateway-destination-endpoint-subset',
]);
const HEADER_OBJECTIVE: Text = text('x-gateway-inference-objective');
const HEADER_OBJECTIVE_ALIAS: Text = text('x-llm-d-inference-objective');
const HEADER_FAIRNESS: Text = text('x-gateway-inference-fairness-id');
const HEADER_FAIRNESS_ALIAS: Text = text('x-llm-d-inference-fairness-id');

const STATUS_UNAVAILABLE: u32 = 503;
const DETAILS: Text = text('warmpath_subset_unavailable');
const BODY: Text = text(
  '{"error":{"message":"none of the endpoints this request is bound to is ready","type":"service_unavailable","code":503}}',
);
const HEADERS: Text = pairs(['content-type', 'application/json']);

const COMMA: u8 = 0x2c;
const SPACE: u8 = 0x20;

/** Counts what the request whose headers pass asks for and does not get. */
export function asksCount(counters: Counters): void {
  if (headerFind(HEADER_OBJECTIVE) || headerFind(HEADER_OBJECTIVE_ALIAS)) counters.countObjective();
  if (headerFind(HEADER_FAIRNESS) || headerFind(HEADER_FAIRNESS_ALIAS)) counters.countFairness();
}

/** Addresses of the subset at hand that were looked at. */
let looked: u32 = 0;

/** Bounds the pick that comes next to the request's subset. Returns whether there is one; subsetEnd() must follow the pick. */
export function subsetRead(pool: u32): bool {
  const status = property(PROPERTY_SUBSET);
  if (status == STATUS_NOT_FOUND) return false;
  subsetBegin();
  looked = 0;
  // What cannot be read binds to no pod: to take it for no bound would be to send the request where it must not go.
  if (status != STATUS_OK) return true;
  if (isList()) readList(pool);
  else readText(pool, resultPtr, <u32>resultBytes);
  return true;
}

/** Answers a request for which its subset has no pod. */
export function subsetRefuse(): void {
  respond(STATUS_UNAVAILABLE, DETAILS, BODY, HEADERS);
}

/** A list is told as a map whose values are empty. It begins with a number below 2^24, so with a zero byte where no address has one. */
function isList(): bool {
  return resultBytes >= 4 && load<u8>(resultPtr + 3) == 0;
}

function readList(pool: u32): void {
  const count = load<u32>(resultPtr);
  const end = resultPtr + resultBytes;
  if (<u64>count > <u64>resultBytes / 10) return;
  let at = resultPtr + 4 + ((<usize>count) << 3);
  for (let i: u32 = 0; i < count && looked < SUBSET_ADDRESSES_MAX; i++) {
    const sizes = resultPtr + 4 + ((<usize>i) << 3);
    const bytes = load<u32>(sizes);
    const next = <u64>at + bytes + load<u32>(sizes + 4) + 2;
    if (next > <u64>end) return;
    readText(pool, at, bytes);
    at = <usize>next;
  }
}

/** Addresses with commas between them. Those that are no pod of the pool bound nothing. */
function readText(pool: u32, ptr: usize, bytes: u32): void {
  const end = ptr + bytes;
  let at = ptr;
  while (at < end && looked < SUBSET_ADDRESSES_MAX) {
    let stop = at;
    while (stop < end && load<u8>(stop) != COMMA) stop++;
    let last = stop;
    while (at < last && load<u8>(at) == SPACE) at++;
    while (last > at && load<u8>(last - 1) == SPACE) last--;
    const length = <u32>(last - at);
    if (length >= ADDRESS_BYTES_MIN && length <= ADDRESS_BYTES_MAX) {
      looked++;
      const pod = podOfAddress(pool, at, length);
      if (pod >= 0) subsetAdd(pod);
    }
    at = stop + 1;
  }
}
