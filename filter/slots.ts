// The records of requests: one slot each, in tables reserved when the VM starts. stream.ts fills and reads them.
import { DELTA_NONE } from './engine/first-token';
import { REASON_NONE } from './engine/reasons';

// What a record still owes or has already done.
export const DECIDES: u32 = 1; // the end of the body will bring a decision
export const SCANS: u32 = 2; // a scanner slot is open
export const COUNTED: u32 = 4; // in flight on its pod
export const PREFILL: u32 = 8; // its uncached tokens are outstanding on its pod
export const STREAMED: u32 = 16; // the client asked for a streamed answer
export const EVENTS: u32 = 32; // the answer is an event stream
export const ANSWERED: u32 = 64; // response headers have come
export const FAILED: u32 = 128; // the answer says that the pod failed
export const REFUSED: u32 = 256; // the answer is an error of the client's
export const EARLY: u32 = 512; // the answer's stream may begin before its first token
export const SEVERAL: u32 = 1024; // more prompts than one
export const OPEN: u32 = 2048; // the slot is in use
export const COMPLETE: u32 = 4096; // the answer has come to its end
export const PREDICTED: u32 = 8192; // what is said of the match is about the pod that the request is on

/** No slot, no pod. */
export const NONE: i32 = -1;

/** Bits of the list above. */
export let flags: StaticArray<u32> = new StaticArray<u32>(0);
/** Pool slot of the plugin. */
export let plugins: StaticArray<u8> = new StaticArray<u8>(0);
/** The scanner's slot, while SCANS is set. */
export let scans: StaticArray<i32> = new StaticArray<i32>(0);
/** Why there are no keys; REASON_NONE when there are. */
export let reasons: StaticArray<u32> = new StaticArray<u32>(0);
/** How far the sign of a first token has been read. */
export let deltas: StaticArray<u8> = new StaticArray<u8>(0);
/** Bytes of the body so far. */
export let bodyBytes: StaticArray<u32> = new StaticArray<u32>(0);
/** The pod that the request is counted on, and its id. */
export let pods: StaticArray<i32> = new StaticArray<i32>(0);
export let podIds: StaticArray<u32> = new StaticArray<u32>(0);
/** Tokens that the pod must compute. */
export let uncached: StaticArray<u32> = new StaticArray<u32>(0);
/** Bytes of prompt text, or of the body when it could not be read. */
export let promptBytes: StaticArray<u32> = new StaticArray<u32>(0);
/** Of these, what the pod was believed to hold. */
export let matchedBytes: StaticArray<u32> = new StaticArray<u32>(0);
/** Bytes of the block at the end of that: it may be held in part. */
export let edgeBytes: StaticArray<u32> = new StaticArray<u32>(0);
/** API and language, as outcomes tell them apart (engine/frame-layout.ts). */
export let kinds: StaticArray<u8> = new StaticArray<u8>(0);
/** The last key of the chain; 0: no keys. */
export let deepestKeys: StaticArray<u64> = new StaticArray<u64>(0);
/** When the request was sent, Unix ms. */
export let dispatchedMs: StaticArray<f64> = new StaticArray<f64>(0);
/** Tokens to be computed before its first token when it was sent. */
export let aheadTokens: StaticArray<f64> = new StaticArray<f64>(0);
/** When its first token was expected, Unix ms. Until a request is sent, the bits of its policy's key (pick.ts) lie here. */
export let releaseMs: StaticArray<f64> = new StaticArray<f64>(0);
/** Which metrics of its pod were asked whether it had begun, by their time. */
export let askedMs: StaticArray<f64> = new StaticArray<f64>(0);
/** Free slots form a list through this array; `freeSlot` is its head. */
let nextFree: StaticArray<i32> = new StaticArray<i32>(0);
let freeSlot: i32 = NONE;
/** No slot from here on is in use. The slot freed last is used first, so that those in use are low numbers. */
export let slotsEnd: u32 = 0;

/** Reserves the records of `streams` requests at a time. */
export function slotsInit(streams: u32): void {
  slotsEnd = 0;
  flags = new StaticArray<u32>(streams);
  plugins = new StaticArray<u8>(streams);
  scans = new StaticArray<i32>(streams);
  reasons = new StaticArray<u32>(streams);
  deltas = new StaticArray<u8>(streams);
  bodyBytes = new StaticArray<u32>(streams);
  pods = new StaticArray<i32>(streams);
  podIds = new StaticArray<u32>(streams);
  uncached = new StaticArray<u32>(streams);
  promptBytes = new StaticArray<u32>(streams);
  matchedBytes = new StaticArray<u32>(streams);
  edgeBytes = new StaticArray<u32>(streams);
  kinds = new StaticArray<u8>(streams);
  deepestKeys = new StaticArray<u64>(streams);
  dispatchedMs = new StaticArray<f64>(streams);
  aheadTokens = new StaticArray<f64>(streams);
  releaseMs = new StaticArray<f64>(streams);
  askedMs = new StaticArray<f64>(streams);
  nextFree = new StaticArray<i32>(streams);
  for (let slot: u32 = 0; slot < streams; slot++) nextFree[slot] = slot + 1 < streams ? <i32>(slot + 1) : NONE;
  freeSlot = streams > 0 ? 0 : NONE;
}

/** Takes a free slot for a request of the pool's plugin, all empty; NONE when all are in use. */
export function slotOpen(pool: u32): i32 {
  const slot = freeSlot;
  if (slot == NONE) return NONE;
  freeSlot = nextFree[slot];
  if (<u32>slot >= slotsEnd) slotsEnd = slot + 1;
  flags[slot] = OPEN;
  plugins[slot] = <u8>pool;
  scans[slot] = NONE;
  reasons[slot] = REASON_NONE;
  deltas[slot] = <u8>DELTA_NONE;
  bodyBytes[slot] = 0;
  pods[slot] = NONE;
  podIds[slot] = 0;
  uncached[slot] = 0;
  promptBytes[slot] = 0;
  matchedBytes[slot] = 0;
  edgeBytes[slot] = 0;
  kinds[slot] = 0;
  deepestKeys[slot] = 0;
  askedMs[slot] = 0;
  return slot;
}

export function slotClose(slot: i32): void {
  flags[slot] = 0;
  nextFree[slot] = freeSlot;
  freeSlot = slot;
}

/** Lets go of the slots at the end that are free again. */
export function slotsTrim(): void {
  while (slotsEnd > 0 && !(flags[slotsEnd - 1] & OPEN)) slotsEnd--;
}
