// The fixed record of one request that is being read, and the paged arena where requests keep their digests.
//
// All of it is reserved once. A record holds the state of the byte machine (scan.ts), of what its bytes mean (shape.ts) and of the text that is
// being digested (text.ts). What is found goes onto the record's tape: 64-bit words in pages of 64, taken from a
// free list that all requests share and given back in one step.
//
//   tape of a record      message*                                  docs/KEYS.md calls the parts of a message runs
//   message               meta, role, run*                          meta = closed (bit 0) | system (bit 1) | runs << 8
//   run                   header, digest*, (digest, counted)*       header = kind (4 bits) | first block with a `counted` << 4 (14 bits,
//                                                                   all ones: none) | blocks << 18 (14 bits) | bytes << 32
//
// From the first block of a run that holds media on, `counted` says beside each digest how many bytes the run counts with up to there. A run
// of 4 GiB has fewer than 500 blocks.
//
// A message whose meta has no closed bit was not read to its end, or the arena was full: the chain stops before it.
import { secretGeneration, poolKeys } from './digest';
import { TAPE_PAGES_MAX, POOLS_MAX, MODEL_BYTES_MAX } from './limits';

// Offsets into a record. First what is touched with every stripe.
export const AT_SIP: usize = 0;
export const AT_STRIPE: usize = 32; // 256 bytes and 32 of slack
export const AT_CAPTURE: usize = 320; // 64 bytes: the key, role or type that is being read
export const AT_PART_TYPE: usize = 384; // 64 bytes: the type of the content part that is being read
export const AT_KEYS: usize = 448; // pointer to the pool's keys
export const AT_FILL: usize = 452; // bytes in the stripe
export const AT_LIMIT: usize = 456; // bytes that make the stripe full
export const AT_BLOCK_LEFT: usize = 460; // bytes that the block still takes, the stripe's included
export const AT_BLOCK_DONE: usize = 464; // bytes of the block in stripes that are digested
export const AT_RUN_BYTES: usize = 468; // bytes of the run in stripes that are digested
export const AT_RUN_COUNT: usize = 472; // digests of the run
export const AT_RUN_HEADER: usize = 476; // the run's header on the tape
export const AT_RUN_KIND: usize = 480;
export const AT_LAST_DIGEST: usize = 488;
// The byte machine.
export const AT_STATE: usize = 496;
export const AT_SINK: usize = 500;
export const AT_REASON: usize = 504;
export const AT_DEPTH: usize = 508;
export const AT_STACK: usize = 512; // one bit a level: 1 object, 0 array; 64 bits
export const AT_IN_KEY: usize = 520;
export const AT_HIGH: usize = 524; // a high surrogate that waits for its other half
export const AT_HEX: usize = 528;
export const AT_HEX_LEFT: usize = 532;
export const AT_LITERAL: usize = 536;
export const AT_LITERAL_AT: usize = 540;
export const AT_NUMBER: usize = 544;
export const AT_NUMBER_VALUE: usize = 548;
// What the bytes mean.
export const AT_API: usize = 552;
export const AT_PLACE: usize = 556;
export const AT_KEY: usize = 560;
export const AT_SKIP_DEPTH: usize = 564;
export const AT_SKIP_PLACE: usize = 568;
export const AT_RAW_DEPTH: usize = 572;
export const AT_RAW_PLACE: usize = 576;
export const AT_PARTS_PLACE: usize = 580;
export const AT_SEEN_TOP: usize = 584;
export const AT_SEEN_MESSAGE: usize = 588;
export const AT_SEEN_PART: usize = 592;
export const AT_PART_MARKED: usize = 596;
export const AT_PART_TYPE_BYTES: usize = 600;
export const AT_CAPTURE_BYTES: usize = 604;
export const AT_MESSAGE: usize = 608; // the message's meta on the tape
export const AT_MESSAGE_RUNS: usize = 612;
export const AT_ROLE: usize = 616;
export const AT_ITEM_TYPE: usize = 624;
export const AT_FLAT_IDS: usize = 632;
// The result.
export const AT_PROMPT_BYTES: usize = 636;
export const AT_STREAM: usize = 640;
export const AT_SYSTEM: usize = 644; // the top-level system text's meta on the tape, or NOWHERE
export const AT_TOOLS_BYTES: usize = 648;
export const AT_MODEL_BYTES: usize = 652;
export const AT_TOOLS_DIGEST: usize = 656;
export const AT_MODEL_DIGEST: usize = 664;
export const AT_SALT_DIGEST: usize = 672;
// The tape and the slot.
export const AT_TAPE_FIRST: usize = 680;
export const AT_TAPE_LAST: usize = 684;
export const AT_TAPE_AT: usize = 688;
export const AT_TAPE_LEFT: usize = 692;
export const AT_TAPE_PAGES: usize = 696;
export const AT_TAPE_FULL: usize = 700;
export const AT_POOL: usize = 704;
export const AT_GENERATION: usize = 708;
export const AT_BLOCK_BYTES: usize = 712;
export const AT_OPEN: usize = 716;
export const AT_MODEL: usize = 720; // the model's name, up to MODEL_BYTES_MAX
// Media (text.ts).
export const AT_MEDIA_FROM: usize = 848; // where in the run the media string at hand begins, or NOWHERE
export const AT_MEDIA_PLAIN: usize = 852; // bytes at the beginning of a string that may be media, all without a space
export const AT_RUN_CUT: usize = 856; // bytes of the run's media strings, those that ended, that do not count
export const AT_RUN_COUNTED: usize = 860; // the run's first block with a `counted`, or RUN_UNCOUNTED
// Letters that were sampled, by language (language.ts).
export const AT_LETTERS: usize = 864; // four u32
const RECORD_BYTES: usize = 864 + 16;
const CLEARED_FROM: usize = AT_CAPTURE;

export const NOWHERE: u32 = 0xffffffff;
export const RUN_UNCOUNTED: u32 = 0x3fff;
export const META_CLOSED: u64 = 1;
export const META_SYSTEM: u64 = 2;

const PAGE_WORDS: u32 = 64;
const PAGE_SHIFT: u32 = 6;

let records: usize = 0;
let recordCount: u32 = 0;
// The free records and the free pages are lists through these tables.
let nextRecord: usize = 0;
let freeRecord: u32 = NOWHERE;
let pages: usize = 0;
let pageCount: u32 = 0;
let nextPage: usize = 0;
let freePage: u32 = NOWHERE;
let pagesFree: u32 = 0;

/** Reserves records and pages. The first call counts; later ones, of other plugins in the same VM, change nothing. */
export function recordsInit(streams: u32, digestPages: u32): void {
  if (recordCount != 0 || streams == 0) return;
  records = heap.alloc(RECORD_BYTES * <usize>streams);
  nextRecord = heap.alloc((<usize>streams) << 2);
  memory.fill(records, 0, RECORD_BYTES * <usize>streams);
  recordCount = streams;
  for (let i: u32 = 0; i < streams; i++) {
    store<u32>(nextRecord + ((<usize>i) << 2), i + 1 < streams ? i + 1 : NOWHERE);
  }
  freeRecord = 0;
  pageCount = digestPages;
  pages = heap.alloc(((<usize>digestPages) << PAGE_SHIFT) << 3);
  nextPage = heap.alloc((<usize>digestPages) << 2);
  for (let i: u32 = 0; i < digestPages; i++) {
    store<u32>(nextPage + ((<usize>i) << 2), i + 1 < digestPages ? i + 1 : NOWHERE);
  }
  freePage = digestPages > 0 ? 0 : NOWHERE;
  pagesFree = digestPages;
}

/** The record of an open slot, or 0. */
export function recordOf(slot: i32): usize {
  if (<u32>slot >= recordCount) return 0;
  const rec = records + RECORD_BYTES * <usize>slot;
  return load<u32>(rec, AT_OPEN) != 0 ? rec : 0;
}

/** Opens a record, all zero but for what is set here; returns its slot, or -1 when all are taken. */
export function recordOpen(pool: u32, api: u32, blockBytes: u32): i32 {
  if (freeRecord == NOWHERE || pool >= POOLS_MAX) return -1;
  const slot = freeRecord;
  freeRecord = load<u32>(nextRecord + ((<usize>slot) << 2));
  const rec = records + RECORD_BYTES * <usize>slot;
  memory.fill(rec + CLEARED_FROM, 0, AT_MODEL - CLEARED_FROM);
  memory.fill(rec + AT_LETTERS, 0, 16);
  store<u32>(rec, <u32>poolKeys(pool), AT_KEYS);
  store<u32>(rec, pool, AT_POOL);
  store<u32>(rec, api, AT_API);
  store<u32>(rec, secretGeneration(pool), AT_GENERATION);
  store<u32>(rec, blockBytes, AT_BLOCK_BYTES);
  store<u32>(rec, NOWHERE, AT_SYSTEM);
  store<u32>(rec, NOWHERE, AT_MESSAGE);
  store<u32>(rec, NOWHERE, AT_RUN_HEADER);
  store<u32>(rec, NOWHERE, AT_TAPE_FIRST);
  store<u32>(rec, 1, AT_OPEN);
  return slot;
}

export function recordClose(slot: i32): void {
  const rec = recordOf(slot);
  if (rec == 0) return;
  const first = load<u32>(rec, AT_TAPE_FIRST);
  if (first != NOWHERE) {
    store<u32>(nextPage + ((<usize>load<u32>(rec, AT_TAPE_LAST)) << 2), freePage);
    freePage = first;
    pagesFree += load<u32>(rec, AT_TAPE_PAGES);
  }
  store<u32>(rec, 0, AT_OPEN);
  store<u32>(nextRecord + ((<usize>slot) << 2), freeRecord);
  freeRecord = <u32>slot;
}

export function recordPagesFree(): u32 {
  return pagesFree;
}

/** Appends a word to the record's tape. Returns its place, or NOWHERE when the arena or the record's share of it is used up. */
export function tapePush(rec: usize, word: u64): u32 {
  let at = load<u32>(rec, AT_TAPE_AT);
  let left = load<u32>(rec, AT_TAPE_LEFT);
  if (left == 0) {
    const taken = load<u32>(rec, AT_TAPE_PAGES);
    if (freePage == NOWHERE || taken >= TAPE_PAGES_MAX || load<u32>(rec, AT_TAPE_FULL)) {
      store<u32>(rec, 1, AT_TAPE_FULL);
      return NOWHERE;
    }
    const page = freePage;
    freePage = load<u32>(nextPage + ((<usize>page) << 2));
    store<u32>(nextPage + ((<usize>page) << 2), NOWHERE);
    pagesFree--;
    if (taken == 0) store<u32>(rec, page, AT_TAPE_FIRST);
    else store<u32>(nextPage + ((<usize>load<u32>(rec, AT_TAPE_LAST)) << 2), page);
    store<u32>(rec, page, AT_TAPE_LAST);
    store<u32>(rec, taken + 1, AT_TAPE_PAGES);
    at = page << PAGE_SHIFT;
    left = PAGE_WORDS;
  }
  store<u64>(pages + ((<usize>at) << 3), word);
  store<u32>(rec, at + 1, AT_TAPE_AT);
  store<u32>(rec, left - 1, AT_TAPE_LEFT);
  return at;
}

/** The header of a run. */
export function runHeader(kind: u32, counted: u32, blocks: u32, bytes: u32): u64 {
  return (<u64>((kind & 15) | ((counted & 0x3fff) << 4) | (blocks << 18))) | ((<u64>bytes) << 32);
}

export function runKind(header: u64): u32 {
  return (<u32>header) & 15;
}

export function runCounted(header: u64): u32 {
  return ((<u32>header) >> 4) & 0x3fff;
}

export function runBlocks(header: u64): u32 {
  return (<u32>header) >> 18;
}

/** The words of a run behind its header. */
export function runWords(header: u64): u32 {
  const blocks = runBlocks(header);
  const counted = runCounted(header);
  return counted < blocks ? blocks + (blocks - counted) : blocks;
}

export function tapeWord(at: u32): u64 {
  return load<u64>(pages + ((<usize>at) << 3));
}

export function tapePatch(at: u32, word: u64): void {
  if (at != NOWHERE) store<u64>(pages + ((<usize>at) << 3), word);
}

/** The first place of a record's tape, or NOWHERE. */
export function tapeFirst(rec: usize): u32 {
  const page = load<u32>(rec, AT_TAPE_FIRST);
  return page == NOWHERE ? NOWHERE : page << PAGE_SHIFT;
}

/** The place `count` words on. The caller stays on the tape: it steps over words that were pushed. */
export function tapeSkip(at: u32, count: u32): u32 {
  let page = at >> PAGE_SHIFT;
  let offset = (at & (PAGE_WORDS - 1)) + count;
  while (offset >= PAGE_WORDS) {
    page = load<u32>(nextPage + ((<usize>page) << 2));
    if (page >= pageCount) return NOWHERE;
    offset -= PAGE_WORDS;
  }
  return (page << PAGE_SHIFT) + offset;
}

/** Where a walk over the tape ends: the next free place, or NOWHERE when the last page is full to its end, as `tapeSkip` says then. */
export function tapeEnd(rec: usize): u32 {
  return load<u32>(rec, AT_TAPE_LEFT) == 0 ? NOWHERE : load<u32>(rec, AT_TAPE_AT);
}

/** Keeps the beginning of the model's name. */
export function recordModel(rec: usize, ptr: usize, length: u32): void {
  const kept = length < MODEL_BYTES_MAX ? length : MODEL_BYTES_MAX;
  memory.copy(rec + AT_MODEL, ptr, kept);
  store<u32>(rec, kept, AT_MODEL_BYTES);
}
