// What usage says of a match: whether the engine held as much of a prompt as the table said. Nothing is exact here, since blocks of bytes are held
// against an engine's blocks of tokens: the block at the match's end may be held in part, and a ratio of bytes to tokens is never quite right.

/** What a prediction may be off by, as a share of it, beside the block at its end. */
const CLOSE_SHARE: f64 = 0.03;

// Too little was predicted to tell from chance.
export const MATCH_NONE: u32 = 0;
export const MATCH_CONFIRMED: u32 = 1;
// Less is held than was predicted: the table keeps too much, or the engine was told to forget.
export const MATCH_CONTRADICTED: u32 = 2;
// More is held than was predicted.
export const MATCH_EXCEEDED: u32 = 3;

/** Whether a prediction was as good as can be; all in tokens, `block` is the one at the match's end. */
export function matchIsClose(predicted: f64, actual: f64, block: f64): bool {
  return Math.abs(predicted - actual) <= block + CLOSE_SHARE * predicted;
}

export function matchJudge(predicted: f64, actual: f64, block: f64): u32 {
  if (!matchIsClose(predicted, actual, block)) return predicted > actual ? MATCH_CONTRADICTED : MATCH_EXCEEDED;
  return predicted > block ? MATCH_CONFIRMED : MATCH_NONE;
}
