// One replica of a vLLM-like engine, without a clock: continuous batching, chunked prefill under a token budget, a first-come queue, a prefix
// cache and preemption by recomputing. Whoever owns the clock calls begin() to plan a step, waits as long as it says, and calls end().
// The same class runs under a virtual clock for replay and in real time behind HTTP, so both tell the same story.

import { BlockCache } from './cache.ts';
import type { EngineConstants } from './constants.ts';
import { BLOCK_TOKENS_DEFAULT, nextState, wordOf } from './tokens.ts';

export type FinishReason = 'stop' | 'length' | 'abort';

const STATE_NEW = 0;
const STATE_WAITING = 1;
const STATE_RUNNING = 2;
const STATE_DONE = 3;

/** What the engine needs of a prompt, and of the answer that is added to it word by word: how many tokens, and one key per full block. */
export interface PromptBlocks {
  readonly blockTokens: number;
  readonly tokens: number;
  readonly keys: readonly number[];
  /** A number that depends on everything so far; the sampler's seed. */
  readonly state: number;
  text(word: string): void;
}

export interface SequenceEvents {
  /** One more token of the answer. The first one ends the prefill. */
  token(sequence: Sequence, word: string, nowMs: number): void;
  finished(sequence: Sequence, nowMs: number): void;
}

/** A request inside the engine. Its hasher holds the prompt and goes on over the answer, so that a later turn finds the answer cached too. */
export class Sequence {
  readonly hasher: PromptBlocks;
  readonly promptTokens: number;
  readonly outputTokensMax: number;
  readonly finishReason: FinishReason;
  readonly events: SequenceEvents;
  outputTokens = 0;
  /** Tokens whose KV is in memory or comes with the step under way. */
  computedTokens = 0;
  /** Prompt tokens found in the cache when the sequence first ran; -1 before that. */
  cachedTokens = -1;
  readonly blocks: number[] = [];
  /** How many of the blocks are already known to the prefix cache. */
  committedBlocks = 0;
  state = STATE_NEW;
  aborted = false;
  preemptions = 0;
  arrivedMs = 0;
  scheduledMs = -1;
  firstTokenMs = -1;
  lastTokenMs = -1;
  sampler: number;

  constructor(
    hasher: PromptBlocks,
    outputTokensMax: number,
    events: SequenceEvents,
    finishReason: FinishReason = 'length',
  ) {
    if (hasher.tokens < 1) throw new Error('sequence: the prompt is empty');
    this.hasher = hasher;
    this.promptTokens = hasher.tokens;
    this.outputTokensMax = Math.max(1, outputTokensMax);
    this.finishReason = finishReason;
    this.events = events;
    this.sampler = nextState(hasher.state);
  }

  get tokens(): number {
    return this.promptTokens + this.outputTokens;
  }
}

/** What the engine has counted since it started. */
export interface EngineCounters {
  steps: number;
  stepTokens: number;
  stepSeconds: number;
  promptTokens: number;
  outputTokens: number;
  /** First tokens, and the time that all of them took, added up. */
  firstTokens: number;
  ttftMsSum: number;
  prefixQueriesTokens: number;
  prefixHitsTokens: number;
  preemptions: number;
  finished: number;
  aborted: number;
}

export class ReplicaEngine {
  readonly constants: EngineConstants;
  readonly blockTokens: number;
  readonly cache: BlockCache;
  readonly counters: EngineCounters = {
    steps: 0,
    stepTokens: 0,
    stepSeconds: 0,
    promptTokens: 0,
    outputTokens: 0,
    firstTokens: 0,
    ttftMsSum: 0,
    prefixQueriesTokens: 0,
    prefixHitsTokens: 0,
    preemptions: 0,
    finished: 0,
    aborted: 0,
  };
  /** Told how many tokens each step computes, when it begins. */
  onStep: ((tokens: number) => void) | null = null;
  #running: Sequence[] = [];
  #waiting: Sequence[] = [];
  #stepSequences: Sequence[] = [];
  #inStep = false;

  constructor(constants: EngineConstants, blockTokens = BLOCK_TOKENS_DEFAULT) {
    this.constants = constants;
    this.blockTokens = blockTokens;
    this.cache = new BlockCache(Math.floor(constants.kvTokens / blockTokens));
  }

  get running(): number {
    return this.#running.length;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  get inStep(): boolean {
    return this.#inStep;
  }

  /** The tokens of the longest sequence that can ever run. */
  get sequenceTokensMax(): number {
    return Math.min(this.constants.modelTokensMax, this.cache.blocks * this.blockTokens);
  }

  add(sequence: Sequence, nowMs: number): void {
    if (sequence.state !== STATE_NEW) throw new Error('engine: a sequence was added twice');
    if (sequence.promptTokens + sequence.outputTokensMax > this.sequenceTokensMax) {
      throw new Error(`engine: a sequence of ${sequence.promptTokens} + ${sequence.outputTokensMax} tokens cannot fit`);
    }
    sequence.state = STATE_WAITING;
    sequence.arrivedMs = nowMs;
    this.#waiting.push(sequence);
  }

  /** Ends a sequence whose client is gone. Its blocks come back at once, or with the step under way. */
  abort(sequence: Sequence): void {
    if (sequence.state === STATE_DONE || sequence.aborted) return;
    sequence.aborted = true;
    this.counters.aborted += 1;
    if (sequence.state === STATE_WAITING) {
      const at = this.#waiting.indexOf(sequence);
      if (at >= 0) this.#waiting.splice(at, 1);
      sequence.state = STATE_DONE;
    } else if (sequence.state === STATE_RUNNING && !this.#inStep) {
      this.#leave(sequence);
    }
  }

  /** Plans the next step and says how many seconds it takes; 0 means that there is nothing to do. */
  begin(nowMs: number): number {
    if (this.#inStep) throw new Error('engine: a step was begun inside a step');
    const { constants, blockTokens, cache } = this;
    const sequences = this.#stepSequences;
    sequences.length = 0;
    let budgetTokens = constants.budgetTokens;
    let attention = 0;
    let contextTokens = 0;
    let preempted = false;

    // Those that run go first, in the order they came.
    for (let i = 0; i < this.#running.length && budgetTokens > 0; i++) {
      const sequence = this.#running[i]!;
      const tokens = Math.min(sequence.tokens - sequence.computedTokens, budgetTokens);
      let fits = this.#grow(sequence, sequence.computedTokens + tokens);
      while (!fits) {
        // Memory is out: the youngest, which is never planned before this one, gives up everything and starts over later.
        const victim = this.#running.pop()!;
        this.#preempt(victim);
        preempted = true;
        if (victim === sequence) break;
        fits = this.#grow(sequence, sequence.computedTokens + tokens);
      }
      if (!fits) break;
      budgetTokens -= tokens;
      if (sequence.outputTokens > 0 && tokens === 1) contextTokens += sequence.computedTokens + 1;
      else attention += tokens * (sequence.computedTokens + tokens);
      this.#plan(sequence, tokens);
    }

    // Then the queue, as far as budget, slots and memory go.
    let admitted = 0;
    while (
      !preempted &&
      admitted < this.#waiting.length &&
      budgetTokens > 0 &&
      this.#running.length < constants.sequencesMax
    ) {
      const sequence = this.#waiting[admitted]!;
      // The last token is always computed: there is no first output without it.
      const matched = cache.match(sequence.hasher.keys, Math.floor((sequence.tokens - 1) / blockTokens));
      const hitTokens = matched.hits * blockTokens;
      const tokens = Math.min(sequence.tokens - hitTokens, budgetTokens);
      const blocksNew = Math.ceil((hitTokens + tokens) / blockTokens) - matched.hits;
      if (blocksNew + matched.idle > cache.freeBlocks) break;
      for (let i = 0; i < matched.hits; i++) sequence.blocks.push(cache.share(sequence.hasher.keys[i]!));
      sequence.committedBlocks = matched.hits;
      sequence.computedTokens = hitTokens;
      if (sequence.cachedTokens < 0) {
        sequence.cachedTokens = hitTokens;
        sequence.scheduledMs = nowMs;
        this.counters.prefixQueriesTokens += sequence.promptTokens;
        this.counters.prefixHitsTokens += hitTokens;
      }
      this.#grow(sequence, hitTokens + tokens);
      sequence.state = STATE_RUNNING;
      this.#running.push(sequence);
      admitted += 1;
      budgetTokens -= tokens;
      attention += tokens * (hitTokens + tokens);
      this.#plan(sequence, tokens);
    }
    if (admitted > 0) this.#waiting.splice(0, admitted);
    if (sequences.length === 0) return 0;

    const tokensTotal = constants.budgetTokens - budgetTokens;
    const seconds =
      constants.overheadSeconds +
      Math.max(constants.weightsSeconds, constants.perTokenSeconds * tokensTotal) +
      constants.perAttentionSeconds * attention +
      constants.perContextSeconds * contextTokens;
    this.counters.steps += 1;
    this.counters.stepTokens += tokensTotal;
    this.counters.stepSeconds += seconds;
    this.onStep?.(tokensTotal);
    this.#inStep = true;
    return seconds;
  }

  /** Ends the step: every sequence whose tokens are all computed gets one more. */
  end(nowMs: number): void {
    if (!this.#inStep) throw new Error('engine: a step was ended outside a step');
    this.#inStep = false;
    const sequences = this.#stepSequences;
    for (let i = 0; i < sequences.length; i++) {
      const sequence = sequences[i]!;
      if (sequence.aborted) {
        this.#leave(sequence);
        continue;
      }
      if (sequence.state !== STATE_RUNNING || sequence.computedTokens < sequence.tokens) continue;
      const word = wordOf(sequence.sampler >>> 9);
      sequence.sampler = nextState(sequence.sampler);
      sequence.hasher.text(word);
      sequence.outputTokens += 1;
      this.counters.outputTokens += 1;
      if (sequence.firstTokenMs < 0) {
        sequence.firstTokenMs = nowMs;
        this.counters.promptTokens += sequence.promptTokens;
        this.counters.firstTokens += 1;
        this.counters.ttftMsSum += nowMs - sequence.arrivedMs;
      }
      const finished = sequence.outputTokens >= sequence.outputTokensMax;
      if (finished) {
        this.#leave(sequence);
        this.counters.finished += 1;
      }
      sequence.events.token(sequence, word, nowMs);
      sequence.lastTokenMs = nowMs;
      if (finished) sequence.events.finished(sequence, nowMs);
    }
    sequences.length = 0;
  }

  #plan(sequence: Sequence, tokens: number): void {
    sequence.computedTokens += tokens;
    this.#stepSequences.push(sequence);
    // A block that this step fills can be hit from now on: whoever is scheduled later reads it after it is written.
    const full = Math.min(Math.floor(sequence.computedTokens / this.blockTokens), sequence.hasher.keys.length);
    for (let i = sequence.committedBlocks; i < full; i++)
      this.cache.commit(sequence.blocks[i]!, sequence.hasher.keys[i]!);
    if (full > sequence.committedBlocks) sequence.committedBlocks = full;
  }

  #grow(sequence: Sequence, tokens: number): boolean {
    const blocks = Math.ceil(tokens / this.blockTokens) - sequence.blocks.length;
    if (blocks > this.cache.freeBlocks) return false;
    for (let i = 0; i < blocks; i++) sequence.blocks.push(this.cache.take());
    return true;
  }

  #release(sequence: Sequence): void {
    this.cache.release(sequence.blocks);
    sequence.blocks.length = 0;
    sequence.committedBlocks = 0;
    sequence.computedTokens = 0;
  }

  #preempt(sequence: Sequence): void {
    this.#release(sequence);
    sequence.state = STATE_WAITING;
    sequence.preemptions += 1;
    this.counters.preemptions += 1;
    this.#waiting.unshift(sequence);
  }

  #leave(sequence: Sequence): void {
    if (sequence.state !== STATE_RUNNING) return;
    sequence.state = STATE_DONE;
    const at = this.#running.indexOf(sequence);
    if (at >= 0) this.#running.splice(at, 1);
    this.#release(sequence);
  }
}
