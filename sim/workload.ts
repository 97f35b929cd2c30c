// What a workload is: sessions that start at given times and send one request after another. An open-loop request is a session of one turn; a
// dialog is a session whose next prompt holds the answer that came. The same object drives real gateways and the virtual-time runner.

import type { EngineName } from './constants.ts';
import { ANSWER_OVERHEAD_TOKENS, MESSAGE_OVERHEAD_TOKENS } from './tokens.ts';

export interface Message {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

export interface WorkloadRequest {
  messages: Message[];
  outputTokens: number;
  /** Milliseconds to wait after the previous answer, or after the session's start. */
  thinkMs: number;
  /** False for requests that only warm the caches; they count in no result. */
  measured: boolean;
}

export interface Session {
  id: string;
  /** When the session starts, from the start of the run. */
  startMs: number;
  /** The next request, given the answer to the one before ('' at first), or null at the end. Called once per request. */
  next(answer: string): WorkloadRequest | null;
}

/** A row that somebody published for this workload. */
export interface Published {
  name: string;
  ttftMs: { p95: number; p99?: number };
  hitShareTokens?: number;
}

export interface Workload {
  id: string;
  seed: number;
  engine: EngineName;
  replicas: number;
  /** How many times slower each replica is, where they are not all equal. */
  slowFactors?: readonly number[];
  /** How long the arrivals last, about. */
  seconds: number;
  published: Published[];
  /** How long an answer may take before it counts as hung, where a bad policy's queue alone takes minutes. */
  timeoutMs?: number;
  /** Fresh sessions, the same ones at each call, in order of their start. */
  sessions(): Session[];
}

/** The tokens that ChatML puts around a prompt of so many messages. */
export function templateTokens(messages: number): number {
  return messages * MESSAGE_OVERHEAD_TOKENS + ANSWER_OVERHEAD_TOKENS;
}

/** A session of one request whose text is made only when it is sent. */
export function oneRequest(
  id: string,
  startMs: number,
  outputTokens: number,
  messages: () => Message[],
  measured = true,
): Session {
  let sent = false;
  return {
    id,
    startMs,
    next: () => {
      if (sent) return null;
      sent = true;
      return { messages: messages(), outputTokens, thinkMs: 0, measured };
    },
  };
}

export interface Turn {
  /** What is added to the dialog before the answer. */
  add: () => Message[];
  outputTokens: number;
  thinkMs: number;
}

/** A dialog whose history grows by the answers that really came. */
export function dialog(id: string, startMs: number, turns: readonly Turn[], measured = true): Session {
  const history: Message[] = [];
  let at = 0;
  return {
    id,
    startMs,
    next: (answer) => {
      if (at > 0) history.push({ role: 'assistant', content: answer });
      const turn = turns[at];
      if (turn === undefined) return null;
      at += 1;
      history.push(...turn.add());
      return { messages: [...history], outputTokens: turn.outputTokens, thinkMs: turn.thinkMs, measured };
    },
  };
}
