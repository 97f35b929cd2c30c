// Where the requests of a replay come from: a named workload or a trace file, as sessions whose prompts are read once, by whoever needs
// them: as blocks of tokens for the replica, as block keys and bytes for the router.
//
// A workload's prompts are text, so they are rendered by the chat template for the replica, and for the router a request body is read by
// engine.wasm, byte for byte as in the gateway. A trace has no text, only ids of its 512-token blocks; trace-prompts.ts makes both
// from the ids, which is faster by far and shares exactly what the text would.

import type { KeyReader } from '../../control-plane/engine/keys.ts';
import type { EngineName, FittedEngine } from '../constants.ts';
import type { PromptBlocks } from '../engine.ts';
import { BlockHasher, renderChat } from '../tokens.ts';
import { readTrace } from '../trace.ts';
import type { Session, Workload } from '../workload.ts';
import { workload, WORKLOAD_IDS, type WorkloadId } from '../workloads.ts';
import { tracePrompt } from './trace-prompts.ts';

/** A prompt as the two sides see it. */
export interface ReplayPrompt {
  blocks: PromptBlocks;
  /** The router's block keys, and the bytes that each of them stands for. */
  keys: BigUint64Array;
  weights: Uint32Array;
  bytes: number;
}

export interface ReplayRequest {
  thinkMs: number;
  outputTokens: number;
  measured: boolean;
  prompt(): ReplayPrompt;
}

export interface ReplaySession {
  id: string;
  startMs: number;
  /** Whether the next prompt holds the answer's text. */
  readsAnswers: boolean;
  next(answer: string): ReplayRequest | null;
}

export interface ReplaySource {
  engine: EngineName;
  /** Plays in place of the named engine. */
  fitted?: FittedEngine;
  replicas: number;
  slowFactors?: readonly number[];
  sessions(): ReplaySession[];
}

export interface SourceOptions {
  /** A workload's name or the path of a trace. */
  source: string;
  seed: number;
  /** How many times faster than recorded a trace is played. */
  speed: number;
  /** Requests of a trace that bear one time are spread evenly up to the next time, where a trace tells times coarsely. */
  spread?: boolean | undefined;
  /** Requests or sessions a second of a named workload; its own when not given. */
  rate?: number | undefined;
  /** Requests at most. */
  limit?: number | undefined;
}

export function isWorkload(source: string): source is WorkloadId {
  return (WORKLOAD_IDS as readonly string[]).includes(source);
}

export function replaySource(options: SourceOptions, reader: KeyReader): ReplaySource {
  const { source, seed, rate } = options;
  if (!isWorkload(source)) return traceSource(options);
  const named = workload(source, seed, rate === undefined ? {} : { rate });
  return workloadSource(named, reader);
}

const path = '/v1/chat/completions';

/** A workload's prompts are whatever its sessions say, read by the engine of the gateway. */
export function workloadSource(named: Workload, reader: KeyReader, fitted?: FittedEngine): ReplaySource {
  const encoder = new TextEncoder();
  const request = (session: Session, answer: string): ReplayRequest | null => {
    const next = session.next(answer);
    if (next === null) return null;
    const { thinkMs, outputTokens, measured, messages } = next;
    const prompt = (): ReplayPrompt => {
      const blocks = new BlockHasher(fitted?.blockTokens);
      renderChat(blocks, { messages });
      const read = reader.read(path, encoder.encode(JSON.stringify({ model: 'sim', messages })));
      const keys = BigUint64Array.from(read.keys);
      const weights = Uint32Array.from(read.ends, (end, i) => end - (read.ends[i - 1] ?? 0));
      return { blocks, keys, weights, bytes: read.promptBytes };
    };
    return { thinkMs, outputTokens, measured, prompt };
  };
  const { engine, replicas, slowFactors } = named;
  return {
    engine,
    ...(fitted === undefined ? {} : { fitted }),
    replicas,
    ...(slowFactors === undefined ? {} : { slowFactors }),
    sessions: () =>
      named.sessions().map((session) => ({
        id: session.id,
        startMs: session.startMs,
        readsAnswers: true,
        next: (answer) => request(session, answer),
      })),
  };
}

/** When each request begins: at its timestamp, or spread over the time up to the next one. The last ones have as long as those before. */
function startTimes(timestamps: readonly number[], spread: boolean): number[] {
  if (!spread) return [...timestamps];
  const starts: number[] = [];
  let stepMs = 0;
  for (let from = 0; from < timestamps.length; from = starts.length) {
    const atMs = timestamps[from]!;
    const end = timestamps.findIndex((time, i) => i > from && time !== atMs);
    const count = (end < 0 ? timestamps.length : end) - from;
    if (end >= 0) stepMs = timestamps[end]! - atMs;
    for (let i = 0; i < count; i++) starts.push(atMs + (stepMs * i) / count);
  }
  return starts;
}

function traceSource({ source, speed, limit, spread = false }: SourceOptions): ReplaySource {
  const lines = readTrace(source, limit);
  const starts = startTimes(
    lines.map((line) => line.timestamp),
    spread,
  );
  const firstMs = starts[0] ?? 0;
  return {
    engine: '2xH100-32B',
    replicas: 8,
    sessions: () =>
      lines.map((line, index) => {
        let isSent = false;
        return {
          id: `trace-${index}`,
          startMs: (starts[index]! - firstMs) / speed,
          readsAnswers: false,
          next: () => {
            if (isSent) return null;
            isSent = true;
            const outputTokens = Math.max(1, line.output_length);
            return { thinkMs: 0, outputTokens, measured: true, prompt: () => tracePrompt(line) };
          },
        };
      }),
  };
}
