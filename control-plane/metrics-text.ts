// Reads vLLM's /metrics text: the few families that routing needs, in one pass over the bytes and without an object per
// sample. Each family has its names by version, newest first; several series of one name (one per engine of a
// data-parallel server) are added up, or averaged where a sum means nothing.

export const FAMILIES = {
  running: { names: ['vllm:num_requests_running'], combine: 'sum' },
  waiting: { names: ['vllm:num_requests_waiting'], combine: 'sum' },
  kvUsage: { names: ['vllm:kv_cache_usage_perc', 'vllm:gpu_cache_usage_perc'], combine: 'mean' },
  prefixQueries: {
    names: ['vllm:prefix_cache_queries_total', 'vllm:prefix_cache_queries', 'vllm:gpu_prefix_cache_queries_total'],
    combine: 'sum',
  },
  prefixHits: {
    names: ['vllm:prefix_cache_hits_total', 'vllm:prefix_cache_hits', 'vllm:gpu_prefix_cache_hits_total'],
    combine: 'sum',
  },
  ttftSecondsSum: { names: ['vllm:time_to_first_token_seconds_sum'], combine: 'sum' },
  ttftCount: { names: ['vllm:time_to_first_token_seconds_count'], combine: 'sum' },
  cacheConfig: { names: ['vllm:cache_config_info'], combine: 'capacity' },
  startedSeconds: { names: ['process_start_time_seconds'], combine: 'max' },
} as const satisfies Record<string, { names: readonly string[]; combine: 'sum' | 'mean' | 'max' | 'capacity' }>;

export type Family = keyof typeof FAMILIES;
export const FAMILY_NAMES = Object.keys(FAMILIES) as Family[];

/** A number, or null where the family is missing or not a number. cacheConfig holds the capacity in tokens. */
export type EngineMetrics = Record<Family, number | null> & { missing: Family[]; adapters: string[] };

interface Named {
  family: Family;
  rank: number;
}

const NAMED = new Map<string, Named>();
for (const family of FAMILY_NAMES) {
  FAMILIES[family].names.forEach((name, rank) => NAMED.set(name, { family, rank }));
}

const ADAPTERS = 'vllm:lora_requests_info';

/** A name's length and sixth letter, so that most lines, which are buckets of histograms, need not be looked up by name. */
const MARK_LENGTHS = 128;
const markOf = (length: number, letter: number): number => Math.min(length, MARK_LENGTHS - 1) * 128 + (letter & 127);
const MARK_AT = 5;
const marks = new Uint8Array(MARK_LENGTHS * 128);
for (const name of [...NAMED.keys(), ADAPTERS]) marks[markOf(name.length, name.charCodeAt(MARK_AT))] = 1;

interface Collected {
  rank: number;
  sum: number;
  max: number;
  count: number;
}

const BRACE = 123;
const SPACE = 32;
const HASH = 35;

/** End of a label set that opens at `at`: just past its closing brace, with braces inside of quotes left alone. */
function labelsEnd(text: string, at: number): number {
  let isQuoted = false;
  for (let i = at + 1; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === 92 && isQuoted) i++;
    else if (char === 34) isQuoted = !isQuoted;
    else if (char === 125 && !isQuoted) return i + 1;
  }
  return -1;
}

/** Value of one label, null when it is absent. Only plain values are wanted, so escapes are not decoded. */
function label(labels: string, name: string): string | null {
  return new RegExp(`[{,]\\s*${name}\\s*=\\s*"((?:[^"\\\\]|\\\\.)*)"`).exec(labels)?.[1] ?? null;
}

function capacityTokens(labels: string): number {
  const blocks = Number(label(labels, 'num_gpu_blocks') ?? 'NaN');
  const blockTokens = Number(label(labels, 'block_size') ?? 'NaN');
  const tokens = blocks * blockTokens;
  return Number.isSafeInteger(tokens) && tokens > 0 && tokens <= 0xffff_ffff ? tokens : Number.NaN;
}

/** Names of the adapters whose requests run or wait. */
function adapterNames(labels: string): string[] {
  const names = ['running_lora_adapters', 'waiting_lora_adapters'].flatMap(
    (name) => label(labels, name)?.split(',') ?? [],
  );
  return [...new Set(names.map((name) => name.trim()).filter((name) => name !== ''))];
}

function sampleValue(text: string): number {
  // A timestamp may follow the value.
  const value = text.trim().split(/\s/, 1)[0] ?? '';
  if (value === '+Inf' || value === '-Inf' || value === '') return Number.NaN;
  return Number(value);
}

function collect(found: Map<Family, Collected>, named: Named, value: number): void {
  const old = found.get(named.family);
  // A newer name of the same family replaces what an older one gave.
  if (old === undefined || named.rank < old.rank) {
    found.set(named.family, { rank: named.rank, sum: value, max: value, count: 1 });
  } else if (named.rank === old.rank) {
    old.sum += value;
    old.max = Math.max(old.max, value);
    old.count++;
  }
}

function result(family: Family, found: Collected | undefined): number | null {
  if (found === undefined) return null;
  const { combine } = FAMILIES[family];
  const value = combine === 'mean' ? found.sum / found.count : combine === 'max' ? found.max : found.sum;
  return Number.isFinite(value) && value >= 0 ? value : null;
}

const encoder = new TextEncoder();
const NEWLINE = 10;

/** Calls back with each line that may be of a wanted family. A page is thousands of lines long, so no other one becomes a string. */
function eachLine(page: Uint8Array, take: (line: string) => void): void {
  const decoder = Buffer.from(page.buffer, page.byteOffset, page.byteLength);
  for (let at = 0; at < page.length;) {
    let nameEnd = at;
    while (nameEnd < page.length) {
      const byte = page[nameEnd];
      if (byte === BRACE || byte === SPACE || byte === NEWLINE) break;
      nameEnd++;
    }
    let end = nameEnd;
    while (end < page.length && page[end] !== NEWLINE) end++;
    const isWanted = marks[markOf(nameEnd - at, page[at + MARK_AT] ?? 0)] !== 0;
    if (isWanted && page[at] !== HASH) take(decoder.toString('utf8', at, end));
    at = end + 1;
  }
}

export function readMetrics(text: string | Uint8Array): EngineMetrics {
  const found = new Map<Family, Collected>();
  let adapters: string[] = [];
  let adaptersAt = -1;
  eachLine(typeof text === 'string' ? encoder.encode(text) : text, (line) => {
    const nameEnd = line.search(/[{ ]|$/);
    const name = line.slice(0, nameEnd);
    const hasLabels = line.charCodeAt(nameEnd) === BRACE;
    const valueAt = hasLabels ? labelsEnd(line, nameEnd) : nameEnd;
    if (valueAt < 0) return;
    if (name === ADAPTERS) {
      // Series of other sets of adapters stay; the value is the time at which one was true, and the newest holds.
      const time = hasLabels ? sampleValue(line.slice(valueAt)) : Number.NaN;
      if (time > adaptersAt) {
        adaptersAt = time;
        adapters = adapterNames(line.slice(nameEnd, valueAt));
      }
      return;
    }
    const named = NAMED.get(name);
    if (named === undefined) return;
    const isCapacity = named.family === 'cacheConfig';
    const value = isCapacity ? capacityTokens(line.slice(nameEnd, valueAt)) : sampleValue(line.slice(valueAt));
    collect(found, named, value);
  });
  const metrics = { missing: [] as Family[], adapters } as EngineMetrics;
  for (const family of FAMILY_NAMES) {
    metrics[family] = result(family, found.get(family));
    if (metrics[family] === null) metrics.missing.push(family);
  }
  return metrics;
}
