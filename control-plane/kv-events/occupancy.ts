// How many blocks live in an engine's cache, and how many did when it had to evict: that is what it can hold. An engine may not tell it in its
// metrics, or may tell too much: where several groups of layers share the blocks, as with sliding windows, `num_gpu_blocks` times the block size is a
// multiple of the truth. Each copy of a hash is one reference: a stored block is one more, a removed one is one less, whatever it is called.

/** How much of an earlier, larger count is kept with each batch that evicts. */
const PEAK_KEPT = 0.999;

interface Group {
  blocks: number;
  blockTokens: number;
}

export class Occupancy {
  readonly #groups = new Map<number, Group>();
  #peakTokens = 0;

  /** Tokens that it held when it had to evict; 0 = it never had to. */
  get peakTokens(): number {
    return this.#peakTokens;
  }

  stored(group: number, blocks: number, blockTokens: number): void {
    const before = this.#groups.get(group)?.blocks ?? 0;
    this.#groups.set(group, { blocks: before + blocks, blockTokens });
  }

  /** Called before the first removal of a batch. */
  evicts(): void {
    this.#peakTokens = Math.max(this.#peakTokens * PEAK_KEPT, this.#tokens());
  }

  /** False when more went than had come. */
  removed(group: number, blocks: number): boolean {
    const before = this.#groups.get(group) ?? { blocks: 0, blockTokens: 0 };
    this.#groups.set(group, { ...before, blocks: Math.max(0, before.blocks - blocks) });
    return before.blocks >= blocks;
  }

  cleared(): void {
    this.#groups.clear();
  }

  /** Each group of layers keeps the tokens that it needs; a prefix is as long as the one that keeps most. */
  #tokens(): number {
    let tokens = 0;
    for (const { blocks, blockTokens } of this.#groups.values()) tokens = Math.max(tokens, blocks * blockTokens);
    return tokens;
  }
}
