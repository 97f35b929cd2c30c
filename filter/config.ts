// Reads the plugin's configuration: a small, strict JSON object.
//
// A misspelt key that is silently ignored is an outage waiting to happen, so every key is known here or refused,
// and the refusal names the key, what stood there and what was expected. Parsing happens when Envoy configures the
// plugin, never on a request. The values are handed over only when all of the text was
// good: a refused configuration leaves nothing half applied.
import { LIST_BYTES_MAX, NAME_BYTES_MAX } from './engine/limits';
import { bytesEqual, copyBytes, bytesOf, Bytes } from './bytes';

const CONFIG_DEPTH_MAX: i32 = 2;

/** The parsed configuration of one plugin. Its texts are its own. */
export class Config {
  /** Name of the pool whose endpoints this plugin picks from. Required. */
  pool: Bytes = new Bytes(NAME_BYTES_MAX);
  /** Identity of this gateway in the control plane's eyes; empty: Envoy's node id. */
  gateway: Bytes = new Bytes(NAME_BYTES_MAX);
  /** Envoy cluster that leads to the control plane; empty: never sync. */
  syncCluster: Bytes = new Bytes(NAME_BYTES_MAX);
  syncAuthority: Bytes = new Bytes(NAME_BYTES_MAX);
  /** Time from one report to the next; 0: what the pool's settings say. */
  syncIntervalMs: u32 = 0;
  /** Clusters whose requests are picked for, each between two newlines; empty: all that pass this plugin. */
  clusters: Bytes = new Bytes(LIST_BYTES_MAX);
  /** Whether metadata may bind a request to some of the pods (subset.ts): it costs a host call a request. */
  hasSubsetHint: bool = false;
  podsMax: u32 = 64;
  blocksMax: u32 = 400_000;
  streamsMax: u32 = 4096;

  /** Takes every value of `other`; the texts are copied. */
  assign(other: Config): void {
    copyBytes(this.pool, other.pool.ptr, other.pool.length);
    copyBytes(this.gateway, other.gateway.ptr, other.gateway.length);
    copyBytes(this.syncCluster, other.syncCluster.ptr, other.syncCluster.length);
    copyBytes(this.syncAuthority, other.syncAuthority.ptr, other.syncAuthority.length);
    copyBytes(this.clusters, other.clusters.ptr, other.clusters.length);
    this.syncIntervalMs = other.syncIntervalMs;
    this.hasSubsetHint = other.hasSubsetHint;
    this.podsMax = other.podsMax;
    this.blocksMax = other.blocksMax;
    this.streamsMax = other.streamsMax;
  }
}

/** What a plugin has before its configuration is read, and what every key that is not given falls back to. */
const defaults: Config = new Config();
/** The configuration that is being read; one object serves every reading, so that changes leave no garbage behind. */
const parsed: Config = new Config();

const FIELD_NONE: i32 = -1;
const FIELD_POOL: i32 = 0;
const FIELD_GATEWAY: i32 = 1;
const FIELD_SYNC: i32 = 2;
const FIELD_BOUNDS: i32 = 3;
const FIELD_CLUSTERS: i32 = 4;
const FIELD_SYNC_CLUSTER: i32 = 5;
const FIELD_SYNC_AUTHORITY: i32 = 6;
const FIELD_SYNC_INTERVAL: i32 = 7;
const FIELD_PODS: i32 = 8;
const FIELD_BLOCKS: i32 = 9;
const FIELD_STREAMS: i32 = 10;
const FIELD_SUBSET_HINT: i32 = 11;
const FIELDS_COUNT: i32 = 12;

const fieldNames: StaticArray<Bytes> = [
  bytesOf('pool'),
  bytesOf('gateway'),
  bytesOf('sync'),
  bytesOf('bounds'),
  bytesOf('clusters'),
  bytesOf('cluster'),
  bytesOf('authority'),
  bytesOf('intervalMs'),
  bytesOf('pods'),
  bytesOf('blocks'),
  bytesOf('streams'),
  bytesOf('subsetHint'),
];
/** The object in which a field stands: FIELD_NONE is the outermost one. */
const fieldParents: StaticArray<i32> = [
  FIELD_NONE,
  FIELD_NONE,
  FIELD_NONE,
  FIELD_NONE,
  FIELD_NONE,
  FIELD_SYNC,
  FIELD_SYNC,
  FIELD_SYNC,
  FIELD_BOUNDS,
  FIELD_BOUNDS,
  FIELD_BOUNDS,
  FIELD_NONE,
];
const fieldExpected: StaticArray<string> = [
  'the name of a pool, 1 to 128 bytes',
  'a name of 1 to 128 bytes',
  'an object with cluster, authority, intervalMs',
  'an object with pods, blocks, streams',
  'a list of Envoy cluster names',
  'the name of an Envoy cluster, 1 to 128 bytes',
  'a host name, 1 to 128 bytes',
  'a whole number from 10 to 60000',
  'a whole number from 1 to 1024',
  'a whole number from 1024 to 4194304',
  'a whole number from 16 to 65536',
  'true or false',
];
const EXPECTED_TOP = 'one of pool, gateway, sync, bounds, clusters, subsetHint';
const EXPECTED_SYNC = 'one of cluster, authority, intervalMs';
const EXPECTED_BOUNDS = 'one of pods, blocks, streams';

let cursor: usize = 0;
let end: usize = 0;
let seen: u32 = 0;
let errorText: string = '';

/** What was wrong with the text that `parseConfig` refused, as a sentence with key, value and what was expected. */
export function configError(): string {
  return errorText;
}

/**
 * Parses `length` bytes at `ptr`. Returns null and sets `configError` when anything in it is not as it must be.
 * The result is good until the next call: take it over with `assign`.
 */
export function parseConfig(ptr: usize, length: u32): Config | null {
  cursor = ptr;
  end = ptr + length;
  seen = 0;
  errorText = '';
  const config = parsed;
  config.assign(defaults);
  skipSpace();
  if (!parseObject(config, FIELD_NONE, 1)) return null;
  skipSpace();
  if (cursor != end) return refuse('pluginConfig', 'text after the closing brace', 'one JSON object');
  if (!(seen & (1 << FIELD_POOL))) return refuse('pool', 'nothing', unchecked(fieldExpected[FIELD_POOL]));
  if (seen & (1 << FIELD_SYNC) && config.syncCluster.length == 0) {
    return refuse('sync.cluster', 'nothing', unchecked(fieldExpected[FIELD_SYNC_CLUSTER]));
  }
  if (config.syncAuthority.length == 0)
    copyBytes(config.syncAuthority, config.syncCluster.ptr, config.syncCluster.length);
  return config;
}

function refuse(key: string, found: string, expected: string): Config | null {
  fail(key, found, expected);
  return null;
}

function fail(key: string, found: string, expected: string): bool {
  if (errorText.length == 0) {
    errorText = 'pluginConfig: ' + key + ': found ' + found + ', expected ' + expected;
  }
  return false;
}

function skipSpace(): void {
  while (cursor < end) {
    const c = load<u8>(cursor);
    if (c != 0x20 && c != 0x0a && c != 0x0d && c != 0x09) return;
    cursor++;
  }
}

function take(c: u8): bool {
  skipSpace();
  if (cursor < end && load<u8>(cursor) == c) {
    cursor++;
    return true;
  }
  return false;
}

/** What stands at the cursor, shortened, for an error message. */
function found(): string {
  if (cursor >= end) return 'the end of the text';
  let length = end - cursor;
  if (length > 32) length = 32;
  return '«' + String.UTF8.decodeUnsafe(cursor, length) + '»';
}

function parseObject(config: Config, parent: i32, depth: i32): bool {
  const name = parent == FIELD_NONE ? 'pluginConfig' : unchecked(fieldExpected[parent]);
  if (depth > CONFIG_DEPTH_MAX || !take(0x7b)) return fail('pluginConfig', found(), 'an object');
  if (take(0x7d)) return true;
  while (true) {
    skipSpace();
    const keyStart = cursor;
    if (!parseString(keyText)) return fail(name, found(), 'a key in double quotes');
    const field = fieldOf(parent);
    if (field == FIELD_NONE) {
      const expected = parent == FIELD_SYNC ? EXPECTED_SYNC : parent == FIELD_BOUNDS ? EXPECTED_BOUNDS : EXPECTED_TOP;
      return fail('unknown key ' + String.UTF8.decodeUnsafe(keyStart, cursor - keyStart), 'it', expected);
    }
    if (seen & (1 << field)) return fail(keyOf(field), 'the key twice', 'it once');
    seen |= 1 << field;
    if (!take(0x3a)) return fail(keyOf(field), found(), 'a colon');
    skipSpace();
    if (!parseValue(config, field, depth)) return false;
    if (take(0x7d)) return true;
    if (!take(0x2c)) return fail(keyOf(field), found(), 'a comma or a closing brace');
  }
}

function keyOf(field: i32): string {
  const parent = unchecked(fieldParents[field]);
  const name = unchecked(fieldNames[field]).toString();
  return parent == FIELD_NONE ? name : unchecked(fieldNames[parent]).toString() + '.' + name;
}

function fieldOf(parent: i32): i32 {
  for (let field = 0; field < FIELDS_COUNT; field++) {
    const name = unchecked(fieldNames[field]);
    if (unchecked(fieldParents[field]) != parent) continue;
    if (name.length == keyText.length && bytesEqual(name.ptr, keyText.ptr, name.length)) return field;
  }
  return FIELD_NONE;
}

const keyText: Bytes = new Bytes(NAME_BYTES_MAX);

function parseValue(config: Config, field: i32, depth: i32): bool {
  switch (field) {
    case FIELD_SYNC:
    case FIELD_BOUNDS:
      return parseObject(config, field, depth + 1);
    case FIELD_POOL:
      return parseName(config.pool, field);
    case FIELD_GATEWAY:
      return parseName(config.gateway, field);
    case FIELD_SYNC_CLUSTER:
      return parseName(config.syncCluster, field);
    case FIELD_SYNC_AUTHORITY:
      return parseName(config.syncAuthority, field);
    case FIELD_CLUSTERS:
      return parseClusters(config);
    case FIELD_SYNC_INTERVAL:
      config.syncIntervalMs = parseNumber(field, 10, 60_000);
      return errorText.length == 0;
    case FIELD_PODS:
      config.podsMax = parseNumber(field, 1, 1024);
      return errorText.length == 0;
    case FIELD_BLOCKS:
      config.blocksMax = parseNumber(field, 1024, 4_194_304);
      return errorText.length == 0;
    case FIELD_STREAMS:
      config.streamsMax = parseNumber(field, 16, 65_536);
      return errorText.length == 0;
    case FIELD_SUBSET_HINT:
      config.hasSubsetHint = takeWord(TRUE);
      if (config.hasSubsetHint || takeWord(FALSE)) return true;
    // falls through
    default:
      return fail(keyOf(field), found(), unchecked(fieldExpected[field]));
  }
}

const TRUE: Bytes = bytesOf('true');
const FALSE: Bytes = bytesOf('false');

function takeWord(word: Bytes): bool {
  if (end - cursor < word.length || !bytesEqual(cursor, word.ptr, word.length)) return false;
  cursor += word.length;
  return true;
}

function parseName(into: Bytes, field: i32): bool {
  const start = cursor;
  if (parseString(into) && into.length > 0) return true;
  cursor = start;
  return fail(keyOf(field), found(), unchecked(fieldExpected[field]));
}

/** A list of names, stored as one text in which each name stands between two newlines. */
function parseClusters(config: Config): bool {
  const list = config.clusters;
  list.length = 0;
  if (!take(0x5b)) return fail('clusters', found(), unchecked(fieldExpected[FIELD_CLUSTERS]));
  list.append(0x0a);
  while (true) {
    skipSpace();
    if (!parseString(keyText) || keyText.length == 0)
      return fail('clusters', found(), 'a cluster name in double quotes');
    for (let i: u32 = 0; i < keyText.length; i++) list.append(load<u8>(keyText.ptr + i));
    if (!list.append(0x0a)) return fail('clusters', 'more than 4096 bytes of names', 'a shorter list');
    if (take(0x5d)) return true;
    if (!take(0x2c)) return fail('clusters', found(), 'a comma or a closing bracket');
  }
}

/** A JSON string without escapes and control bytes: names need none, and a name with one is a mistake. */
function parseString(into: Bytes): bool {
  if (cursor >= end || load<u8>(cursor) != 0x22) return false;
  into.length = 0;
  for (let at = cursor + 1; at < end; at++) {
    const c = load<u8>(at);
    if (c == 0x22) {
      cursor = at + 1;
      return true;
    }
    if (c == 0x5c || c < 0x20 || !into.append(c)) return false;
  }
  return false;
}

function parseNumber(field: i32, min: u32, max: u32): u32 {
  const start = cursor;
  let value: u64 = 0;
  while (cursor < end && cursor - start < 10) {
    const c = load<u8>(cursor);
    if (c < 0x30 || c > 0x39) break;
    value = value * 10 + (c - 0x30);
    cursor++;
  }
  const next: u8 = cursor < end ? load<u8>(cursor) : 0x2c;
  const ends = next == 0x2c || next == 0x7d || next <= 0x20;
  if (cursor > start && ends && value >= min && value <= max) return <u32>value;
  cursor = start;
  fail(keyOf(field), found(), unchecked(fieldExpected[field]));
  return min;
}
