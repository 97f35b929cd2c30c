// The messages of a request as they are written onto its tape: opened, given fields, closed with their role.
//
// A chat message, an item of a responses input, the top-level system text and each prompt of a completions request are all messages
// here; what differs is the role. The capture buffer, which reads keys, roles and types, is here too.
import { chainStep } from './digest';
import { API_RESPONSES, KEY_MODEL, KIND_CONTENT, ROLE_PROMPT, ROLE_SYSTEM, roleKnown } from './names';
import {
  AT_API,
  AT_CAPTURE,
  AT_CAPTURE_BYTES,
  AT_FILL,
  AT_FLAT_IDS,
  AT_ITEM_TYPE,
  AT_KEYS,
  AT_LAST_DIGEST,
  AT_MESSAGE,
  AT_MESSAGE_RUNS,
  AT_MODEL_DIGEST,
  AT_ROLE,
  AT_RUN_BYTES,
  AT_SALT_DIGEST,
  AT_SEEN_MESSAGE,
  AT_STRIPE,
  AT_SYSTEM,
  AT_TAPE_FULL,
  META_CLOSED,
  META_SYSTEM,
  NOWHERE,
  recordModel,
  tapePatch,
  tapePush,
  tapeSkip,
} from './record';
import { SINK_CAPTURE, SINK_KEY, SINK_MEDIA, SINK_NONE, SINK_PROBE, SINK_TEXT } from './shape';
import { mediaByte, runByte, runBytes, runClose, runCloseWhole, runOpen } from './text';

export const CAPTURE_BYTES: u32 = 64;
// Mixed into the hash of an unknown role.
const TAG_NAME: u64 = 0x200;

// Claude Code's first system block carries a nonce, and engines drop it.
const BILLING = 'x-anthropic-billing-header';
const BILLING_BYTES: u32 = 26;
const billing: usize = memory.data(32);
for (let i: u32 = 0; i < BILLING_BYTES; i++) store<u8>(billing + i, <u8>BILLING.charCodeAt(i));

/** Makes the capture buffer ready for a key, role or type. */
export function capture(rec: usize): u32 {
  store<u32>(rec, 0, AT_CAPTURE_BYTES);
  store<u64>(rec, 0, AT_CAPTURE);
  store<u64>(rec, 0, AT_CAPTURE + 8);
  store<u64>(rec, 0, AT_CAPTURE + 16);
  return SINK_CAPTURE;
}

export function captured(rec: usize): u32 {
  const bytes = load<u32>(rec, AT_CAPTURE_BYTES);
  return bytes < CAPTURE_BYTES ? bytes : CAPTURE_BYTES;
}

function captureByte(rec: usize, byte: u32): void {
  const at = load<u32>(rec, AT_CAPTURE_BYTES);
  if (at < CAPTURE_BYTES) store<u8>(rec + AT_CAPTURE + at, <u8>byte);
  store<u32>(rec, at + 1, AT_CAPTURE_BYTES);
}

/** One byte of a system block that may be the billing header. Returns the sink for the next one. */
function probeByte(rec: usize, byte: u32): u32 {
  const at = load<u32>(rec, AT_CAPTURE_BYTES);
  if (load<u8>(billing + at) == byte) {
    store<u8>(rec + AT_CAPTURE + at, <u8>byte);
    store<u32>(rec, at + 1, AT_CAPTURE_BYTES);
    return at + 1 == BILLING_BYTES ? SINK_NONE : SINK_PROBE;
  }
  runBytes(rec, rec + AT_CAPTURE, at);
  runByte(rec, byte);
  return SINK_TEXT;
}

/** One byte of a string that is not just text or skipped. Returns the sink for the next one. */
export function sinkByte(rec: usize, sink: u32, byte: u32): u32 {
  switch (sink) {
    case SINK_CAPTURE:
      captureByte(rec, byte);
      return sink;
    case SINK_PROBE:
      return probeByte(rec, byte);
    case SINK_KEY:
      captureByte(rec, byte);
      runByte(rec, byte);
      return sink;
    case SINK_MEDIA:
      return mediaByte(rec, byte) ? SINK_MEDIA : SINK_TEXT;
    default:
      return sink;
  }
}

/** The code of the captured role: a known one's, else a keyed hash. */
export function roleCode(rec: usize): u64 {
  const bytes = captured(rec);
  const known = roleKnown(rec + AT_CAPTURE, load<u32>(rec, AT_CAPTURE_BYTES));
  if (known != 0) return known;
  let hash: u64 = bytes;
  for (let at: u32 = 0; at < bytes; at += 8) {
    let word = load<u64>(rec + AT_CAPTURE + at);
    if (bytes - at < 8) word &= ((<u64>1) << ((bytes - at) << 3)) - 1;
    hash = chainStep(load<u32>(rec, AT_KEYS), hash, word, TAG_NAME);
  }
  return hash | ((<u64>1) << 63);
}

export function messageOpen(rec: usize, role: u64): void {
  store<u32>(rec, tapePush(rec, 0), AT_MESSAGE);
  tapePush(rec, 0);
  store<u32>(rec, 0, AT_MESSAGE_RUNS);
  store<u32>(rec, 0, AT_SEEN_MESSAGE);
  store<u64>(rec, role, AT_ROLE);
  store<u64>(rec, 0, AT_ITEM_TYPE);
}

export function messageClose(rec: usize, flags: u64): void {
  const at = load<u32>(rec, AT_MESSAGE);
  if (at == NOWHERE || load<u32>(rec, AT_TAPE_FULL)) return;
  let role = load<u64>(rec, AT_ROLE);
  if (role == 0 && load<u32>(rec, AT_API) == API_RESPONSES) role = load<u64>(rec, AT_ITEM_TYPE);
  tapePatch(tapeSkip(at, 1), role);
  tapePatch(at, META_CLOSED | flags | ((<u64>load<u32>(rec, AT_MESSAGE_RUNS)) << 8));
}

export function fieldOpen(rec: usize, kind: u32): u32 {
  store<u32>(rec, load<u32>(rec, AT_MESSAGE_RUNS) + 1, AT_MESSAGE_RUNS);
  runOpen(rec, kind);
  return SINK_TEXT;
}

export function systemOpen(rec: usize): u32 {
  messageOpen(rec, ROLE_SYSTEM);
  store<u32>(rec, load<u32>(rec, AT_MESSAGE), AT_SYSTEM);
  return fieldOpen(rec, KIND_CONTENT);
}

/** Ends the top-level system text. An empty one is as if it were not there. */
export function systemClose(rec: usize): void {
  runClose(rec, 0);
  messageClose(rec, META_SYSTEM);
  if (load<u32>(rec, AT_RUN_BYTES) + load<u32>(rec, AT_FILL) == 0) store<u32>(rec, NOWHERE, AT_SYSTEM);
}

export function promptOpen(rec: usize, kind: u32): u32 {
  messageOpen(rec, ROLE_PROMPT);
  return fieldOpen(rec, kind);
}

export function promptClose(rec: usize): void {
  runClose(rec, 0);
  messageClose(rec, 0);
}

/** Ends a prompt of token ids that stood right in the list of prompts. */
export function flatClose(rec: usize): void {
  if (load<u32>(rec, AT_FLAT_IDS) == 0) return;
  store<u32>(rec, 0, AT_FLAT_IDS);
  promptClose(rec);
}

/** Whether the captured type of an input item is `message`, which says no more than no type. */
export function isPlainItem(rec: usize): bool {
  // "message" as a little-endian word.
  return load<u32>(rec, AT_CAPTURE_BYTES) == 7 && load<u64>(rec, AT_CAPTURE) == 0x006567617373656d;
}

export function nameClose(rec: usize, key: u32): void {
  if (key == KEY_MODEL && load<u32>(rec, AT_RUN_BYTES) == 0) recordModel(rec, rec + AT_STRIPE, load<u32>(rec, AT_FILL));
  runCloseWhole(rec);
  store<u64>(rec + (key == KEY_MODEL ? AT_MODEL_DIGEST : AT_SALT_DIGEST), load<u64>(rec, AT_LAST_DIGEST));
}
