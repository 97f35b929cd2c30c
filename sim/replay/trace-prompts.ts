// The prompts of a trace without their text: keys made straight from the ids of its 512-token blocks, for the replica and for the router.
//
// Two prompts share a key exactly when the text that trace.ts would make from the same ids is equal up to that block's end, and token
// counts are those of that text. Bytes are tokens times the mean length of a word, so a router's blocks end where they
// would on average. What is left out is the cut of a block in the middle of a word.

import type { PromptBlocks } from '../engine.ts';
import { BLOCK_TOKENS_DEFAULT } from '../tokens.ts';
import { TRACE_BLOCK_TOKENS, type TraceLine } from '../trace.ts';
import { templateTokens } from '../workload.ts';
import type { ReplayPrompt } from './source.ts';

/** What the words of sim/tokens.ts come to. */
export const TRACE_BYTES_PER_TOKEN = 4.985;
/** The template's tokens before the content: start mark, role, line end. */
const HEAD_TOKENS = 3;
// The sizes of the gateway's blocks, as filter/engine/text.ts has them: 256 bytes, then a sixteenth of the position.
const GATEWAY_BLOCK_BYTES = 256;
const KEYS_MAX = 8192;

function mix(value: number): number {
  let x = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** A chain over ids: its state depends on all that was added. Two lanes, so that equal states mean equal chains. */
class Chain {
  a = 0x811c9dc5;
  b = 0x2545f491;

  add(id: number): void {
    this.a = mix(Math.imul(this.a, 0x01000193) ^ id);
    this.b = mix((Math.imul(this.b, 0x2c1b3c6d) + id) | 0);
  }
}

/** The replica's blocks: one key for each 16 tokens, from the chain of ids that they reach into. */
class TraceBlocks implements PromptBlocks {
  readonly blockTokens = BLOCK_TOKENS_DEFAULT;
  readonly keys: number[] = [];
  readonly #chain = new Chain();
  tokens = 0;

  constructor(idAt: (contentToken: number) => number, contentTokens: number, tailTokens: number) {
    const total = HEAD_TOKENS + contentTokens + tailTokens;
    const full = Math.floor(total / this.blockTokens);
    for (let block = 0; block < full; block++) {
      const last = (block + 1) * this.blockTokens - 1 - HEAD_TOKENS;
      // Where the template's tail begins, a prompt is no longer the beginning of a longer one.
      this.#push(last < contentTokens ? idAt(last) : -2 - contentTokens);
    }
    this.tokens = total;
  }

  get state(): number {
    return (this.#chain.a ^ this.tokens) >>> 0;
  }

  /** One more token of the answer. A trace does not say which later prompt it went into, so its blocks are found by none. */
  text(): void {
    this.tokens += 1;
    if (this.tokens % this.blockTokens === 0) this.#push(-1 - this.tokens);
  }

  #push(id: number): void {
    this.#chain.add(id);
    this.keys.push(this.#chain.a * 0x200000 + (this.#chain.b >>> 11));
  }
}

/** The gateway's block keys of a prompt of so many bytes; a short last block has none, as nothing follows it. */
function gatewayKeys(idAt: (contentToken: number) => number, bytes: number): [BigUint64Array, Uint32Array] {
  const lanes: number[] = [];
  const weights: number[] = [];
  const chain = new Chain();
  let at = 0;
  let token = 0;
  while (weights.length < KEYS_MAX) {
    const size = Math.max(GATEWAY_BLOCK_BYTES, (at >> 4) & ~255);
    if (at + size > bytes) break;
    at += size;
    const end = Math.ceil(at / TRACE_BYTES_PER_TOKEN);
    for (; token < end; token += TRACE_BLOCK_TOKENS) chain.add(idAt(token));
    chain.add(idAt(end - 1) ^ at);
    lanes.push(chain.b, chain.a);
    weights.push(size);
  }
  const keys = new BigUint64Array(Uint32Array.from(lanes).buffer);
  return [keys, Uint32Array.from(weights)];
}

export function tracePrompt(line: TraceLine): ReplayPrompt {
  const contentTokens = Math.max(1, line.input_length - templateTokens(1));
  const ids = line.hash_ids;
  // Where a line has fewer ids than its length needs, the rest belongs to nobody else.
  const own = mix(mix(line.timestamp | 0) ^ line.input_length) | 0x4000_0000;
  const idAt = (token: number): number => ids[Math.floor(token / TRACE_BLOCK_TOKENS)] ?? own;
  const bytes = Math.round(contentTokens * TRACE_BYTES_PER_TOKEN);
  const [keys, weights] = gatewayKeys(idAt, bytes);
  const tailTokens = templateTokens(1) - HEAD_TOKENS;
  return { blocks: new TraceBlocks(idAt, contentTokens, tailTokens), keys, weights, bytes };
}
