// The replica's KV memory: a fixed number of blocks, reference counted, with the free ones in a least recently used list. A free block keeps its
// content until it is needed for something else, and that content is the prefix cache. The order of events follows vLLM: a finished
// sequence gives its last block back first, so the tail of a prompt is forgotten before its head; a block that was never full is reused before
// all others; and content that was computed twice is held twice, so it is forgotten only with its last block.

const keyDouble = new Float64Array(1);
const keyWords = new Uint32Array(keyDouble.buffer);

export class BlockCache {
  readonly blocks: number;
  evictions = 0;
  /** Hears of every block that becomes known, copies included, and of every one that is evicted. */
  watch: { stored(): void; removed(): void } | null = null;
  #free: number;
  readonly #references: Int32Array;
  readonly #previous: Int32Array;
  readonly #next: Int32Array;
  readonly #keys: Float64Array;
  // Blocks of equal content, in the order in which they were filled: rings, each through its own blocks.
  readonly #twinNext: Int32Array;
  readonly #twinPrevious: Int32Array;
  // Which block holds a key, the first of its ring: open addressing, one more than the block's number in each slot, 0 for none.
  readonly #slots: Int32Array;
  readonly #mask: number;
  #cached = 0;

  constructor(blocks: number) {
    if (!Number.isInteger(blocks) || blocks < 1)
      throw new Error(`cache: blocks is ${blocks}, expected a positive whole number`);
    this.blocks = blocks;
    this.#free = blocks;
    this.#references = new Int32Array(blocks);
    this.#keys = new Float64Array(blocks).fill(-1);
    this.#twinNext = new Int32Array(blocks);
    this.#twinPrevious = new Int32Array(blocks);
    const slots = 2 ** Math.ceil(Math.log2(2 * blocks + 1));
    this.#slots = new Int32Array(slots);
    this.#mask = slots - 1;
    // The free list is a ring through one extra slot: next of it is the block to reuse first, previous the one freed last.
    this.#previous = new Int32Array(blocks + 1);
    this.#next = new Int32Array(blocks + 1);
    for (let i = 0; i <= blocks; i++) {
      this.#next[i] = i === blocks ? 0 : i + 1;
      this.#previous[i] = i === 0 ? blocks : i - 1;
    }
  }

  /** Blocks that no sequence holds, cached content or not. */
  get freeBlocks(): number {
    return this.#free;
  }

  get usedShare(): number {
    return 1 - this.#free / this.blocks;
  }

  /** Different contents that are held. */
  get cachedBlocks(): number {
    return this.#cached;
  }

  /** How many of the first `limit` keys are held without a gap, and how many of these no sequence holds now. */
  match(keys: readonly number[], limit: number): { hits: number; idle: number } {
    let hits = 0;
    let idle = 0;
    while (hits < limit) {
      const block = this.#slots[this.#slotOf(keys[hits]!)]! - 1;
      if (block < 0) break;
      if (this.#references[block] === 0) idle += 1;
      hits += 1;
    }
    return { hits, idle };
  }

  holds(key: number): boolean {
    return this.#slots[this.#slotOf(key)] !== 0;
  }

  /** Takes a held block for one more sequence. The key must have matched. */
  share(key: number): number {
    const block = this.#slots[this.#slotOf(key)]! - 1;
    if (block < 0) throw new Error('cache: a key that is not held was shared');
    if (this.#references[block] === 0) this.#unlink(block);
    this.#references[block] = this.#references[block]! + 1;
    return block;
  }

  /** Takes the free block that was unused for longest; what it held is forgotten. There must be a free one. */
  take(): number {
    if (this.#free === 0) throw new Error('cache: a block was taken while none is free');
    const block = this.#next[this.blocks]!;
    this.#unlink(block);
    this.#references[block] = 1;
    const key = this.#keys[block]!;
    if (key >= 0) {
      this.#lose(block, key);
      this.evictions += 1;
      this.watch?.removed();
    }
    return block;
  }

  /** Makes a full block's content known under its key. Of several blocks of equal content the first one is shared. */
  commit(block: number, key: number): void {
    if (this.#keys[block]! >= 0) return;
    this.#keys[block] = key;
    this.watch?.stored();
    const slot = this.#slotOf(key);
    const first = this.#slots[slot]! - 1;
    if (first < 0) {
      this.#slots[slot] = block + 1;
      this.#twinNext[block] = block;
      this.#twinPrevious[block] = block;
      this.#cached += 1;
      return;
    }
    const last = this.#twinPrevious[first]!;
    this.#twinNext[last] = block;
    this.#twinPrevious[block] = last;
    this.#twinNext[block] = first;
    this.#twinPrevious[first] = block;
  }

  /** Gives a sequence's blocks back, the last one first; those that hold nothing known are the next to be taken. */
  release(blocks: readonly number[]): void {
    let front = this.blocks;
    for (let i = blocks.length - 1; i >= 0; i--) {
      const block = blocks[i]!;
      const left = this.#references[block]! - 1;
      this.#references[block] = left;
      if (left > 0) continue;
      if (this.#keys[block]! >= 0) {
        this.#link(this.#previous[this.blocks]!, block);
      } else {
        this.#link(front, block);
        front = block;
      }
    }
  }

  /** Forgets all cached content, as a restart or a reset does. Blocks in use stay in use. */
  clear(): void {
    this.#slots.fill(0);
    this.#cached = 0;
    this.#keys.fill(-1);
  }

  #home(key: number): number {
    keyDouble[0] = key;
    let hash = Math.imul(keyWords[0]! ^ Math.imul(keyWords[1]!, 0x9e3779b1), 0x85ebca6b);
    hash ^= hash >>> 15;
    return hash & this.#mask;
  }

  /** The slot that holds a key, or the empty one where it would stand: there are more slots than blocks. */
  #slotOf(key: number): number {
    let slot = this.#home(key);
    for (;;) {
      const block = this.#slots[slot]! - 1;
      if (block < 0 || this.#keys[block] === key) return slot;
      slot = (slot + 1) & this.#mask;
    }
  }

  /** Takes a key out, and moves those after it up, so that none stands behind an empty slot. */
  #forget(key: number): void {
    let empty = this.#slotOf(key);
    this.#cached -= 1;
    for (let slot = (empty + 1) & this.#mask; this.#slots[slot] !== 0; slot = (slot + 1) & this.#mask) {
      const home = this.#home(this.#keys[this.#slots[slot]! - 1]!);
      if (((slot - home) & this.#mask) < ((slot - empty) & this.#mask)) continue;
      this.#slots[empty] = this.#slots[slot]!;
      empty = slot;
    }
    this.#slots[empty] = 0;
  }

  /** A block no longer holds its key, which stays known while another block holds it. */
  #lose(block: number, key: number): void {
    const next = this.#twinNext[block]!;
    if (next === block) {
      this.#forget(key);
    } else {
      const previous = this.#twinPrevious[block]!;
      this.#twinNext[previous] = next;
      this.#twinPrevious[next] = previous;
      const slot = this.#slotOf(key);
      if (this.#slots[slot] === block + 1) this.#slots[slot] = next + 1;
    }
    this.#keys[block] = -1;
  }

  /** Puts a block into the free list, behind another. */
  #link(before: number, block: number): void {
    const after = this.#next[before]!;
    this.#next[before] = block;
    this.#previous[block] = before;
    this.#next[block] = after;
    this.#previous[after] = block;
    this.#free += 1;
  }

  #unlink(block: number): void {
    const before = this.#previous[block]!;
    const after = this.#next[block]!;
    this.#next[before] = after;
    this.#previous[after] = before;
    this.#free -= 1;
  }
}
