// Which adapters each pod has in use, by the hash of their names. A request for one is served sooner where it is loaded.
//
// Engines tell the adapters of requests that run or wait; one that nobody uses at the moment may still be loaded, so this is a
// hint. Names are hashed to 32 bits: two that collide are taken for one, which costs a little time and nothing else.
import { ADAPTERS_PER_POD } from './limits';
import { ADAPTER_HASHES, ADAPTERS, at, podsKept } from './load-record';

/** FNV-1a over a name, 32 bits, never 0. */
export function adapterHashOf(name: usize, nameBytes: u32): u32 {
  let hash: u32 = 0x811c9dc5;
  for (let i: u32 = 0; i < nameBytes; i++) hash = (hash ^ (<u32>load<u8>(name + i))) * 0x01000193;
  return hash == 0 ? 1 : hash;
}

/** Forgets a pod's adapters. */
export function adaptersClear(pod: u32): void {
  if (pod < podsKept) store<u32>(at(pod) + ADAPTERS, 0);
}
/** A pod has one more in use; beyond what there is room for they are left out. */
export function adaptersAdd(pod: u32, hash: u32): void {
  if (pod >= podsKept || hash == 0) return;
  const count = load<u32>(at(pod) + ADAPTERS);
  if (count >= ADAPTERS_PER_POD) return;
  store<u32>(at(pod) + ADAPTER_HASHES + count * 4, hash);
  store<u32>(at(pod) + ADAPTERS, count + 1);
}
export function adaptersHas(pod: u32, hash: u32): bool {
  if (pod >= podsKept) return false;
  const count = load<u32>(at(pod) + ADAPTERS);
  for (let i: u32 = 0; i < count; i++) {
    if (load<u32>(at(pod) + ADAPTER_HASHES + i * 4) == hash) return true;
  }
  return false;
}
