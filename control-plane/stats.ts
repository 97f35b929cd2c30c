// The numbers of the counters that filters report (section 9 of a frame) and their names as label values. Unknown numbers,
// which a newer filter may send, become `other`, so that the label stays bounded.
export const STAT_NAMES: Readonly<Record<number, string>> = {
  1: 'requests',
  2: 'picks',
  3: 'unpicked',
  4: 'moved',
  5: 'sync-failed',
  6: 'sync-rejected',
  7: 'touches-lost',
  8: 'elections',
};

/** Numbers from here on are requests that were not picked for, by reason. */
export const STAT_FALLBACK = 64;
export const STAT_FALLBACKS = 64;

export function statName(id: number): string {
  if (id >= STAT_FALLBACK && id < STAT_FALLBACK + STAT_FALLBACKS) return `fallback-${id - STAT_FALLBACK}`;
  return STAT_NAMES[id] ?? 'other';
}
