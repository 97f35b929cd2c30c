// Taking touches of a checked frame into the table, as engine.wasm does it for Node: all records at once, so that no key becomes an
// object on its way. The filter has its own way (filter/touches.ts), which also counts what others' touches cost a pod.
import { touchBytesOf } from './frame-check';
import { TOUCH_BYTES, TOUCH_CLEAR } from './frame-layout';
import { podFind } from './pods';
import { residencyPodClear, residencyTouchAt } from './residency';

/** Applies so many records as they stand in a TOUCHES section; answers how many speak of pods that are not known. */
export function touchesTake(pool: u32, from: usize, records: u32): u32 {
  let skipped: u32 = 0;
  let at = from;
  for (let i: u32 = 0; i < records; i++) {
    const count = <u32>load<u16>(at, 6);
    const slot = podFind(pool, load<u32>(at));
    const keys = at + TOUCH_BYTES;
    const timeMs = load<f64>(at, 8);
    if (slot < 0) skipped++;
    else if (load<u16>(at, 4) & TOUCH_CLEAR) residencyPodClear(slot, timeMs);
    else residencyTouchAt(slot, timeMs, load<u64>(at, 16), keys, keys + count * 8, count);
    at += touchBytesOf(count);
  }
  return skipped;
}
