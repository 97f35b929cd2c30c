// A plugin: one WasmPlugin of the gateway, which picks for one pool, as seen by one VM.
//
// State belongs to the VM and the plugin's name, never to a root context: a configuration change makes a new root in the
// same VM and runs the start-up callbacks again, while old streams keep the old root, which ticks until they end. Plugins
// that use the same code share a VM, so the VM keeps a short list of them.
import { Bytes, bytesEqual, copyBytes } from './bytes';
import { Config, configError, parseConfig } from './config';
import { Counters } from './counters';
import { framePoolHashOf } from './engine/frame';
import {
  FRAME_NAME_BYTES_MAX,
  NAME_BYTES_MAX,
  OUTBOX_BYTES,
  POOLS_MAX,
  ROOTS_MAX,
  TABLE_PICK_KEYS,
  TABLE_TICK_KEYS,
} from './engine/limits';
import { poolCapacityRefresh, tableInit } from './engine/pods';
import { Exchange } from './exchange';
import { garbageLeft } from './garbage';
import { Keyspace } from './keyspace';
import { Leader } from './leader';
import { Outcomes } from './outcomes';
import { podsDrop, podsInit } from './pods';
import {
  bufferBytes,
  environment,
  logText,
  nowMs,
  property,
  randomSeed as hostRandom,
  resultBytes,
  resultPtr,
} from './proxy-wasm/host';
import { BUFFER_PLUGIN_CONFIGURATION, LOG_ERROR, LOG_INFO, LOG_WARN, STATUS_OK } from './proxy-wasm/status';
import { path, text, Text, textFree } from './proxy-wasm/text';
import { Settings } from './settings';
import { slotsEnd } from './slots';
import { Ticker, TICK_MS_MIN } from './ticker';
import { streamsInit, streamsTick } from './stream';

/** Waking up costs more than what there is to do: a VM ticks seldom unless requests are under way, or there is a table to take over. */
const TICK_MS: u32 = 50;
const TICK_BUSY_MS: u32 = 20;
/** What the leader wrote is new enough for picks within so long. */
const NEWS_MS: f64 = 5;
/** How often a VM looks for siblings that it does not know yet. */
const DISCOVER_MS: f64 = 100;
/** A clock that went back by more was set, not disciplined. */
const CLOCK_BACK_MS: f64 = 200;

const PROPERTY_PLUGIN_NAME: Text = path(['plugin_name']);
const PROPERTY_NODE_ID: Text = path(['xds', 'node', 'id']);
const VARIABLE_TOKEN: Text = text('WARMPATH_SYNC_TOKEN');
const GATEWAY_DEFAULT = 'gateway';

const plugins: StaticArray<Plugin | null> = new StaticArray<Plugin | null>(POOLS_MAX);
/** Root contexts and the plugin of each; a place with id 0 is free. */
const rootIds: StaticArray<u32> = new StaticArray<u32>(ROOTS_MAX);
const rootPlugins: StaticArray<i32> = new StaticArray<i32>(ROOTS_MAX);
/** The bounds that the VM's tables were reserved with; null before the first configuration. */
let bounds: Config | null = null;
let nonce: u64 = 0;

export class Plugin {
  config: Config = new Config();
  counters: Counters;
  settings: Settings;
  exchange: Exchange;
  leader: Leader;
  outcomes: Outcomes;
  ticker: Ticker;
  gateway: Bytes = new Bytes(FRAME_NAME_BYTES_MAX);
  /** All its roots went: its place is free for another plugin. */
  hasLeft: bool = false;
  private keys: Keyspace;
  private discoveredMs: f64 = 0;
  private tickedMs: f64 = 0;
  private readMs: f64 = 0;

  constructor(
    public name: Bytes,
    public pool: u32,
    config: Config,
  ) {
    const keys = new Keyspace(name);
    this.keys = keys;
    const counters = new Counters();
    const ticker = new Ticker();
    const exchange = new Exchange(keys, pool, nonce + pool, counters, OUTBOX_BYTES, ticker);
    this.counters = counters;
    this.ticker = ticker;
    this.settings = new Settings(keys, pool, framePoolHashOf(config.pool.ptr, config.pool.length), counters);
    this.exchange = exchange;
    const outcomes = new Outcomes(keys, pool, nonce + pool);
    this.outcomes = outcomes;
    this.leader = new Leader(keys, pool, nonce + pool, counters, exchange, outcomes);
  }

  /** Makes one that has left another plugin, since what was reserved for it cannot be given back. */
  rename(ptr: usize, length: u32): void {
    copyBytes(this.name, ptr, length);
    this.keys.rename(this.name);
  }

  /** Takes over a configuration that was read without error. */
  configure(config: Config): void {
    this.hasLeft = false;
    const poolHash = framePoolHashOf(config.pool.ptr, config.pool.length);
    if (poolHash != this.settings.poolHash) {
      podsDrop(this.pool);
      this.settings.reset(poolHash);
      this.exchange.forgetTouches();
    }
    this.config.assign(config);
    this.counters.define(config.pool.toString());
    this.nameGateway();
    let token = '';
    if (environment(VARIABLE_TOKEN) == STATUS_OK) token = String.UTF8.decodeUnsafe(resultPtr, resultBytes);
    this.leader.configure(config, token);
  }

  /** The configured name or Envoy's node id, in the visible ASCII that the wire format allows. */
  private nameGateway(): void {
    const gateway = this.gateway;
    if (this.config.gateway.length > 0) copyBytes(gateway, this.config.gateway.ptr, this.config.gateway.length);
    else if (property(PROPERTY_NODE_ID) == STATUS_OK) copyBytes(gateway, resultPtr, <u32>resultBytes);
    if (gateway.length == 0) gateway.appendString(GATEWAY_DEFAULT);
    for (let i: u32 = 0; i < gateway.length; i++) {
      const c = load<u8>(gateway.ptr + i);
      if (c < 0x21 || c > 0x7e) store<u8>(gateway.ptr + i, 0x5f);
    }
  }

  /** Whether requests to this Envoy cluster are this plugin's to pick for. */
  listsCluster(ptr: usize, length: u32): bool {
    const list = this.config.clusters;
    for (let at: u32 = 0; at + length + 2 <= list.length; at++) {
      const start = list.ptr + at;
      if (load<u8>(start) != 0x0a || load<u8>(start + length + 1) != 0x0a) continue;
      if (bytesEqual(start + 1, ptr, length)) return true;
    }
    return false;
  }

  tick(now: f64): void {
    if (now < this.tickedMs - CLOCK_BACK_MS) {
      this.discoveredMs = 0;
      this.exchange.restartClock(now);
      this.leader.restartClock(now);
    }
    this.tickedMs = now;
    const discovers = now - this.discoveredMs >= DISCOVER_MS;
    if (discovers) this.discoveredMs = now;
    poolCapacityRefresh(this.pool);
    this.readNews(now, TABLE_TICK_KEYS);
    this.exchange.keepSegment(now);
    this.exchange.readSiblings(now, discovers);
    this.exchange.publish(now);
    this.outcomes.publish(this.exchange.own, now);
    this.leader.tick(now, this.config, this.settings, this.gateway);
    this.counters.flush();
    this.ticker.every(this.tickMs(now));
  }

  /** When this VM has something to do next; the leader goes by its reports. */
  tickMs(now: f64): u32 {
    if (this.settings.isBehind) return TICK_MS_MIN;
    const period = slotsEnd > 0 || this.settings.awaitsTable ? TICK_BUSY_MS : TICK_MS;
    return max(TICK_MS_MIN, min(period, this.leader.dueMs(now)));
  }

  /** What siblings and the control plane told lately, for a pick: ticks are too seldom for it. */
  readForPick(now: f64): void {
    this.exchange.readSiblingsForPick(now);
    if (now - this.readMs >= NEWS_MS || now < this.readMs) this.readNews(now, TABLE_PICK_KEYS);
  }

  private readNews(now: f64, keysMax: u32): void {
    this.readMs = now;
    const secrets = this.settings.secrets;
    this.settings.read(now, keysMax);
    // What waits to be told has keys of the secret before.
    if (this.settings.secrets != secrets) this.exchange.forgetTouches();
  }

  /** The last root went: the plugin was removed from this VM. Its table and pods go, and its claims are given back. */
  leave(): void {
    this.exchange.leave();
    this.leader.leave();
    podsDrop(this.pool);
    this.settings.reset(0);
    this.counters.flush();
    this.hasLeft = true;
  }
}

/** A new root context: which plugin it belongs to is known when it is configured. */
export function pluginRootCreate(root: u32): void {
  for (let i = 0; i < ROOTS_MAX; i++) {
    if (rootIds[i] != 0) continue;
    rootIds[i] = root;
    rootPlugins[i] = -1;
    return;
  }
}

/** A root context goes away; with the last root of a plugin its part in the gateway's exchange ends. */
export function pluginRootDelete(root: u32): void {
  let pool = -1;
  for (let i = 0; i < ROOTS_MAX; i++) {
    if (rootIds[i] != root) continue;
    pool = rootPlugins[i];
    rootIds[i] = 0;
  }
  if (pool < 0 || newestRoot(pool) != 0) return;
  const plugin = plugins[pool];
  if (plugin !== null) plugin.leave();
}

/** Whether this is a root context and not a stream. */
export function pluginIsRoot(context: u32): bool {
  for (let i = 0; i < ROOTS_MAX; i++) {
    if (rootIds[i] == context) return true;
  }
  return false;
}

export function pluginOfRoot(root: u32): Plugin | null {
  for (let i = 0; i < ROOTS_MAX; i++) {
    if (rootIds[i] == root) return rootPlugins[i] < 0 ? null : plugins[rootPlugins[i]];
  }
  return null;
}

/** The plugin of a pool slot that a stream was opened with. */
export function pluginAt(pool: u32): Plugin {
  return plugins[pool]!;
}

/** Reads and takes over a configuration. False refuses it: Envoy then keeps the one before, or does not start. */
export function pluginConfigure(root: u32, bytes: u32): bool {
  garbageLeft();
  if (bufferBytes(BUFFER_PLUGIN_CONFIGURATION, 0, bytes) != STATUS_OK) {
    say(LOG_ERROR, 'pluginConfig: found nothing, expected a JSON object with at least "pool"');
    return false;
  }
  const config = parseConfig(resultPtr, <u32>resultBytes);
  if (config === null) {
    say(LOG_ERROR, configError());
    return false;
  }
  if (!pluginIsRoot(root)) {
    say(
      LOG_ERROR,
      'pluginConfig: more than ' +
        ROOTS_MAX.toString() +
        ' configurations are in use, old ones until their listeners have drained; wait for that, and change it less often',
    );
    return false;
  }
  startOnce(config);
  const pool = poolFor(config);
  if (pool < 0) {
    say(
      LOG_ERROR,
      'pluginConfig: more than ' + POOLS_MAX.toString() + ' plugins share this VM; give one its own vm_id',
    );
    return false;
  }
  for (let i = 0; i < ROOTS_MAX; i++) {
    if (rootIds[i] == root) rootPlugins[i] = pool;
  }
  const plugin = pluginAt(pool);
  plugin.configure(config);
  plugin.ticker.begin(TICK_BUSY_MS);
  say(LOG_INFO, 'configured for pool ' + config.pool.toString());
  return true;
}

/** One tick of one root. Only the newest of a plugin does the work; a timer of an old one, which its last streams may set, is ended. */
export function pluginTick(root: u32): void {
  const plugin = pluginOfRoot(root);
  if (plugin === null) return;
  if (newestRoot(<i32>plugin.pool) != root) {
    plugin.ticker.end();
    return;
  }
  const now = nowMs();
  streamsTick(now);
  plugin.tick(now);
}

/** The control plane's answer, which comes to the root that called. */
export function pluginAnswered(root: u32, call: u32): void {
  const plugin = pluginOfRoot(root);
  if (plugin === null) return;
  const now = nowMs();
  const isOurs = plugin.leader.answered(call, now);
  if (isOurs && newestRoot(<i32>plugin.pool) == root) plugin.ticker.every(plugin.tickMs(now));
}

/** Host ids grow, so the newest root is the one with the largest; 0 when there is none. */
function newestRoot(pool: i32): u32 {
  let newest: u32 = 0;
  for (let i = 0; i < ROOTS_MAX; i++) {
    if (rootIds[i] != 0 && rootPlugins[i] == pool && rootIds[i] > newest) newest = rootIds[i];
  }
  return newest;
}

/** Reserves the VM's tables, once: the first plugin's bounds hold for all that share the VM. */
function startOnce(config: Config): void {
  const first = bounds;
  if (first !== null) {
    if (
      first.podsMax != config.podsMax ||
      first.blocksMax != config.blocksMax ||
      first.streamsMax != config.streamsMax
    ) {
      say(LOG_WARN, 'pluginConfig: bounds: other bounds are in force since this VM started; they change with a new VM');
    }
    return;
  }
  const kept = new Config();
  kept.assign(config);
  bounds = kept;
  nonce = hostRandom() & ~(<u64>0xff);
  // The allocator doubles small memories but adds just what a large table needs, so the table comes last.
  streamsInit(config.streamsMax);
  tableInit(config.podsMax, config.blocksMax, nonce);
  podsInit();
}

/** The pool slot of the plugin that is being configured; a new plugin gets the first free one. -1: none is free. */
function poolFor(config: Config): i32 {
  const name = property(PROPERTY_PLUGIN_NAME) == STATUS_OK;
  const ptr = resultPtr;
  const length = name ? <u32>resultBytes : 0;
  for (let pool = 0; pool < <i32>POOLS_MAX; pool++) {
    const plugin = plugins[pool];
    if (plugin !== null && plugin.name.equals(ptr, length)) return pool;
  }
  for (let pool = 0; pool < <i32>POOLS_MAX; pool++) {
    const plugin = plugins[pool];
    if (plugin !== null && !plugin.hasLeft) continue;
    if (plugin !== null) {
      plugin.rename(ptr, length);
      return pool;
    }
    const kept = new Bytes(NAME_BYTES_MAX);
    copyBytes(kept, ptr, length);
    plugins[pool] = new Plugin(kept, pool, config);
    return pool;
  }
  return -1;
}

/** Logs a sentence. Allocates: for start-up and configuration only. */
function say(level: u32, sentence: string): void {
  const line = text('warmpath: ' + sentence);
  logText(level, line);
  textFree(line);
}
