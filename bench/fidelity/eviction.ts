// What is forgotten when a cache is full: prompts of many lengths, some sharing their beginning, sent one after the other and again, so that each
// number of cached tokens follows from the order of eviction alone.

import type { FittedEngine } from '../../sim/constants.ts';
import { Random } from '../../sim/random.ts';
import type { Eviction } from './compare.ts';
import { completeAlone, resetCaches } from './real.ts';
import { completeVirtual } from './virtual.ts';

const ID_MIN = 16;
const ID_MAX = 4000;

interface Prompt {
  tokens: number[];
  output: number;
}

function prompts(seed: number, engine: FittedEngine, count: number): Prompt[] {
  const { kvTokens, modelTokensMax } = engine.constants;
  const random = new Random(seed);
  const ids = (tokens: number): number[] => Array.from({ length: tokens }, () => random.whole(ID_MIN, ID_MAX));
  // Families of prompts that share a beginning; together a memory and a half.
  const most = Math.min(modelTokensMax - 64, Math.floor(kvTokens / 6));
  const families: number[][] = [];
  const leaves: number[][] = [];
  for (let tokens = 0; tokens < 1.5 * kvTokens;) {
    const stem = ids(random.whole(32, most / 2));
    families.push(stem);
    for (let i = 0; i < 3; i++) {
      const leaf = [...stem, ...ids(random.whole(16, most / 2))];
      leaves.push(leaf);
      tokens += leaf.length;
    }
  }
  return Array.from({ length: count }, (_, i) => ({
    tokens: i < leaves.length ? leaves[i]! : leaves[random.below(leaves.length)]!,
    output: random.whole(1, 40),
  }));
}

export async function evict(
  endpoint: string,
  model: string,
  engine: FittedEngine,
  count: number,
  seed: number,
): Promise<Eviction> {
  await resetCaches([endpoint]);
  const sent = prompts(seed, engine, count);
  const real: number[] = [];
  for (const { tokens, output } of sent) real.push(await completeAlone(endpoint, model, tokens, output));
  const virtual = completeVirtual(sent, engine);
  const total = sent.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const share = (cached: readonly number[]): number => cached.reduce((sum, tokens) => sum + tokens, 0) / total;
  return {
    prompts: count,
    equal: real.filter((tokens, i) => tokens === virtual[i]).length,
    realHits: share(real),
    virtualHits: share(virtual),
  };
}
