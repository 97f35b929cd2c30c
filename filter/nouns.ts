// The engine's nouns timed where they run: a module for benchmarks that does each of them many times when it is configured, in Envoy's V8
// or in Node's, and tells each round in the log as "noun NAME NANOSECONDS": for one operation. Its configuration is the number of pods.
//
// It is the engine alone: no request passes, and the only host calls are those for the time and the log.
export { proxy_abi_version_0_2_1, proxy_on_memory_allocate } from './proxy-wasm/memory';
import { bufferBytes, nowNs, resultBytes, resultPtr } from './proxy-wasm/host';
import { lineLog, lineNumber, lineStart, lineText } from './proxy-wasm/line';
import { BUFFER_PLUGIN_CONFIGURATION, LOG_WARN, STATUS_OK } from './proxy-wasm/status';
import { text, Text, textBytes, textPtr } from './proxy-wasm/text';
import { chainRun, TOOLS_AUTO } from './engine/chain';
import { secretSet } from './engine/digest';
import { loadDispatch, POD_READY } from './engine/load';
import { API_CHAT } from './engine/names';
import { podSet, tableInit } from './engine/pods';
import { policyPick } from './engine/policy';
import { POLICY_PREFILL_COST } from './engine/pool';
import { residencyLookupAt, residencyTouchAt } from './engine/residency';
import { scanClose, scanEnd, scanFeed, scanInit, scanOpen } from './engine/scan';
import { usageFeed, usageInit, usageOpen } from './engine/usage';

const ROUNDS = 15;
const BLOCKS: u32 = 400_000;
const KEYS: u32 = 256;
const BLOCK_BYTES: u32 = 256;
const CHAINS: u32 = BLOCKS / KEYS;
const CHUNK_BYTES: u32 = 32 * 1024;
const NOW_MS: f64 = 1_000_000;

const NOUN: Text = text('noun ');
const SPACE: Text = text(' ');
const HEAD: Text = text('{"model":"qwen3-8b","messages":[{"role":"system","content":"');
const TAIL: Text = text('"},{"role":"user","content":"And now?"}],"stream":true}');
const WORDS: Text = text('the quick brown fox jumps over the lazy dog and runs along its path to the river bank\\n');
const EVENT: Text = text(
  'data: {"id":"chatcmpl-bc430bd7486ef447","object":"chat.completion.chunk","created":1795954438,"model":"tiny","choices":[{"index":0,' +
    '"delta":{"content":"word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n',
);

const body: usize = heap.alloc(160 * 1024);
let bodyBytes: u32 = 0;
const keys: usize = heap.alloc(<usize>CHAINS * KEYS * 8);
const weights: usize = heap.alloc(KEYS * 4);
const ends: usize = heap.alloc(KEYS * 4);
let turn: u32 = 0;
let timeMs: f64 = NOW_MS;
let podCount: u32 = 0;
/** What was computed is added up here, so that nothing of it can be left out. */
export let sink: u64 = 0;

/** A body of about so many bytes, escapes included. */
function fillBody(bytes: u32): void {
  bodyBytes = 0;
  put(HEAD);
  while (bodyBytes + <u32>textBytes(WORDS) + <u32>textBytes(TAIL) < bytes) put(WORDS);
  put(TAIL);
}
function put(part: Text): void {
  memory.copy(body + bodyBytes, textPtr(part), textBytes(part));
  bodyBytes += <u32>textBytes(part);
}

let random: u64 = 88_172_645_463_325_252;
function next(): u64 {
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

/** A full table: chains of random keys, each held by one pod, and some work in hand on every fourth. */
function fillTable(): void {
  for (let i: u32 = 0; i < KEYS; i++) {
    store<u32>(weights + ((<usize>i) << 2), BLOCK_BYTES);
    store<u32>(ends + ((<usize>i) << 2), (i + 1) * BLOCK_BYTES);
  }
  for (let pod: u32 = 0; pod < podCount; pod++) podSet(0, pod + 1, 100_000_000, 1, POD_READY);
  for (let chain: u32 = 0; chain < CHAINS; chain++) {
    for (let k: u32 = 0; k < KEYS; k++) store<u64>(chainAt(chain) + ((<usize>k) << 3), next());
    const pod = <u32>(next() % podCount);
    residencyTouchAt(pod, NOW_MS - CHAINS + chain, 0, chainAt(chain), weights, KEYS);
    if (chain % 4 == 0) loadDispatch(pod, 500, NOW_MS);
  }
}
function chainAt(chain: u32): usize {
  return keys + <usize>chain * KEYS * 8;
}

function scanOne(): void {
  const slot = scanOpen(0, API_CHAT);
  for (let at: u32 = 0; at < bodyBytes; at += CHUNK_BYTES) scanFeed(slot, body + at, min(CHUNK_BYTES, bodyBytes - at));
  sink += scanEnd(slot);
  sink += chainRun(slot, TOOLS_AUTO);
  scanClose(slot);
}
function lookupHot(): void {
  sink += residencyLookupAt(0, chainAt(7), ends, KEYS);
}
function lookupCold(): void {
  turn = (turn + 797) % CHAINS;
  sink += residencyLookupAt(0, chainAt(turn), ends, KEYS);
}
function pickHot(): void {
  lookupHot();
  sink += policyPick(0, POLICY_PREFILL_COST, KEYS * BLOCK_BYTES + 4000, load<u64>(chainAt(7)), 0, NOW_MS);
}
function pickCold(): void {
  lookupCold();
  sink += policyPick(0, POLICY_PREFILL_COST, KEYS * BLOCK_BYTES + 4000, load<u64>(chainAt(turn)), 0, NOW_MS);
}
function touchCold(): void {
  turn = (turn + 797) % CHAINS;
  timeMs++;
  sink += residencyTouchAt(turn % podCount, timeMs, 0, chainAt(turn), weights, KEYS);
}
function chunkOfAnswer(): void {
  usageFeed(0, textPtr(EVENT), <u32>textBytes(EVENT));
}

function time(name: string, count: u32, run: () => void): void {
  const label = text(name);
  for (let i: u32 = 0; i < count / 4 + 1; i++) run();
  for (let round = 0; round < ROUNDS; round++) {
    const start = nowNs();
    for (let i: u32 = 0; i < count; i++) run();
    const ns = nowNs() - start;
    lineStart();
    lineText(NOUN);
    lineText(label);
    lineText(SPACE);
    lineNumber(<i64>(ns / count));
    lineLog(LOG_WARN);
  }
}

export function proxy_on_vm_start(_root: u32, _bytes: u32): u32 {
  return 1;
}

export function proxy_on_configure(_root: u32, bytes: u32): u32 {
  if (bufferBytes(BUFFER_PLUGIN_CONFIGURATION, 0, bytes) != STATUS_OK) return 0;
  podCount = 0;
  for (let i: usize = 0; i < resultBytes; i++) podCount = podCount * 10 + load<u8>(resultPtr + i) - 0x30;
  if (podCount == 0 || podCount > 1024) return 0;
  tableInit(podCount, BLOCKS, 1);
  scanInit(4, 1024);
  usageInit(4);
  secretSet(0, body);
  fillTable();
  fillBody(1024);
  time('body-1-KiB', 2000, scanOne);
  fillBody(16 * 1024);
  time('body-16-KiB', 500, scanOne);
  fillBody(128 * 1024);
  time('body-128-KiB', 60, scanOne);
  time('lookup-hot', 2000, lookupHot);
  time('lookup-cold', 1000, lookupCold);
  time('pick-hot', 1000, pickHot);
  time('pick-cold', 500, pickCold);
  time('touch-cold', 200, touchCold);
  usageOpen(0);
  time('answer-event', 5000, chunkOfAnswer);
  return 1;
}

export function proxy_on_context_create(_context: u32, _root: u32): void {}
