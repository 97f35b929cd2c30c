// How a pick leaves the filter: as a value in filter state, which the next filter in the chain makes a header of.
import { Bytes } from './bytes';
import { pickedPod } from './engine/policy';
import { podAddressBytes, podAddressPtr } from './pods';
import { propertySet } from './proxy-wasm/host';
import { path, Text } from './proxy-wasm/text';

const PROPERTY_PICK: Text = path(['warmpath.pick']);
const pickText: Bytes = new Bytes(160);

/** Leaves the pick for the next filter: "best,second,third", which a retry walks in this order. */
export function steer(picked: u32): void {
  pickText.length = 0;
  for (let i: u32 = 0; i < picked; i++) {
    const pod = pickedPod(i);
    if (i > 0) pickText.append(0x2c);
    pickText.appendBytes(podAddressPtr(pod), podAddressBytes(pod));
  }
  propertySet(PROPERTY_PICK, pickText.ptr, pickText.length);
}
