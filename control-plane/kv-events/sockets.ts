// The two ZeroMQ sockets of an engine's cache events: a subscription, and a request for messages again. Nothing else here knows ZeroMQ, and it is
// loaded only where a pool asks for events, since it is native code.
import { context, Dealer, Subscriber } from 'zeromq';
import { LIMITS } from '../limits.ts';
import { readSequence, RefusedMessage } from './message.ts';

// One for each engine and rank, and one for each replay.
context.maxSockets = LIMITS.kvSockets;

const common = { ipv6: true, linger: 0, maxMessageSize: LIMITS.kvMessageBytes } as const;

/** Messages as they come, until the signal. A connection that is lost is made again, without an end. */
export async function* subscribe(endpoint: string, signal: AbortSignal): AsyncGenerator<Buffer[]> {
  const socket = new Subscriber({
    ...common,
    receiveHighWaterMark: LIMITS.kvMessagesWaiting,
    reconnectInterval: 200,
    reconnectMaxInterval: 5_000,
    tcpKeepalive: 1,
    tcpKeepaliveIdle: 30,
  });
  const close = (): void => socket.close();
  signal.addEventListener('abort', close, { once: true });
  try {
    if (signal.aborted) return;
    socket.connect(endpoint);
    socket.subscribe();
    for await (const frames of socket) yield frames;
  } finally {
    signal.removeEventListener('abort', close);
    socket.close();
  }
}

/** The number of the message that ends a replay: -1. */
const END = Buffer.alloc(8, 0xff);

/** Messages from a number on, as many as the publisher still has; fewer when it does not answer in time. */
export async function replay(endpoint: string, from: number, signal: AbortSignal): Promise<Buffer[][]> {
  const socket = new Dealer({ ...common, receiveTimeout: LIMITS.kvReplayMs, sendTimeout: LIMITS.kvReplayMs });
  const close = (): void => socket.close();
  signal.addEventListener('abort', close, { once: true });
  const messages: Buffer[][] = [];
  let bytes = 0;
  try {
    if (signal.aborted) return [];
    socket.connect(endpoint);
    const start = Buffer.alloc(8);
    start.writeBigUInt64BE(BigInt(from));
    await socket.send([Buffer.alloc(0), start]);
    while (messages.length < LIMITS.kvReplayMessages && bytes < LIMITS.kvReplayBytes) {
      // An empty frame comes first, as REQ sockets want it.
      const [, ...frames] = await socket.receive();
      if (frames[1]?.equals(END) === true) break;
      if (frames[1] !== undefined) readSequence(frames[1]);
      bytes += frames.reduce((total, frame) => total + frame.length, 0);
      messages.push(frames);
    }
  } catch (error) {
    // No answer, no more of it, or nonsense: what came before is good.
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (!(error instanceof RefusedMessage) && !signal.aborted && code !== 'EAGAIN') throw error;
  } finally {
    signal.removeEventListener('abort', close);
    socket.close();
  }
  return messages;
}
