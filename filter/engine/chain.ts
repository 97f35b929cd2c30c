// Digests -> keys: chains a request's blocks in the order in which the model's template renders them.
//
// JSON keys may stand in any order and a role may follow its content, so only at the end of the body is it known what the
// prompt's beginning is. Each key depends on everything before it, roles and field boundaries included, and on the model and cache_salt: two
// requests share a key exactly when they share all of the prompt up to that block's end.
//
//   after-system   leading system and developer messages, tools, the other messages      (ChatML models)
//   first          tools, all messages                                                    (Llama's templates)
//
// A request whose reading had to stop (arena full) is chained up to the first message that is not whole: a key is made only when all
// that comes before it is known.
import { adapterHashOf } from './adapters';
import { aliasesKnown, aliasGroup } from './aliases';
import { chainStep, secretGeneration, secretKnown } from './digest';
import { KEYS_MAX, MESSAGE_RUNS_MAX } from './limits';
import { KEY_SYSTEM, KIND_TOOLS, KIND_LAST, ROLE_DEVELOPER, ROLE_PROMPT, ROLE_SYSTEM } from './names';
import { REASON_ARENA_FULL, REASON_KEYS_FULL, REASON_NONE, REASON_NO_SECRET, REASON_TOO_SHORT } from './reasons';
import {
  AT_BLOCK_BYTES,
  AT_GENERATION,
  AT_KEYS,
  AT_MODEL,
  AT_MODEL_BYTES,
  AT_MODEL_DIGEST,
  AT_POOL,
  AT_SALT_DIGEST,
  AT_SEEN_TOP,
  AT_SYSTEM,
  AT_TAPE_FULL,
  AT_TOOLS_BYTES,
  AT_TOOLS_DIGEST,
  META_CLOSED,
  META_SYSTEM,
  NOWHERE,
  recordOf,
  runBlocks,
  runCounted,
  runKind,
  runWords,
  tapeEnd,
  tapeFirst,
  tapeSkip,
  tapeWord,
} from './record';
import { scanWindowBytes } from './scan';
import { blockSize } from './text';

export const TOOLS_AUTO: u32 = 0;
export const TOOLS_AFTER_SYSTEM: u32 = 1;
export const TOOLS_FIRST: u32 = 2;

// What a step of the chain stands for. A block's tag is its kind, plus TAG_RUN where its run begins.
const TAG_RUN: u64 = 0x100;
const TAG_MESSAGE: u64 = 0x300;
const TAG_GROUP: u64 = 0x400;
// Begins every chain: "warmpath" with the version of the format, 1, added to its last letter.
const TAG_SEED: u64 = 0x697461706d726177;

const keys: StaticArray<u64> = new StaticArray<u64>(KEYS_MAX);
const ends: StaticArray<u32> = new StaticArray<u32>(KEYS_MAX);
let count: u32 = 0;
let reason: u32 = REASON_NONE;
let isStopped: bool = false;

// The chain while it runs.
let poolKeys: usize = 0;
let state: u64 = 0;
let end: u32 = 0;
let prompts: u32 = 0;
let window: u32 = 0;
let wholeBytes: u32 = 0;

// The runs of the message at hand.
const runHeaders: StaticArray<u64> = new StaticArray<u64>(MESSAGE_RUNS_MAX);
const runDigests: StaticArray<u32> = new StaticArray<u32>(MESSAGE_RUNS_MAX);

/** The keys of the last `chainRun`; none is 0. */
export function chainKeys(): StaticArray<u64> {
  return keys;
}

/** For each key what the prompt counts up to the end of its block, in template order: bytes of text, and fewer for media. */
export function chainEnds(): StaticArray<u32> {
  return ends;
}
/** Bytes of one block of the chain, a whole one where it is shorter: no engine's own blocks are finer. `index` is below the number of keys. */
export function chainBlockBytes(index: u32): u32 {
  return max(ends[index] - (index > 0 ? ends[index - 1] : 0), wholeBytes);
}

/** Why the last `chainRun` made fewer keys than the prompt has blocks; REASON_NONE when it did not. */
export function chainReason(): u32 {
  return reason;
}

/** How many prompts the last `chainRun` had before it; 0 for a chat. */
export function chainPrompts(): u32 {
  return prompts;
}

/** Chains a request that `scanEnd` found good. Returns the number of keys. */
export function chainRun(slot: i32, toolsPosition: u32): u32 {
  count = 0;
  prompts = 0;
  end = 0;
  isStopped = false;
  reason = REASON_NO_SECRET;
  const rec = recordOf(slot);
  if (rec == 0) return 0;
  const pool = load<u32>(rec, AT_POOL);
  if (!secretKnown(pool) || secretGeneration(pool) != load<u32>(rec, AT_GENERATION)) return 0;
  reason = REASON_NONE;
  poolKeys = load<u32>(rec, AT_KEYS);
  window = scanWindowBytes(pool);
  wholeBytes = load<u32>(rec, AT_BLOCK_BYTES);
  state = chainStep(poolKeys, modelOf(rec, pool), load<u64>(rec, AT_SALT_DIGEST), TAG_SEED);
  const isFirst = toolsPosition == TOOLS_FIRST || (toolsPosition != TOOLS_AFTER_SYSTEM && isLlama(rec));
  walk(rec, isFirst);
  if (count == 0 && reason == REASON_NONE) reason = REASON_TOO_SHORT;
  return count;
}

function walk(rec: usize, toolsFirst: bool): void {
  let isToolsDone = false;
  if (toolsFirst) {
    tools(rec);
    isToolsDone = true;
  }
  const system = load<u32>(rec, AT_SYSTEM);
  if (system != NOWHERE) message(rec, system);
  // A system text that stands after the point where the arena was full left no trace but its key.
  else if (load<u32>(rec, AT_TAPE_FULL) && (load<u32>(rec, AT_SEEN_TOP) >> KEY_SYSTEM) & 1) stop(REASON_ARENA_FULL);
  const last = tapeEnd(rec);
  for (let at = tapeFirst(rec); at != NOWHERE && at != last && !isStopped;) {
    const meta = tapeWord(at);
    if (!(meta & META_CLOSED)) break;
    if (meta & META_SYSTEM) {
      at = pass(at, <u32>((meta >> 8) & 0xff));
      continue;
    }
    const role = tapeWord(tapeSkip(at, 1));
    if (!isToolsDone && role != ROLE_SYSTEM && role != ROLE_DEVELOPER) {
      tools(rec);
      isToolsDone = true;
    }
    if (role == ROLE_PROMPT) prompts++;
    at = message(rec, at);
  }
  if (load<u32>(rec, AT_TAPE_FULL)) stop(REASON_ARENA_FULL);
  else if (!isToolsDone) tools(rec);
}

function stop(why: u32): void {
  if (!isStopped) reason = why;
  isStopped = true;
}

/** The place after a message. */
function pass(at: u32, runs: u32): u32 {
  let next = tapeSkip(at, 2);
  for (let i: u32 = 0; i < runs && next != NOWHERE; i++) {
    next = tapeSkip(next, 1 + runWords(tapeWord(next)));
  }
  return next;
}

/** Chains the message at a place of the tape: its role, then its runs by kind. Returns the place after it. */
function message(rec: usize, at: u32): u32 {
  const meta = tapeWord(at);
  if (!(meta & META_CLOSED)) {
    stop(REASON_ARENA_FULL);
    return NOWHERE;
  }
  let runs = <u32>((meta >> 8) & 0xff);
  if (runs > MESSAGE_RUNS_MAX) runs = MESSAGE_RUNS_MAX;
  silent(tapeWord(tapeSkip(at, 1)), TAG_MESSAGE);
  let next = tapeSkip(at, 2);
  for (let i: u32 = 0; i < runs && next != NOWHERE; i++) {
    const header = tapeWord(next);
    runHeaders[i] = header;
    runDigests[i] = tapeSkip(next, 1);
    next = tapeSkip(next, 1 + runWords(header));
  }
  if (runs == 1) {
    run(rec, runHeaders[0], runDigests[0]);
    return next;
  }
  for (let kind: u32 = 1; kind <= KIND_LAST; kind++) {
    for (let i: u32 = 0; i < runs; i++) {
      if (runKind(runHeaders[i]) == kind) run(rec, runHeaders[i], runDigests[i]);
    }
  }
  return next;
}

/** Chains the blocks of a run. */
function run(rec: usize, header: u64, from: u32): void {
  const kind = <u64>runKind(header);
  const blocks = runBlocks(header);
  const counted = runCounted(header);
  const bytes = <u32>(header >> 32);
  const blockBytes = load<u32>(rec, AT_BLOCK_BYTES);
  let at = from;
  let offset: u32 = 0;
  let before: u32 = 0;
  for (let i: u32 = 0; i < blocks && at != NOWHERE && !isStopped; i++) {
    const size = blockSize(offset, blockBytes);
    const digest = tapeWord(at);
    let after = bytes - offset < size ? bytes : offset + size;
    if (i >= counted) {
      at = tapeSkip(at, 1);
      if (at == NOWHERE) return;
      after = <u32>tapeWord(at);
    }
    block(digest, i == 0 ? kind | TAG_RUN : kind, after - before);
    offset += size;
    before = after;
    at = tapeSkip(at, 1);
  }
}

function tools(rec: usize): void {
  const bytes = load<u32>(rec, AT_TOOLS_BYTES);
  if (bytes > 0) block(load<u64>(rec, AT_TOOLS_DIGEST), (<u64>KIND_TOOLS) | TAG_RUN, bytes);
}

/** A step that makes no key. */
function silent(digest: u64, tag: u64): void {
  state = chainStep(poolKeys, state, digest, tag);
}

function block(digest: u64, tag: u64, bytes: u32): void {
  if (isStopped) return;
  state = chainStep(poolKeys, state, digest, tag);
  end += bytes;
  if (window != 0 && end > window) {
    isStopped = true;
  } else if (count >= KEYS_MAX) {
    stop(REASON_KEYS_FULL);
  } else {
    keys[count] = state == 0 ? 1 : state;
    ends[count] = end;
    count++;
  }
}

/** What stands for the model: the digest of its name, or of the names that are one model (aliases.ts). */
function modelOf(rec: usize, pool: u32): u64 {
  const digest = load<u64>(rec, AT_MODEL_DIGEST);
  if (!aliasesKnown(pool) || digest == 0) return digest;
  const group = aliasGroup(pool, adapterHashOf(rec + AT_MODEL, load<u32>(rec, AT_MODEL_BYTES)));
  return group == 0 ? digest : chainStep(poolKeys, 0, group, TAG_GROUP);
}

/** Whether the model's name contains "llama" in any case. */
function isLlama(rec: usize): bool {
  const bytes = load<u32>(rec, AT_MODEL_BYTES);
  for (let i: u32 = 0; i + 5 <= bytes; i++) {
    const at = rec + AT_MODEL + i;
    // "llam" and "a" with the bit that makes letters small.
    if ((load<u32>(at) | 0x20202020) == 0x6d616c6c && (load<u8>(at, 4) | 0x20) == 0x61) return true;
  }
  return false;
}
