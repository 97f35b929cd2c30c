// From the host's context ids to this VM's records, without allocation: an open-addressing table for streams.
//
// Envoy numbers contexts upwards and never reuses an id while it lives; a stream is looked up on every callback, so this is
// one multiply and, nearly always, one probe. The table has at least twice as many places as there can be streams.
const EMPTY: u32 = 0;

let ids: StaticArray<u32> = new StaticArray<u32>(0);
let slots: StaticArray<u32> = new StaticArray<u32>(0);
let mask: u32 = 0;

/** Reserves room for `count` streams. Called once, when the VM gets its first configuration. */
export function contextsInit(count: u32): void {
  let size: u32 = 4;
  while (size < count * 2) size <<= 1;
  ids = new StaticArray<u32>(size);
  slots = new StaticArray<u32>(size);
  mask = size - 1;
}

function home(id: u32): u32 {
  return (id * 0x9e37_79b1) & mask;
}

/** The slot of a stream's context, or -1 when the context is not known. */
export function contextSlot(id: u32): i32 {
  if (mask == 0) return -1;
  let at = home(id);
  for (let probes: u32 = 0; probes <= mask; probes++) {
    const found = ids[at];
    // Asked for first, so that nobody is found under the id of an empty place.
    if (found == EMPTY) return -1;
    if (found == id) return <i32>slots[at];
    at = (at + 1) & mask;
  }
  return -1;
}

/** Remembers a context. The caller never holds more contexts than it reserved room for. */
export function contextAdd(id: u32, slot: u32): void {
  let at = home(id);
  for (let probes: u32 = 0; probes <= mask; probes++) {
    if (ids[at] == EMPTY) {
      ids[at] = id;
      slots[at] = slot;
      return;
    }
    at = (at + 1) & mask;
  }
}

/** Forgets a context and closes the gap, so that no probe ever runs over a grave. */
export function contextRemove(id: u32): void {
  if (mask == 0 || id == EMPTY) return;
  let at = home(id);
  for (let probes: u32 = 0; ids[at] != id; probes++) {
    if (ids[at] == EMPTY || probes > mask) return;
    at = (at + 1) & mask;
  }
  let gap = at;
  for (let probes: u32 = 0; probes <= mask; probes++) {
    at = (at + 1) & mask;
    const next = ids[at];
    if (next == EMPTY) break;
    // An entry may move into the gap unless its home lies behind the gap, cyclically.
    if (((at - home(next)) & mask) >= ((at - gap) & mask)) {
      ids[gap] = next;
      slots[gap] = slots[at];
      gap = at;
    }
  }
  ids[gap] = EMPTY;
}
