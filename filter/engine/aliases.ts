// Names that are one model: an engine that serves a model under several names keeps one cache for all of them, so their prompts have the
// same keys. A name stands here by its hash, with the hash of its group; one that is not here stands for itself.
//
// Names are hashed to 32 bits (adapterHashOf): a stranger that collides is taken for the group, which costs wrong hopes and nothing else.
import { ALIASES_PER_POOL, POOLS_MAX } from './limits';

const counts = new StaticArray<u32>(POOLS_MAX);
const names = new StaticArray<u32>(POOLS_MAX * ALIASES_PER_POOL);
const groups = new StaticArray<u32>(POOLS_MAX * ALIASES_PER_POOL);

/** Forgets a pool's names. */
export function aliasesClear(pool: u32): void {
  if (pool < POOLS_MAX) counts[pool] = 0;
}

/** One more name; beyond what there is room for they are left out. */
export function aliasesAdd(pool: u32, name: u32, group: u32): void {
  if (pool >= POOLS_MAX || counts[pool] >= ALIASES_PER_POOL) return;
  const at = pool * ALIASES_PER_POOL + counts[pool];
  names[at] = name;
  groups[at] = group;
  counts[pool] = counts[pool] + 1;
}

export function aliasesKnown(pool: u32): bool {
  return pool < POOLS_MAX && counts[pool] > 0;
}

/** The group of a name's hash, 0 = none. */
export function aliasGroup(pool: u32, name: u32): u32 {
  if (pool >= POOLS_MAX) return 0;
  const from = pool * ALIASES_PER_POOL;
  for (let at = from; at < from + counts[pool]; at++) {
    if (names[at] == name) return groups[at];
  }
  return 0;
}
