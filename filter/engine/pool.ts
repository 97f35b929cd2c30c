// What a pool is set to and has learned: its policy, and the averages that turn bytes into tokens and requests into room.
import { BYTES_PER_TOKEN_DEFAULT, BYTES_PER_TOKEN_MAX, BYTES_PER_TOKEN_MIN, POOLS_MAX } from './limits';

export const POLICY_PREFILL_COST: u32 = 0;
export const POLICY_LEAST_REQUEST: u32 = 1;
export const POLICY_ROUND_ROBIN: u32 = 2;
export const POLICY_FIRST_BLOCK_HASH: u32 = 3;
/** For replays and tests only. */
export const POLICY_PREFILL_COST_FIRST: u32 = 4;
export const POLICY_WEIGHTED: u32 = 5;
export const POLICY_SESSION: u32 = 6;
export const POLICY_PREFIX_HEADER: u32 = 7;

const EWMA: f64 = 0.02;
// The default ratio counts like a first prompt of this many tokens.
const PRIOR_TOKENS: f64 = 256;

// What the policy weighted weighs with until it is told.
const WEIGHT_PREFIX: f64 = 3;
const WEIGHT_QUEUE: f64 = 3;
const WEIGHT_KV: f64 = 2;

const policies = new StaticArray<u32>(POOLS_MAX);
const prefixWeights = new StaticArray<f64>(POOLS_MAX);
const queueWeights = new StaticArray<f64>(POOLS_MAX);
const kvWeights = new StaticArray<f64>(POOLS_MAX);
const promptBytesSum = new StaticArray<f64>(POOLS_MAX);
const promptTokensSum = new StaticArray<f64>(POOLS_MAX);
const ratios = new StaticArray<f64>(POOLS_MAX);
const outputs = new StaticArray<f64>(POOLS_MAX);
const outputCounts = new StaticArray<f64>(POOLS_MAX);
const uncacheds = new StaticArray<f64>(POOLS_MAX);
const uncachedCounts = new StaticArray<f64>(POOLS_MAX);

/** Forgets everything about all pools. */
export function poolsInit(): void {
  for (let pool: u32 = 0; pool < POOLS_MAX; pool++) {
    policies[pool] = POLICY_PREFILL_COST;
    poolWeightsSet(pool, WEIGHT_PREFIX, WEIGHT_QUEUE, WEIGHT_KV);
    outputs[pool] = 0;
    outputCounts[pool] = 0;
    uncacheds[pool] = 0;
    uncachedCounts[pool] = 0;
    seedRatio(pool, BYTES_PER_TOKEN_DEFAULT);
  }
}

function seedRatio(pool: u32, ratio: f64): void {
  ratios[pool] = ratio;
  promptBytesSum[pool] = ratio * PRIOR_TOKENS;
  promptTokensSum[pool] = PRIOR_TOKENS;
}

/** Sets the policy that a pool asks for; an unknown one is the default. */
export function poolPolicySet(pool: u32, policy: u32): void {
  const isLive = policy <= POLICY_PREFIX_HEADER && policy != POLICY_PREFILL_COST_FIRST;
  if (pool < POOLS_MAX) policies[pool] = isLive ? policy : POLICY_PREFILL_COST;
}
export function poolPolicy(pool: u32): u32 {
  return pool < POOLS_MAX ? policies[pool] : POLICY_PREFILL_COST;
}

/** Whether a policy goes by a key that the client sent. */
export function policyHasKey(policy: u32): bool {
  return policy == POLICY_SESSION || policy == POLICY_PREFIX_HEADER;
}

/** What the policy weighted gives for a held prompt, a short queue and free memory. When all are 0, all pods are alike. */
export function poolWeightsSet(pool: u32, prefix: f64, queue: f64, kv: f64): void {
  if (pool >= POOLS_MAX) return;
  prefixWeights[pool] = max(prefix, <f64>0);
  queueWeights[pool] = max(queue, <f64>0);
  kvWeights[pool] = max(kv, <f64>0);
}
export function poolWeightPrefix(pool: u32): f64 {
  return pool < POOLS_MAX ? prefixWeights[pool] : 0;
}
export function poolWeightQueue(pool: u32): f64 {
  return pool < POOLS_MAX ? queueWeights[pool] : 0;
}
export function poolWeightKv(pool: u32): f64 {
  return pool < POOLS_MAX ? kvWeights[pool] : 0;
}

/** Takes a ratio that another member has learned. */
export function poolBytesPerTokenSet(pool: u32, ratio: f64): void {
  if (pool >= POOLS_MAX || !(ratio > 0)) return;
  seedRatio(pool, min(max(ratio, BYTES_PER_TOKEN_MIN), BYTES_PER_TOKEN_MAX));
}
export function poolBytesPerToken(pool: u32): f64 {
  return pool < POOLS_MAX ? ratios[pool] : BYTES_PER_TOKEN_DEFAULT;
}
/**
 * Learns from usage.prompt_tokens of a prompt whose text was read. Long prompts tell more than short ones. A ratio that no text has is one of
 * media, whose bytes or address say nothing of text, and a single picture would outweigh a hundred prompts.
 */
export function poolObservePrompt(pool: u32, promptBytes: u32, promptTokens: u32): void {
  if (pool >= POOLS_MAX || promptBytes == 0 || promptTokens == 0) return;
  const ratio = <f64>promptBytes / <f64>promptTokens;
  if (ratio < BYTES_PER_TOKEN_MIN || ratio > BYTES_PER_TOKEN_MAX) return;
  const bytes = promptBytesSum[pool] * (1 - EWMA) + <f64>promptBytes;
  const tokens = promptTokensSum[pool] * (1 - EWMA) + <f64>promptTokens;
  promptBytesSum[pool] = bytes;
  promptTokensSum[pool] = tokens;
  ratios[pool] = min(max(bytes / tokens, BYTES_PER_TOKEN_MIN), BYTES_PER_TOKEN_MAX);
}
/** Tokens of so many bytes of text, rounded up. */
export function poolTokens(pool: u32, bytes: u32): u32 {
  return <u32>Math.ceil(<f64>bytes / poolBytesPerToken(pool));
}

/** Averages begin as plain means, and forget old values once there are 50. */
function rate(count: f64): f64 {
  return max(EWMA, 1 / count);
}
/** Learns from the number of tokens of an answer. */
export function poolObserveOutput(pool: u32, tokens: u32): void {
  if (pool >= POOLS_MAX) return;
  outputCounts[pool] = outputCounts[pool] + 1;
  outputs[pool] = outputs[pool] + (<f64>tokens - outputs[pool]) * rate(outputCounts[pool]);
}
export function poolOutputTokens(pool: u32): f64 {
  return pool < POOLS_MAX ? outputs[pool] : 0;
}
/** Learns how many tokens of a prompt were not cached, on dispatch. */
export function poolObserveUncached(pool: u32, tokens: u32): void {
  if (pool >= POOLS_MAX) return;
  uncachedCounts[pool] = uncachedCounts[pool] + 1;
  uncacheds[pool] = uncacheds[pool] + (<f64>tokens - uncacheds[pool]) * rate(uncachedCounts[pool]);
}
export function poolUncachedTokens(pool: u32): f64 {
  return pool < POOLS_MAX ? uncacheds[pool] : 0;
}
