// Says in time, and in words, when a port that somebody asked for is taken: Envoy would only say it in its log.

import { createServer } from 'node:net';
import { CommandError } from '../errors.ts';

/** The wished port when it is free, null when none is wished. */
export async function freePortOr(port: number): Promise<number | null> {
  if (port === 0) return null;
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const why = error.code === 'EADDRINUSE' ? 'is taken' : `cannot be used (${error.message})`;
      reject(new CommandError(`--port ${port} ${why}; without --port a free one is chosen`));
    });
    server.listen(port, '127.0.0.1', resolve);
  });
  await new Promise((resolve) => server.close(resolve));
  return port;
}
