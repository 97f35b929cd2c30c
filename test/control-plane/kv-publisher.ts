// Publishes cache events as vLLM does: a PUB socket, a ROUTER that sends messages again from a number on, and GET /kv_event_sources. The sockets are
// real; what is published is up to the test.
import { encode } from '@msgpack/msgpack';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Publisher, Router } from 'zeromq';

export interface KvPublisher {
  endpoint: string;
  /** Publishes a batch; one that is lost can only be had by replay. */
  publish(events: unknown[], options?: { lost?: boolean; seconds?: number }): Promise<void>;
  /** Publishes bytes that are whatever they are. */
  raw(payload: Uint8Array): Promise<void>;
  /** Forgets what could be sent again. */
  forget(): void;
  /** Begins to number anew, as another engine process does. */
  renumber(): void;
  replays: number;
  close(): Promise<void>;
}

const u64 = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(value);
  return bytes;
};

export const stored = (blocks: number, blockTokens = 16): object => ({
  type: 'BlockStored',
  block_hashes: Array.from({ length: blocks }, (_, i) => i),
  parent_block_hash: null,
  token_ids: [],
  block_size: blockTokens,
  medium: 'GPU',
});
export const removed = (blocks: number): object => ({
  type: 'BlockRemoved',
  block_hashes: Array.from({ length: blocks }, (_, i) => i),
  medium: 'GPU',
});
export const cleared = { type: 'AllBlocksCleared' };

/** `metrics` is what the same engine says at /metrics. */
export async function startKvPublisher(metrics: string): Promise<KvPublisher> {
  const socket = new Publisher({ linger: 0 });
  const router = new Router({ linger: 0 });
  await socket.bind('tcp://127.0.0.1:*');
  await router.bind('tcp://127.0.0.1:*');
  const wildcard = (bound: string | null): string => (bound ?? '').replace('127.0.0.1', '*');
  const sources = {
    0: {
      enable_kv_cache_events: true,
      publisher: 'zmq',
      endpoint: wildcard(socket.lastEndpoint),
      replay_endpoint: wildcard(router.lastEndpoint),
    },
  };
  const server = createServer((request, response) => {
    response.end(request.url === '/kv_event_sources' ? JSON.stringify(sources) : metrics);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  let kept: [bigint, Uint8Array][] = [];
  let next = 0n;
  const publisher: KvPublisher = {
    endpoint: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    replays: 0,
    publish: async (events, { lost = false, seconds = Date.now() / 1000 } = {}) => {
      const payload = encode([seconds, events, 0]);
      if (!lost) return publisher.raw(payload);
      kept.push([next++, payload]);
    },
    raw: async (payload) => {
      kept.push([next, payload]);
      await socket.send([Buffer.from('kv'), u64(next++), payload]);
    },
    forget: () => {
      kept = [];
    },
    renumber: () => {
      kept = [];
      next = 0n;
    },
    close: async () => {
      socket.close();
      router.close();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
  void (async () => {
    for await (const [client, , start] of router) {
      publisher.replays++;
      const from = start!.readBigUInt64BE();
      for (const [number, payload] of kept) {
        if (number >= from) await router.send([client!, Buffer.alloc(0), Buffer.from('kv'), u64(number), payload]);
      }
      await router.send([client!, Buffer.alloc(0), Buffer.alloc(0), Buffer.alloc(8, 0xff), Buffer.alloc(0)]);
    }
  })();
  return publisher;
}
