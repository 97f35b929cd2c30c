// The host calls that the probe makes on demand: each has a name, which the request header x-probe-do carries, and says in the
// log what came back. So every binding is run in the Node host and in a real Envoy.

import {
  environment,
  header,
  headerAdd,
  headerPairs,
  headerRemove,
  headerReplace,
  logLevel,
  metric,
  metricAdd,
  metricSet,
  metricValue,
  nowMs,
  property,
  propertySet,
  randomSeed,
  respond,
  resultBytes,
  resultCas,
  resultNumber,
  resultPtr,
  sharedData,
  sharedDataCreate,
  sharedDataInto,
  sharedDataSet,
  sharedDataSwap,
} from './proxy-wasm/host';
import { lineBytesOf, lineLog, lineNumber, lineStart, lineText } from './proxy-wasm/line';
import { HEADERS_REQUEST, LOG_WARN, METRIC_GAUGE } from './proxy-wasm/status';
import { Text, pairs, path, text, textBytes, textEquals, textPtr } from './proxy-wasm/text';

const SPACE: Text = text(' ');
const DO: Text = text('do');
const ONE: Text = text('one');
const LONGER: Text = text('something longer');
const HEADERS: Text = text('headers');
const ADDED: Text = text('x-probe-added');
const REPLACED: Text = text('x-probe-replaced');
const REMOVED: Text = text('x-probe-removed');
const ENVIRONMENT: Text = text('environment');
const VARIABLE: Text = text('PROBE_VALUE');
const ABSENT: Text = text('PROBE');
const RANDOM: Text = text('random');
const SHARED: Text = text('shared');
const KEY: Text = text('probe.value');
const METRICS: Text = text('metrics');
const GAUGE: Text = text('warmpath_probe_gauge');
const RESPOND: Text = text('respond');
const TEAPOT: Text = text('probe_says_so');
const RESPONSE_HEADERS: Text = pairs(['x-probe-answer', 'yes', 'content-type', 'text/plain']);
const LINES: Text = text('lines');
const TIME: Text = text('time');
const STATE: Text = text('state');
const STATE_PATH: Text = path(['warmpath.probe']);
const region: usize = memory.data(16);

export function perform(ptr: usize, bytes: usize): void {
  lineStart();
  lineText(DO);
  if (textEquals(HEADERS, ptr, bytes)) doHeaders();
  else if (textEquals(ENVIRONMENT, ptr, bytes)) doEnvironment();
  else if (textEquals(RANDOM, ptr, bytes)) doRandom();
  else if (textEquals(SHARED, ptr, bytes)) doShared();
  else if (textEquals(METRICS, ptr, bytes)) doMetrics();
  else if (textEquals(RESPOND, ptr, bytes)) say(respond(418, TEAPOT, LONGER, RESPONSE_HEADERS));
  else if (textEquals(LINES, ptr, bytes)) doLines();
  else if (textEquals(TIME, ptr, bytes)) doTime();
  else if (textEquals(STATE, ptr, bytes)) doState();
  lineLog(LOG_WARN);
}

function say(value: i64): void {
  lineText(SPACE);
  lineNumber(value);
}

function sayResult(status: u32): void {
  say(status);
  lineText(SPACE);
  lineBytesOf(resultPtr, resultBytes);
}

// One header more, one changed, one fewer; then whether the serialised map still parses to its end.
function doHeaders(): void {
  say(headerAdd(HEADERS_REQUEST, ADDED, textPtr(ONE), textBytes(ONE)));
  say(headerReplace(HEADERS_REQUEST, REPLACED, textPtr(ONE), textBytes(ONE)));
  say(headerRemove(HEADERS_REQUEST, REMOVED));
  sayResult(header(HEADERS_REQUEST, ADDED));
  sayResult(header(HEADERS_REQUEST, REMOVED));
  say(headerPairs(HEADERS_REQUEST));
  const n: usize = load<u32>(resultPtr);
  let bytes: usize = 4;
  for (let i: usize = 0; i < n * 2; i++) bytes += 4 + <usize>load<u32>(resultPtr + 4 + i * 4) + 1;
  say(bytes == resultBytes ? 1 : 0);
}

function doEnvironment(): void {
  sayResult(environment(VARIABLE));
  sayResult(environment(ABSENT));
}

function doRandom(): void {
  const first = randomSeed();
  say(first != 0 && first != randomSeed() ? 1 : 0);
}

// Created once, not twice; read into a region that it fits and into one that it does not; swapped with the right version only.
function doShared(): void {
  const key = textPtr(KEY);
  const keyBytes = textBytes(KEY);
  say(sharedDataCreate(key, keyBytes, textPtr(ONE), textBytes(ONE)));
  say(sharedDataCreate(key, keyBytes, textPtr(LONGER), textBytes(LONGER)));
  sayResult(sharedData(key, keyBytes));
  const cas = resultCas;
  sayResult(sharedDataInto(key, keyBytes, region, 3));
  say(resultPtr == region ? 1 : 0);
  sayResult(sharedDataInto(key, keyBytes, region, 2));
  say(sharedDataSwap(key, keyBytes, textPtr(LONGER), textBytes(LONGER), cas));
  say(sharedDataSwap(key, keyBytes, textPtr(ONE), textBytes(ONE), cas));
  say(sharedDataSet(key, keyBytes, 0, 0));
  sayResult(sharedData(key, keyBytes));
}

function doMetrics(): void {
  say(metric(METRIC_GAUGE, GAUGE));
  const id = <u32>resultNumber;
  say(metricSet(id, 5));
  say(metricAdd(id, -2));
  say(metricValue(id));
  say(resultNumber);
}

// The extremes of a number, then more than a line holds.
function doLines(): void {
  say(i64.MIN_VALUE);
  say(i64.MAX_VALUE);
  say(0);
  for (let i = 0; i < 100; i++) say(0);
  for (let i = 0; i < 100; i++) lineText(LONGER);
}

function doTime(): void {
  const ms = nowMs();
  say(ms > 1.6e12 && ms < 4e12 ? 1 : 0);
  say(logLevel());
}

function doState(): void {
  say(propertySet(STATE_PATH, textPtr(ONE), textBytes(ONE)));
  say(propertySet(STATE_PATH, textPtr(LONGER), textBytes(LONGER)));
  sayResult(property(STATE_PATH));
}
