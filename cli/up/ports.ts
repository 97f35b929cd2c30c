// Says in time, and in words, when a port that somebody asked for is taken: Envoy would only say it in its log.

import { listenOnce } from '../../envoy/ports.ts';
import { CommandError } from '../errors.ts';

/** The wished port when it is free, null when none is wished. */
export async function freePortOr(port: number): Promise<number | null> {
  if (port === 0) return null;
  try {
    await listenOnce(port);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const why = code === 'EADDRINUSE' ? 'is taken' : `cannot be used (${message})`;
    throw new CommandError(`--port ${port} ${why}; without --port a free one is chosen`);
  }
  return port;
}
