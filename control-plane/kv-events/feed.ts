// What one publisher's messages say about its engine's cache: that it was dropped, and how much it held when it had to evict. Messages come
// numbered; what is missing is asked for again, and what cannot be had again makes the count a lower bound.
import { LIMITS } from '../limits.ts';
import { readBatch, readFrames, RefusedMessage } from './message.ts';
import type { KvBatch, Refusal } from './message.ts';
import { Occupancy } from './occupancy.ts';

export interface FeedEvents {
  /** Messages from a sequence number on, as the publisher still has them; empty where it has no replay. */
  replay(from: number): Promise<(readonly Uint8Array[])[]>;
  /** The engine dropped its cache and goes on. */
  cleared(timeMs: number): void;
  /** The publisher evicted; what it holds at such times has changed. */
  held(): void;
  /** A message was refused and left out. */
  refused(reason: Refusal, what: string): void;
  /** Messages were missing, and came again or did not. */
  gap(result: 'filled' | 'lost', messages: number): void;
  nowMs(): number;
}

export class KvFeed {
  readonly #events: FeedEvents;
  #occupancy = new Occupancy();
  /** The sequence number that comes next, and that of the last message that came by itself. */
  #next = 0;
  #last = -1;
  #isWhole = true;
  /** The engine's time of the batch before. */
  #timeMs = 0;
  batches = 0;

  constructor(events: FeedEvents) {
    this.#events = events;
  }

  /** Tokens that it held when it had to evict; 0 = it never had to. */
  get peakTokens(): number {
    return this.#occupancy.peakTokens;
  }

  /** Whether every block that came is counted. If not, there may be more than are. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** The last sequence number that was taken, -1 before the first. */
  get sequence(): number {
    return this.#next - 1;
  }

  /** Takes a message as it came. Messages must be taken one after the other. */
  async take(frames: readonly Uint8Array[]): Promise<void> {
    let sequence: number;
    let payload: Uint8Array;
    try {
      ({ sequence, payload } = readFrames(frames));
    } catch (error) {
      this.#refuse(error);
      return;
    }
    if (this.#last >= 0 && sequence <= this.#last) this.#restarted();
    this.#last = sequence;
    // A replay reaches further than what has come by itself.
    if (sequence < this.#next) return;
    if (sequence > this.#next) await this.#fill(sequence);
    if (sequence < this.#next) return;
    this.#apply(sequence, payload, true);
  }

  /** Numbers that begin again are those of another engine process, whose cache is empty. */
  #restarted(): void {
    this.#occupancy = new Occupancy();
    this.#next = 0;
    this.#timeMs = 0;
    this.#isWhole = true;
    this.#events.cleared(this.#events.nowMs());
  }

  /** Asks for what is missing before a sequence number. */
  async #fill(before: number): Promise<void> {
    const missing = before - this.#next;
    let filled = 0;
    if (missing <= LIMITS.kvReplayMessages) {
      for (const frames of await this.#events.replay(this.#next)) {
        try {
          const { sequence, payload } = readFrames(frames);
          if (sequence !== this.#next) continue;
          if (sequence < before) filled++;
          this.#apply(sequence, payload, false);
        } catch (error) {
          this.#refuse(error);
        }
      }
    }
    this.#events.gap(filled === missing ? 'filled' : 'lost', missing);
    if (filled === missing) return;
    this.#isWhole = false;
    this.#next = Math.max(this.#next, before);
  }

  #apply(sequence: number, payload: Uint8Array, isLive: boolean): void {
    this.#next = sequence + 1;
    let batch: KvBatch;
    try {
      batch = readBatch(payload);
    } catch (error) {
      this.#refuse(error);
      return;
    }
    this.batches++;
    const beforeMs = this.#timeMs === 0 ? batch.timeMs : Math.min(this.#timeMs, batch.timeMs);
    this.#timeMs = batch.timeMs;
    let hasEvicted = false;
    for (const event of batch.events) {
      if (event.kind === 'cleared') {
        this.#occupancy.cleared();
        this.#isWhole = true;
        this.#events.cleared(this.#clearedAtMs(beforeMs, batch.timeMs, isLive));
        continue;
      }
      if (event.kind === 'stored') {
        this.#occupancy.stored(event.group, event.blocks, event.blockTokens);
        continue;
      }
      if (!hasEvicted) this.#occupancy.evicts();
      hasEvicted = true;
      // What goes without having come had come before we listened.
      if (!this.#occupancy.removed(event.group, event.blocks)) this.#isWhole = false;
    }
    if (hasEvicted) this.#events.held();
  }

  /**
   * When the cache was dropped. An engine tells that with its next step, when the first request since has come already: what that one holds must not be
   * forgotten, so a moment before the step is taken for it, but none before the step that came before. Times are the engine's own,
   * moved to ours where its clock is set otherwise.
   */
  #clearedAtMs(beforeMs: number, batchMs: number, isLive: boolean): number {
    const nowMs = this.#events.nowMs();
    const offMs = isLive && Math.abs(nowMs - batchMs) > LIMITS.kvClockSkewMs ? nowMs - batchMs : 0;
    return Math.min(Math.max(beforeMs, batchMs - LIMITS.kvClearedBeforeMs) + offMs, nowMs);
  }

  #refuse(error: unknown): void {
    if (!(error instanceof RefusedMessage)) throw error;
    this.#isWhole = false;
    this.#events.refused(error.reason, error.message);
  }
}
