// Finds ports for what is started here. They lie below those that the kernel gives to outgoing connections, since one of those may take a port between its
// choice and its use, and none is given twice: several are often chosen before the first is used.

import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

const portMin = 12_000;
/** Linux gives outgoing connections ports from 32768 on (net.ipv4.ip_local_port_range). */
const portEnd = 32_000;
const attemptsMax = 200;

const given = new Set<number>();

/** A port of 127.0.0.1 that was free a moment ago and that this process was not given before. */
export async function freePort(): Promise<number> {
  for (let i = 0; i < attemptsMax; i++) {
    const port = randomInt(portMin, portEnd);
    if (given.has(port)) continue;
    given.add(port);
    if (await canListen(port)) return port;
  }
  throw new Error(`no free port of 127.0.0.1 from ${portMin} to ${portEnd - 1} in ${attemptsMax} attempts`);
}

async function canListen(port: number): Promise<boolean> {
  try {
    await listenOnce(port);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE' || code === 'EACCES') return false;
    throw error;
  }
}

/** Listens at a port of 127.0.0.1 and leaves it again. Fails with the system's reason when it cannot. */
export async function listenOnce(port: number): Promise<void> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  await new Promise((resolve) => server.close(resolve));
}
