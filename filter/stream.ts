// One request from its first header to its end: read the prompt as it passes, pick a pod, count it, learn from the answer.
//
// The filter never holds anything back and never changes a byte; one kind of request it answers itself (subset.ts). It watches the body go by, decides when the body has
// ended (or the trailers have come), and leaves its pick in filter state, where the next filter in the chain makes a header of it.
// Whatever it cannot read is balanced by load and counted with its reason. All state of a request is one record in the
// tables below, reserved when the VM started; what must happen exactly once has a bit in the record's flags.
import { isDue } from './begun';
import { contextAdd, contextRemove, contextsInit, contextSlot } from './contexts';
import { chainBlockBytes, chainEnds, chainKeys, chainPrompts, chainReason, chainRun } from './engine/chain';
import { deltaFeed, deltaFound } from './engine/first-token';
import { DIGEST_PAGES_PER_SCAN, SCANS_MIN, STREAM_CHUNK_BYTES, STREAMS_PER_SCAN } from './engine/limits';
import {
  loadAlive,
  loadDispatch,
  loadEnd,
  loadFailure,
  loadFirstToken,
  loadObserveTtft,
  loadPredictedTtftMs,
  loadSilence,
  loadSuccess,
} from './engine/load';
import { scanLanguage } from './engine/language';
import { pickedPod, pickedUncached } from './engine/policy';
import { poolObserveOutput, poolObservePrompt, poolTokens } from './engine/pool';
import {
  REASON_CLUSTER,
  REASON_ENCODING,
  REASON_METHOD,
  REASON_NO_BODY,
  REASON_NONE,
  REASON_NO_SECRET,
  REASON_PATH,
  REASON_STREAMS_FULL,
} from './engine/reasons';
import { matchBytes, matchKeys, residencyLookup, residencyTouch, residencyTouchChain } from './engine/residency';
import {
  API_CHAT,
  API_MESSAGES,
  API_NONE,
  API_OTHER,
  API_RESPONSES,
  apiOfPath,
  scanClose,
  scanEnd,
  scanFeed,
  scanInit,
  scanOpen,
  scanPromptBytes,
  scanStream,
} from './engine/scan';
import {
  usageCachedTokens,
  usageCompletionTokens,
  usageFeed,
  usageInit,
  usageOpen,
  usagePromptTokens,
} from './engine/usage';
import {
  LANGUAGES,
  OUTCOME_CLIENT_ERRORS,
  OUTCOME_COMPLETION_TOKENS,
  OUTCOME_ELSEWHERE,
  OUTCOME_OK,
  OUTCOME_SERVER_ERRORS,
  OUTCOME_TTFT_COUNT,
} from './engine/frame';
import { headerFind, headerFindFrom, headersRead, valueBytes, valuePtr } from './headers';
import { pickFor, pickKeyRead, pickRefused } from './pick';
import { Plugin, pluginAt, pluginOfRoot } from './plugin';
import { podId } from './pods';
import { bufferBytes, nowMs, property, resultBytes, resultPtr } from './proxy-wasm/host';
import {
  BUFFER_REQUEST_BODY,
  BUFFER_RESPONSE_BODY,
  HEADERS_REQUEST,
  HEADERS_RESPONSE,
  STATUS_OK,
} from './proxy-wasm/status';
import { path, text, textBytes, textEquals, textPtr, Text } from './proxy-wasm/text';
import {
  aheadTokens,
  ANSWERED,
  bodyBytes,
  COMPLETE,
  COUNTED,
  DECIDES,
  deepestKeys,
  deltas,
  dispatchedMs,
  EARLY,
  edgeBytes,
  EVENTS,
  FAILED,
  flags,
  kinds,
  matchedBytes,
  NONE,
  plugins,
  podIds,
  pods,
  PREDICTED,
  PREFILL,
  promptBytes,
  reasons,
  REFUSED,
  releaseMs,
  SCANS,
  scans,
  SEVERAL,
  slotClose,
  slotOpen,
  slotsEnd,
  slotsTrim,
  slotsInit,
  STREAMED,
  uncached,
} from './slots';
import { servedBy } from './served';
import { steer } from './steer';

const HEADER_METHOD: Text = text(':method');
const HEADER_PATH: Text = text(':path');
const HEADER_STATUS: Text = text(':status');
const HEADER_ENCODING: Text = text('content-encoding');
const HEADER_TYPE: Text = text('content-type');
const VALUE_POST: Text = text('POST');
const VALUE_IDENTITY: Text = text('identity');
const VALUE_EVENT_STREAM: Text = text('text/event-stream');
const PROPERTY_CLUSTER: Text = path(['xds', 'cluster_name']);
const PROPERTY_FLAGS: Text = path(['response', 'flags']);

/** Envoy's response flags for a failure of the upstream: request timeout, remote reset, connect failure, termination. */
const UPSTREAM_FAILURES: u64 = (1 << 2) | (1 << 4) | (1 << 5) | (1 << 6);

/** The time as it was read last, at a pick or a tick: near enough for what is a matter of seconds. */
let clockMs: f64 = 0;

function readClock(): f64 {
  clockMs = nowMs();
  return clockMs;
}

/** Reserves what `streams` requests at a time need. */
export function streamsInit(streams: u32): void {
  contextsInit(streams);
  const readers = max(streams / STREAMS_PER_SCAN, SCANS_MIN);
  scanInit(readers, readers * DIGEST_PAGES_PER_SCAN);
  usageInit(streams);
  slotsInit(streams);
}

/** A request began. When there is no record left it passes uncounted by load, but counted by reason. */
export function streamCreate(context: u32, root: u32): void {
  const plugin = pluginOfRoot(root);
  if (plugin === null) return;
  const slot = slotOpen(plugin.pool);
  if (slot == NONE) plugin.counters.countFallback(REASON_STREAMS_FULL);
  else contextAdd(context, slot);
}

/** Path, method and encoding must be read now: after this callback the headers are out of reach. */
export function streamRequestHeaders(context: u32, endOfStream: bool): void {
  const slot = contextSlot(context);
  if (slot < 0) return;
  const plugin = pluginAt(plugins[slot]);
  if (plugin.settings.isOff) return;
  if (plugin.config.clusters.length > 0 && !isOurCluster(plugin)) {
    plugin.counters.countFallback(REASON_CLUSTER);
    return;
  }
  headersRead(HEADERS_REQUEST);
  if (!headerFind(HEADER_METHOD) || !textEquals(VALUE_POST, valuePtr, valueBytes)) {
    plugin.counters.countFallback(REASON_METHOD);
    return;
  }
  const api = headerFind(HEADER_PATH) ? apiOfPath(valuePtr, valueBytes) : API_NONE;
  if (api == API_NONE || api == API_OTHER) {
    // Its route is not held, so no pick can come in time; it is counted on the pod that answers.
    plugin.counters.countFallback(REASON_PATH);
    return;
  }
  flags[slot] |= DECIDES;
  pickKeyRead(slot, plugin);
  kinds[slot] = <u8>((api - API_CHAT) * LANGUAGES);
  if (api == API_RESPONSES || api == API_MESSAGES) flags[slot] |= EARLY;
  if (isEncoded()) reasons[slot] = REASON_ENCODING;
  else if (endOfStream) reasons[slot] = REASON_NO_BODY;
  else if (!plugin.settings.hasSecret) reasons[slot] = REASON_NO_SECRET;
  else {
    scans[slot] = scanOpen(plugin.pool, api);
    if (scans[slot] < 0) reasons[slot] = REASON_STREAMS_FULL;
    else flags[slot] |= SCANS;
  }
  if (endOfStream) decide(slot, plugin);
}

function isEncoded(): bool {
  const name = textPtr(HEADER_ENCODING);
  const bytes = <u32>textBytes(HEADER_ENCODING);
  for (let at = headerFindFrom(name, bytes, 0); at != 0; at = headerFindFrom(name, bytes, at)) {
    if (valueBytes > 0 && !textEquals(VALUE_IDENTITY, valuePtr, valueBytes)) return true;
  }
  return false;
}

function isOurCluster(plugin: Plugin): bool {
  if (property(PROPERTY_CLUSTER) != STATUS_OK) return false;
  return plugin.listsCluster(resultPtr, <u32>resultBytes);
}

/** Bytes of the body passed: each callback brings only new ones, since nothing is ever held back here. */
export function streamRequestBody(context: u32, bytes: u32, endOfStream: bool): void {
  const slot = contextSlot(context);
  if (slot < 0 || !(flags[slot] & DECIDES)) return;
  if (flags[slot] & SCANS) {
    for (let at: u32 = 0; at < bytes; at += STREAM_CHUNK_BYTES) {
      const rest = bytes - at;
      const take = rest < STREAM_CHUNK_BYTES ? rest : STREAM_CHUNK_BYTES;
      if (bufferBytes(BUFFER_REQUEST_BODY, at, take) != STATUS_OK) break;
      scanFeed(scans[slot], resultPtr, <u32>resultBytes);
    }
  }
  const room = u32.MAX_VALUE - bodyBytes[slot];
  bodyBytes[slot] += bytes < room ? bytes : room;
  if (endOfStream) decide(slot, pluginAt(plugins[slot]));
}

/** HTTP/2 requests with trailers end here and not in a body callback. */
export function streamRequestTrailers(context: u32): void {
  const slot = contextSlot(context);
  if (slot >= 0 && flags[slot] & DECIDES) decide(slot, pluginAt(plugins[slot]));
}

function decide(slot: i32, plugin: Plugin): void {
  flags[slot] &= ~DECIDES;
  const now = readClock();
  plugin.readForPick(now);
  let keys: u32 = 0;
  let prompt = bodyBytes[slot];
  if (flags[slot] & SCANS) {
    const scan = scans[slot];
    // A body of no bytes may come as such: chunked over HTTP/1.1, an empty last frame over HTTP/2.
    reasons[slot] = bodyBytes[slot] == 0 ? REASON_NO_BODY : scanEnd(scan);
    if (reasons[slot] == REASON_NONE) {
      keys = chainRun(scan, plugin.settings.toolsPosition);
      prompt = scanPromptBytes(scan);
      kinds[slot] += <u8>scanLanguage(scan);
      if (chainPrompts() > 1) flags[slot] |= SEVERAL;
      // A prompt without a whole block, or one of which only the beginning was read: picked for as far as it goes.
      if (chainReason() != REASON_NONE) plugin.counters.countFallback(chainReason());
    }
    if (scanStream(scan)) flags[slot] |= STREAMED;
  }
  promptBytes[slot] = prompt;
  if (reasons[slot] != REASON_NONE) plugin.counters.countFallback(reasons[slot]);
  residencyLookup(plugin.pool, chainKeys(), chainEnds(), keys);
  const picked = pickFor(slot, plugin, keys, now);
  if (picked == 0) {
    if (!pickRefused) plugin.counters.countUnpicked();
  } else {
    const pod = pickedPod(0);
    matchedBytes[slot] = matchBytes(pod);
    if (keys > 0) {
      deepestKeys[slot] = chainKeys()[keys - 1];
      edgeBytes[slot] = chainBlockBytes(min(matchKeys(pod), keys - 1));
      flags[slot] |= PREDICTED;
      plugin.counters.countMatch(prompt, matchedBytes[slot]);
    }
    if (plugin.settings.isActive) {
      steer(picked);
      plugin.counters.countPick(plugin.settings.policy);
    }
    dispatch(slot, pod, pickedUncached(0), now);
    if (keys > 0) residencyTouch(pod, now, 0, chainKeys(), chainEnds(), 0, keys);
    plugin.exchange.publishTouch(pod, now, chainKeys(), chainEnds(), keys);
    plugin.exchange.publishHead(now);
  }
  closeScan(slot);
}

function dispatch(slot: i32, pod: i32, tokens: u32, now: f64): void {
  pods[slot] = pod;
  podIds[slot] = podId(pod);
  uncached[slot] = tokens;
  dispatchedMs[slot] = now;
  releaseMs[slot] = now + loadPredictedTtftMs(pod, tokens, now);
  aheadTokens[slot] = loadDispatch(pod, tokens, now);
  flags[slot] |= COUNTED | PREFILL;
}

/** Takes a request off its pod's counters, whichever of its bits are still set; safe to call at any time. */
function settle(slot: i32): void {
  const pod = pods[slot];
  const isThere = pod >= 0 && podId(pod) == podIds[slot];
  if (isThere && flags[slot] & COUNTED) loadEnd(pod, uncached[slot], (flags[slot] & PREFILL) != 0);
  flags[slot] &= ~(COUNTED | PREFILL);
}

export function streamResponseHeaders(context: u32, endOfStream: bool): void {
  const slot = contextSlot(context);
  if (slot < 0) return;
  // An answer that comes before its request has ended, as it may where the route is not held: a pick would come too late.
  flags[slot] &= ~DECIDES;
  closeScan(slot);
  const plugin = pluginAt(plugins[slot]);
  if (plugin.settings.isOff && pods[slot] == NONE) return;
  headersRead(HEADERS_RESPONSE);
  const status = statusClass();
  if (!(flags[slot] & ANSWERED)) usageOpen(slot);
  flags[slot] |= ANSWERED;
  if (endOfStream) flags[slot] |= COMPLETE;
  // A body that was read says whether a stream was asked for.
  const mayBeEvents = (flags[slot] & STREAMED) != 0 || reasons[slot] != REASON_NONE;
  if (mayBeEvents && headerFind(HEADER_TYPE) && startsWith(VALUE_EVENT_STREAM)) flags[slot] |= EVENTS;
  followUpstream(slot, plugin);
  flags[slot] &= ~(FAILED | REFUSED);
  if (status >= 5) flags[slot] |= FAILED;
  else if (status == 4) flags[slot] |= REFUSED;
}

function statusClass(): u32 {
  return headerFind(HEADER_STATUS) && valueBytes > 0 ? <u32>load<u8>(valuePtr) - 0x30 : 0;
}

function startsWith(value: Text): bool {
  const bytes = <u32>textBytes(value);
  return valueBytes >= bytes && memory.compare(valuePtr, textPtr(value), bytes) == 0;
}

/** Moves the counters to the host that really answers: a retry, Envoy's fallback, or a request that was not picked for. */
function followUpstream(slot: i32, plugin: Plugin): void {
  const actual = servedBy(plugin.pool, pods[slot]);
  if (actual < 0 || actual == pods[slot]) return;
  const now = readClock();
  if (pods[slot] >= 0) {
    plugin.counters.countMoved();
    plugin.outcomes.add(actual, OUTCOME_ELSEWHERE, 1);
    if (plugin.settings.isActive && podId(pods[slot]) == podIds[slot]) loadFailure(pods[slot], now);
  }
  settle(slot);
  flags[slot] &= ~PREDICTED;
  const tokens = uncached[slot] > 0 ? uncached[slot] : poolTokens(plugin.pool, promptBytes[slot]);
  dispatch(slot, actual, tokens, now);
  if (deepestKeys[slot] != 0) residencyTouchChain(actual, now, deepestKeys[slot]);
  plugin.exchange.publishChain(actual, now, deepestKeys[slot]);
  plugin.exchange.tell(now);
}

export function streamResponseBody(context: u32, bytes: u32, endOfStream: bool): void {
  const slot = contextSlot(context);
  if (slot < 0) return;
  if (endOfStream) flags[slot] |= COMPLETE;
  if (bytes == 0 || pods[slot] < 0) return;
  if ((flags[slot] & (EVENTS | PREFILL | EARLY)) == (EVENTS | PREFILL)) firstToken(slot);
  for (let at: u32 = 0; at < bytes; at += STREAM_CHUNK_BYTES) {
    const rest = bytes - at;
    if (bufferBytes(BUFFER_RESPONSE_BODY, at, rest < STREAM_CHUNK_BYTES ? rest : STREAM_CHUNK_BYTES) != STATUS_OK)
      return;
    usageFeed(slot, resultPtr, <u32>resultBytes);
    if ((flags[slot] & (EVENTS | PREFILL)) == (EVENTS | PREFILL)) {
      deltas[slot] = <u8>deltaFeed(deltas[slot], resultPtr, <u32>resultBytes);
      if (deltaFound(deltas[slot])) firstToken(slot);
    }
  }
  // What a stream begins with may come before any engine work, and an error without any.
  const isEngine = (flags[slot] & (EVENTS | PREFILL)) != (EVENTS | PREFILL) && !(flags[slot] & (FAILED | REFUSED));
  if (isEngine && podId(pods[slot]) == podIds[slot]) loadAlive(pods[slot], clockMs);
}

function firstToken(slot: i32): void {
  flags[slot] &= ~PREFILL;
  const pod = pods[slot];
  if (podId(pod) != podIds[slot]) return;
  const now = readClock();
  loadFirstToken(pod, uncached[slot]);
  const plugin = pluginAt(plugins[slot]);
  if (!(flags[slot] & FAILED)) {
    const ttftMs = now - dispatchedMs[slot];
    loadObserveTtft(pod, ttftMs, aheadTokens[slot]);
    plugin.outcomes.add(pod, OUTCOME_TTFT_COUNT, 1);
    plugin.outcomes.addTtft(pod, ttftMs);
  }
  plugin.exchange.tell(now);
}

/** The request is over, however it ended, and its context goes away. False when the context is not a request's. */
export function streamDone(context: u32): bool {
  const slot = contextSlot(context);
  if (slot < 0) return false;
  end(slot);
  contextRemove(context);
  slotClose(slot);
  return true;
}

function end(slot: i32): void {
  closeScan(slot);
  if (!(flags[slot] & COUNTED)) return;
  const plugin = pluginAt(plugins[slot]);
  const pod = pods[slot];
  // As of the last pick or tick: no end needs to be known more exactly.
  const now = clockMs;
  if (podId(pod) == podIds[slot]) {
    judge(slot, pod);
    renew(slot, plugin, now);
  }
  settle(slot);
  learn(slot, plugin);
  plugin.exchange.tell(now);
}

/**
 * An engine keeps the blocks of a request while it runs, and puts them at the newest end of its own LRU when it ends, those of the answer
 * included. So does the table: what has just ended will be there longest (docs/decisions/0005). An engine that does not tell the answer's
 * length gave one as long as others.
 */
function renew(slot: i32, plugin: Plugin, now: f64): void {
  if (deepestKeys[slot] == 0 || (flags[slot] & (ANSWERED | FAILED | REFUSED)) != ANSWERED) return;
  plugin.exchange.publishAnswer(pods[slot], now, deepestKeys[slot], usageCompletionTokens(slot));
}

function judge(slot: i32, pod: i32): void {
  const broken = !(flags[slot] & COMPLETE) && hasFailureFlag();
  const plugin = pluginAt(plugins[slot]);
  if (broken || flags[slot] & FAILED) {
    plugin.counters.countFailure();
    loadFailure(pod, readClock());
    if (flags[slot] & FAILED) plugin.outcomes.add(pod, OUTCOME_SERVER_ERRORS, 1);
    else plugin.outcomes.addReset(pod);
  } else if (flags[slot] & ANSWERED) {
    loadSuccess(pod);
    plugin.outcomes.add(pod, flags[slot] & REFUSED ? OUTCOME_CLIENT_ERRORS : OUTCOME_OK, 1);
  }
}

/** Whether Envoy gave the upstream the blame for an answer that did not come to its end. */
function hasFailureFlag(): bool {
  if (property(PROPERTY_FLAGS) != STATUS_OK || resultBytes != 8) return false;
  return (load<u64>(resultPtr) & UPSTREAM_FAILURES) != 0;
}

/** What the engine says of the request it has answered corrects the estimates: bytes per token, hits, answer length. */
function learn(slot: i32, plugin: Plugin): void {
  if (!(flags[slot] & ANSWERED) || flags[slot] & FAILED || reasons[slot] != REASON_NONE) return;
  const prompt = usagePromptTokens(slot);
  if (prompt <= 0 || promptBytes[slot] == 0) return;
  plugin.outcomes.addPrompt(pods[slot], kinds[slot], promptBytes[slot], prompt);
  poolObservePrompt(plugin.pool, promptBytes[slot], prompt);
  const output = usageCompletionTokens(slot);
  if (output >= 0) {
    poolObserveOutput(plugin.pool, output);
    plugin.outcomes.add(pods[slot], OUTCOME_COMPLETION_TOKENS, output);
  }
  const cached = usageCachedTokens(slot);
  // Nothing was believed of a pod that was not picked; of several prompts only the last one's cache is told.
  if (cached < 0 || (flags[slot] & (SEVERAL | PREDICTED)) != PREDICTED) return;
  // What was believed is a number of bytes; this prompt's own ratio makes tokens of it, so that only the belief is judged here.
  const ratio = <f64>prompt / <f64>promptBytes[slot];
  const predicted = <f64>matchedBytes[slot] * ratio;
  plugin.counters.countUsage(prompt, cached, <u32>Math.round(predicted));
  const queued = aheadTokens[slot] - uncached[slot];
  plugin.outcomes.addCached(pods[slot], kinds[slot], predicted, cached, <f64>edgeBytes[slot] * ratio, queued);
}

function closeScan(slot: i32): void {
  if (flags[slot] & SCANS) scanClose(scans[slot]);
  flags[slot] &= ~SCANS;
}

/**
 * Releases the prefill of answers that are not streamed at the time when their first token is predicted: they show none,
 * and holding it to the end would make busy pods look busier than they are (POLICY: 1.45 against 1.05). Late streams are looked into.
 */
export function streamsTick(now: f64): void {
  clockMs = now;
  slotsTrim();
  for (let slot: u32 = 0; slot < slotsEnd; slot++) {
    const bits = flags[slot];
    const isStreamed = (bits & STREAMED) != 0;
    if (!(bits & PREFILL) || !isDue(slot, now)) continue;
    if (!isStreamed) flags[slot] = bits & ~PREFILL;
    const pod = pods[slot];
    if (podId(pod) != podIds[slot]) continue;
    const plugin = pluginAt(plugins[slot]);
    if (isStreamed) {
      const predictedMs = releaseMs[slot] - dispatchedMs[slot];
      if (loadSilence(pod, dispatchedMs[slot], predictedMs, now)) plugin.counters.countSilence(pod);
    } else {
      loadFirstToken(pod, uncached[slot]);
      plugin.exchange.markDirty();
    }
  }
}
