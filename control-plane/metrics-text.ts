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
const letters = new Uint8Array(256);
for (const name of [...NAMED.keys(), ADAPTERS]) {
  marks[markOf(name.length, name.charCodeAt(MARK_AT))] = 1;
  letters[name.charCodeAt(MARK_AT)] = 1;
}

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

/** Finds the value of one label. Only plain values are wanted, so escapes are not decoded. */
const labelNamed = (name: string): RegExp => new RegExp(`[{,]\\s*${name}\\s*=\\s*"((?:[^"\\\\]|\\\\.)*)"`);
const BLOCKS = labelNamed('num_gpu_blocks');
const BLOCK_SIZE = labelNamed('block_size');
const ADAPTER_LISTS = [labelNamed('running_lora_adapters'), labelNamed('waiting_lora_adapters')];

/** Null when the label is absent. */
const label = (labels: string, named: RegExp): string | null => named.exec(labels)?.[1] ?? null;

function capacityTokens(labels: string): number {
  const blocks = Number(label(labels, BLOCKS) ?? 'NaN');
  const blockTokens = Number(label(labels, BLOCK_SIZE) ?? 'NaN');
  const tokens = blocks * blockTokens;
  return Number.isSafeInteger(tokens) && tokens > 0 && tokens <= 0xffff_ffff ? tokens : Number.NaN;
}

/** Names of the adapters whose requests run or wait. */
function adapterNames(labels: string): string[] {
  const names = ADAPTER_LISTS.flatMap((named) => label(labels, named)?.split(',') ?? []);
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

/**
 * Calls back with each line that may be of a wanted family. A page is hundreds of lines of a hundred bytes, so ends of lines are left to the native
 * search, names are looked at where their sixth letter is that of a wanted one, and no other line becomes a string.
 */
function eachLine(page: Uint8Array, take: (line: string) => void): void {
  const bytes = Buffer.from(page.buffer, page.byteOffset, page.byteLength);
  for (let at = 0; at < bytes.length;) {
    const newline = bytes.indexOf(NEWLINE, at);
    const end = newline < 0 ? bytes.length : newline;
    const letter = bytes[at + MARK_AT] ?? 0;
    if (letters[letter] !== 0 && bytes[at] !== HASH) {
      let nameEnd = at;
      while (nameEnd < end && bytes[nameEnd] !== BRACE && bytes[nameEnd] !== SPACE) nameEnd++;
      if (marks[markOf(nameEnd - at, letter)] !== 0) take(bytes.toString('utf8', at, end));
    }
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
