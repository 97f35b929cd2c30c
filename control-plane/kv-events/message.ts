// One message of an engine's stream of cache events, as vLLM publishes it:
//
//   frame 0 topic | frame 1 sequence number, u64 big-endian | frame 2 MessagePack [seconds since 1970, [event, ...], rank]
//
// An event is a map with `type` or, up to vLLM 0.20, an array that begins with its name. Of an event only what the table needs is kept: how many
// blocks of how many tokens came or went, and that all went. Which blocks they are is not looked at (docs/decisions/0007-kv-events.md).
//
// Reading is strict in what it uses: a message with anything unexpected in it is refused as a whole. Fields that it does not use may be there.
import { DecodeError, Decoder } from '@msgpack/msgpack';
import { LIMITS } from '../limits.ts';

export type KvEvent =
  | { kind: 'stored'; blocks: number; blockTokens: number; group: number }
  | { kind: 'removed'; blocks: number; group: number }
  | { kind: 'cleared' };

export interface KvBatch {
  timeMs: number;
  events: KvEvent[];
}

export const REFUSALS = ['frames', 'sequence', 'too-large', 'encoding', 'batch', 'event'] as const;
export type Refusal = (typeof REFUSALS)[number];

/** A message that is not what an engine publishes. */
export class RefusedMessage extends Error {
  readonly reason: Refusal;

  constructor(reason: Refusal, what: string) {
    super(what);
    this.name = 'RefusedMessage';
    this.reason = reason;
  }
}

const { kvMessageBytes, kvEventsPerBatch, kvListLength, kvTextBytes, kvMapKeys, kvGroups, kvBlockTokens } = LIMITS;

const decoder = new Decoder({
  maxStrLength: kvTextBytes,
  maxBinLength: kvTextBytes,
  maxArrayLength: kvListLength,
  maxMapLength: kvMapKeys,
  maxExtLength: 0,
});

/** Where an event in the form of an array has what, after its name. */
const STORED = { hashes: 1, blockTokens: 4, medium: 6, group: 9 };
const REMOVED = { hashes: 1, medium: 2, group: 3 };

/** The sequence number of a message, and its batch in bytes. */
export function readFrames(frames: readonly Uint8Array[]): { sequence: number; payload: Uint8Array } {
  const [, sequence, payload] = frames;
  if (frames.length !== 3 || sequence === undefined || payload === undefined) {
    throw new RefusedMessage('frames', `${frames.length} frames, expected 3`);
  }
  return { sequence: readSequence(sequence), payload };
}

export function readSequence(bytes: Uint8Array): number {
  if (bytes.length !== 8) throw new RefusedMessage('sequence', `a sequence number of ${bytes.length} bytes`);
  const value = new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0);
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new RefusedMessage('sequence', `sequence number ${value}`);
  return Number(value);
}

export function readBatch(payload: Uint8Array): KvBatch {
  if (payload.length > kvMessageBytes) throw new RefusedMessage('too-large', `${payload.length} bytes`);
  let batch: unknown;
  try {
    batch = decoder.decode(payload);
  } catch (error) {
    // What a decoder throws at cut or endless nonsense is of several kinds; each means that it is none of MessagePack.
    if (!(error instanceof DecodeError || error instanceof RangeError || error instanceof Error)) throw error;
    throw new RefusedMessage('encoding', error.message);
  }
  if (!Array.isArray(batch) || batch.length < 2 || batch.length > 3) {
    throw new RefusedMessage('batch', 'a batch is a list of time, events and rank');
  }
  const [seconds, events, rank] = batch as unknown[];
  if (typeof seconds !== 'number' || !(seconds >= 0 && seconds < 1e11)) throw new RefusedMessage('batch', 'no time');
  if (!Array.isArray(events) || events.length > kvEventsPerBatch) throw new RefusedMessage('batch', 'no events');
  if (!isAbsent(rank) && !isWhole(rank, 0, 0xffff)) throw new RefusedMessage('batch', 'no rank');
  return { timeMs: seconds * 1000, events: events.flatMap((event: unknown) => readEvent(event)) };
}

function isAbsent(value: unknown): boolean {
  return value === null || value === undefined;
}

function isWhole(value: unknown, min: number, max: number): value is number {
  return Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
}

/** Gives nothing for what is not in the engine's own memory: blocks that were moved out to a disk are no part of its cache. */
function readEvent(event: unknown): KvEvent[] {
  const isList = Array.isArray(event);
  if (!isList && (typeof event !== 'object' || event === null)) throw new RefusedMessage('event', 'an event is a map');
  const list = isList ? (event as unknown[]) : [];
  const map = isList ? {} : (event as Record<string, unknown>);
  const field = (name: string, at: number): unknown => (isList ? list[at] : map[name]);
  const type = field('type', 0);
  if (type === 'AllBlocksCleared') return [{ kind: 'cleared' }];
  if (type !== 'BlockStored' && type !== 'BlockRemoved') {
    throw new RefusedMessage('event', `an event of type ${JSON.stringify(type)?.slice(0, 64)}`);
  }
  const at = type === 'BlockStored' ? STORED : REMOVED;
  const blocks = countHashes(field('block_hashes', at.hashes));
  const medium = field('medium', at.medium);
  if (!isAbsent(medium) && typeof medium !== 'string') throw new RefusedMessage('event', 'medium is no text');
  const group = field('group_idx', at.group) ?? 0;
  if (!isWhole(group, 0, kvGroups - 1)) throw new RefusedMessage('event', `a group of ${kvGroups} or more`);
  let read: KvEvent = { kind: 'removed', blocks, group };
  if (type === 'BlockStored') {
    const blockTokens = field('block_size', STORED.blockTokens);
    if (!isWhole(blockTokens, 1, kvBlockTokens)) throw new RefusedMessage('event', 'no block size');
    read = { kind: 'stored', blocks, blockTokens, group };
  }
  return isAbsent(medium) || medium === 'GPU' ? [read] : [];
}

/** Hashes are numbers or, where the engine is told so, bytes. */
function countHashes(hashes: unknown): number {
  if (!Array.isArray(hashes)) throw new RefusedMessage('event', 'no block hashes');
  for (const hash of hashes as unknown[]) {
    if (typeof hash !== 'number' && !(hash instanceof Uint8Array)) throw new RefusedMessage('event', 'no block hash');
  }
  return hashes.length;
}
