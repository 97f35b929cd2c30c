// Which pod really answered: after a retry, Envoy's fallback, or without any pick. The chain writes it into a response header before the
// answer comes here, so that it costs no host call of its own; a chain that does not is asked for the property.
import { headerFind, valueBytes, valuePtr } from './headers';
import { podOfAddress } from './pods';
import { property, resultBytes, resultPtr } from './proxy-wasm/host';
import { STATUS_OK } from './proxy-wasm/status';
import { path, text, Text } from './proxy-wasm/text';

const HEADER_SERVED: Text = text('x-gateway-destination-endpoint-served');
const PROPERTY_UPSTREAM: Text = path(['upstream', 'address']);

/** The pod of the pool that answers the stream whose response headers were read last, or -1; `picked` is whom it was sent to. */
export function servedBy(pool: u32, picked: i32): i32 {
  if (headerFind(HEADER_SERVED)) return podOfAddress(pool, valuePtr, valueBytes, picked);
  if (property(PROPERTY_UPSTREAM) != STATUS_OK) return -1;
  return podOfAddress(pool, resultPtr, <u32>resultBytes, picked);
}
