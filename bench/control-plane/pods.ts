// The pods of the control plane's bench, in a thread of their own: each listens on a port and answers every request with the metrics page
// of a simulated replica, on plain sockets, so that serving a page costs next to nothing.
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';
import { startReplica } from '../../sim/server.ts';

/** The page of a replica that has served nothing yet, as an answer. */
async function page(): Promise<Buffer> {
  const replica = await startReplica({ engine: 'H100-8B' });
  try {
    const text = await (await fetch(`${replica.url}/metrics`)).text();
    const head = `HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n`;
    return Buffer.from(head + text);
  } finally {
    await replica.close();
  }
}

const answer = await page();

function serve(socket: Socket): void {
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  // A scrape has no body and fits into one piece, and the next comes when this one is answered.
  socket.on('data', () => void socket.write(answer));
}

const endpoints: string[] = [];
for (let i = 0; i < (workerData as number); i++) {
  const server = createServer(serve).listen(0, '127.0.0.1');
  await once(server, 'listening');
  endpoints.push(`127.0.0.1:${(server.address() as AddressInfo).port}`);
}
parentPort?.postMessage(endpoints);
