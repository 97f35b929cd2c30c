// Cache events of a real engine: a reset reaches the gateway, and a capacity that the engine's metrics do not tell is learned from what it held when
// it had to evict.

import { createServer, request as ask } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { LIMITS } from '../../control-plane/limits.ts';
import { Random } from '../../sim/random.ts';
import { wordOf } from '../../sim/tokens.ts';
import type { Vllm } from './engine.ts';
import { startRig } from './gateway.ts';
import type { Rig, Told } from './gateway.ts';

const blockTokens = 32;
const blocks = 160;
const waitMsMax = 20_000;

const open: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

/** Stands before an engine and leaves its capacity out of its metrics. */
async function hidingCapacity(engine: Vllm): Promise<string> {
  const server = createServer((incoming, outgoing) => {
    const { method, url: path, headers } = incoming;
    const passed = ask({ host: '127.0.0.1', port: engine.port, method, path, headers }, (answer) => {
      if (path !== '/metrics') {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
        return;
      }
      const parts: Buffer[] = [];
      answer.on('data', (part: Buffer) => parts.push(part));
      answer.on('end', () => {
        const lines = Buffer.concat(parts).toString().split('\n');
        outgoing.end(lines.filter((line) => !line.startsWith('vllm:cache_config_info')).join('\n'));
      });
    });
    passed.on('error', () => outgoing.destroy());
    incoming.pipe(passed);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  open.push(async () => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Cached tokens as the filter believed in them, by the prompt's own ratio of bytes to tokens. */
const predicted = ({ matchedBytes, promptBytes, usage }: Told): number =>
  promptBytes === 0 ? 0 : (matchedBytes * usage!.promptTokens) / promptBytes;

interface Pod {
  capacityTokens: number;
  table: { blocks: number };
  kvEvents: { listening: boolean; batches: number; whole: boolean; heldTokens: number };
}
const podOf = (rig: Rig): Pod => rig.pod(0) as unknown as Pod;

async function until(condition: () => boolean, what: string): Promise<void> {
  for (const endMs = Date.now() + waitMsMax; !condition(); await sleep(20)) {
    if (Date.now() > endMs) throw new Error(`waited in vain for: ${what}`);
  }
}

async function clearsOf(rig: Rig): Promise<number> {
  const text = await (await fetch(`${rig.controlPlane.url}/metrics`)).text();
  return Number(/^warmpath_pod_clears_total\{[^}]*\} (\d+)$/m.exec(text)?.[1] ?? 0);
}

const prompt = (seed: number, words: number): object => {
  const random = new Random(seed);
  const content = Array.from({ length: words }, () => wordOf(random.below(2 ** 23))).join('');
  return { model: 'tiny', messages: [{ role: 'user', content }], max_tokens: 4 };
};

/** Asks for more than the engine holds, three times round, and says by how many tokens predictions were wrong in the end. */
async function wrongTokens(rig: Rig): Promise<number> {
  const prompts = Array.from({ length: 24 }, (_, index) => prompt(index + 1, 150));
  let wrong = 0;
  for (let round = 0; round < 3; round++) {
    for (const [index, body] of prompts.entries()) {
      const told = await rig.ask('chat', body);
      if (round === 2) wrong += Math.abs(predicted(told) - told.usage!.cachedTokens);
      // Where events tell of the capacity, gateways have it a moment later.
      if (round === 0 && index === prompts.length - 1) await sleep(500);
    }
  }
  return wrong;
}

test('an engine that drops its cache is believed to hold nothing', { timeout: 400_000 }, async () => {
  const rig = await startRig({ engines: [{ kvEvents: true }], kvEvents: 'on' });
  open.push(async () => rig[Symbol.asyncDispose]());
  await until(() => podOf(rig).kvEvents.listening, 'a subscription');
  const body = prompt(1, 150);
  await rig.ask('chat', body);
  const again = await rig.ask('chat', body);
  expect(again.matchedBytes).toBeGreaterThan(0);
  expect(again.usage!.cachedTokens).toBeGreaterThan(0);
  await until(() => podOf(rig).kvEvents.whole && podOf(rig).table.blocks > 0, 'what was stored to be counted');
  const reset = await fetch(`${rig.engines[0]!.url}/reset_prefix_cache`, { method: 'POST' });
  expect(reset.status).toBe(200);
  // The engine tells of it with its next step. What caused that is not forgotten with the rest.
  await sleep(2 * LIMITS.kvClearedBeforeMs);
  const clears = await clearsOf(rig);
  const other = prompt(2, 60);
  await rig.ask('chat', other);
  for (const endMs = Date.now() + waitMsMax; (await clearsOf(rig)) === clears && Date.now() < endMs;) await sleep(50);
  expect(await clearsOf(rig)).toBe(clears + 1);
  // The gateway hears of it with its next sync.
  await sleep(500);
  const kept = await rig.ask('chat', other);
  const lost = await rig.ask('chat', body);
  expect(kept.matchedBytes).toBeGreaterThan(0);
  expect([lost.matchedBytes, kept.usage!.cachedTokens > 0]).toEqual([0, true]);
  expect(lost.usage!.cachedTokens).toBeLessThan(blockTokens);
});

test('a capacity that is not told is learned from evictions', { timeout: 800_000 }, async () => {
  const wrong: Record<string, number> = {};
  for (const kvEvents of ['off', 'on'] as const) {
    const engine = { kvEvents: true, blocks, blockTokens };
    const rig = await startRig({ engines: [engine], kvEvents, through: hidingCapacity });
    try {
      wrong[kvEvents] = await wrongTokens(rig);
      if (kvEvents === 'off') continue;
      // One of its blocks it keeps for itself, and some hold the unfinished end of a prompt.
      const { capacityTokens } = podOf(rig);
      expect(capacityTokens).toBeGreaterThan((blocks - 1) * blockTokens * 0.75);
      expect(capacityTokens).toBeLessThanOrEqual((blocks - 1) * blockTokens);
    } finally {
      await rig[Symbol.asyncDispose]();
    }
  }
  console.log(`wrong by ${wrong['off']} tokens without events, by ${wrong['on']} with`);
  expect(wrong['on']).toBeLessThan(wrong['off']! / 2);
});
