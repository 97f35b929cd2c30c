// When a prediction is as good as can be: the engine may hold our block at the match's end in part, and a ratio of bytes to tokens is never
// quite right.

import type { Told } from './gateway.ts';

const closeShare = 0.03;
/** The smallest block of the filter. */
const blockBytes = 256;

/** What the filter believed, in tokens by the prompt's own ratio. */
export function predictedTokens({ matchedBytes, promptBytes, usage }: Told): number {
  return promptBytes === 0 ? 0 : (matchedBytes * usage!.promptTokens) / promptBytes;
}

/** Whether the engine found what was predicted, up to 3 % and the block that the match ends at, where it is larger than the smallest. */
export function isClose(told: Told, edgeBytes = 0): boolean {
  const { promptTokens, cachedTokens } = told.usage!;
  const edgeTokens = (Math.max(edgeBytes, blockBytes) * promptTokens) / told.promptBytes;
  return Math.abs(predictedTokens(told) - cachedTokens) <= edgeTokens + closeShare * cachedTokens;
}
