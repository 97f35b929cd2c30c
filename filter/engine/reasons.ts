// Why a request has no keys, or fewer than its prompt could have. One table of codes and names for the whole filter: the codes stand in
// the tables of streams, the names are metric labels and what `warmpath keys` prints. A code never changes its meaning.

export const REASON_NONE: u32 = 0;
// The body (scan.ts).
export const REASON_NOT_JSON: u32 = 1;
export const REASON_TRUNCATED: u32 = 2;
export const REASON_TOO_DEEP: u32 = 3;
export const REASON_DUPLICATE_KEY: u32 = 4;
export const REASON_NO_PROMPT: u32 = 5;
// The chain (chain.ts): the first two still leave the keys of the prompt's beginning.
export const REASON_ARENA_FULL: u32 = 6;
export const REASON_KEYS_FULL: u32 = 7;
export const REASON_TOO_SHORT: u32 = 8;
export const REASON_NO_SECRET: u32 = 9;
// The stream, before its body is looked at (filter/stream.ts).
export const REASON_STREAMS_FULL: u32 = 10;
export const REASON_ENCODING: u32 = 11;
export const REASON_PATH: u32 = 12;
export const REASON_METHOD: u32 = 13;
export const REASON_NO_BODY: u32 = 14;
export const REASON_CLUSTER: u32 = 15;
export const REASONS: u32 = 16;

/** The name of a reason, as a metric label. Literals only: nothing is allocated. */
export function reasonName(code: u32): string {
  switch (code) {
    case REASON_NONE:
      return 'none';
    case REASON_NOT_JSON:
      return 'not-json';
    case REASON_TRUNCATED:
      return 'truncated';
    case REASON_TOO_DEEP:
      return 'too-deep';
    case REASON_DUPLICATE_KEY:
      return 'duplicate-key';
    case REASON_NO_PROMPT:
      return 'no-prompt';
    case REASON_ARENA_FULL:
      return 'arena-full';
    case REASON_KEYS_FULL:
      return 'keys-full';
    case REASON_TOO_SHORT:
      return 'too-short';
    case REASON_NO_SECRET:
      return 'no-secret';
    case REASON_STREAMS_FULL:
      return 'streams-full';
    case REASON_ENCODING:
      return 'encoding';
    case REASON_PATH:
      return 'path';
    case REASON_METHOD:
      return 'method';
    case REASON_NO_BODY:
      return 'no-body';
    case REASON_CLUSTER:
      return 'cluster';
    default:
      return 'other';
  }
}
