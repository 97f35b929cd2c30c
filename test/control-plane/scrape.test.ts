// How engines are scraped: spread over the interval, no more than allowed at once, and without waiting for the slow ones.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { systemClock } from '../../control-plane/clock.ts';
import { silentLog } from '../../control-plane/log.ts';
import { Gate, Scraper } from '../../control-plane/scrape.ts';
import { loadFrames, metricsText, startFakeEngine, until } from './fakes.ts';

const closing: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** One server under several addresses, so that it sees how many are asked at once and when. */
async function engines(count: number, delayMs: number): Promise<{ endpoints: string[]; atMs: number[]; most: number }> {
  const seen = { endpoints: [] as string[], atMs: [] as number[], most: 0 };
  let open = 0;
  const server = createServer((_request, response) => {
    open++;
    seen.most = Math.max(seen.most, open);
    seen.atMs.push(performance.now());
    setTimeout(() => {
      open--;
      response.end(metricsText());
    }, delayMs);
  });
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  closing.push(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  seen.endpoints = Array.from({ length: count }, (_, i) => `127.0.0.${i + 1}:${port}`);
  return seen;
}

function scraper(intervalMs: number, gate: Gate, clock = systemClock): { scraper: Scraper; outcomes: string[] } {
  const outcomes: string[] = [];
  const made = new Scraper(intervalMs, 1_000, clock, silentLog, gate, {
    scraped: () => undefined,
    result: (_endpoint, outcome) => void outcomes.push(outcome),
    missing: () => undefined,
  });
  closing.push(() => made.close());
  return { scraper: made, outcomes };
}

test('endpoints are spread over the interval', async () => {
  const seen = await engines(5, 0);
  const { scraper: s } = scraper(500, new Gate(64));
  s.set(seen.endpoints);
  await until(() => seen.atMs.length >= 5, 'all to be scraped once');
  const gaps = seen.atMs.slice(1, 5).map((at, i) => at - (seen.atMs[i] ?? 0));
  // A timer may be late on a busy machine, but all at once they are not.
  expect(gaps.filter((gap) => gap > 40).length).toBeGreaterThan(2);
});

test('no more than the gate lets in are asked at once, and all get their turn', async () => {
  const seen = await engines(9, 15);
  const { scraper: s, outcomes } = scraper(60_000, new Gate(2));
  s.set(seen.endpoints);
  await s.scrapeAll();
  expect(seen.most).toBeLessThanOrEqual(2);
  expect(outcomes.filter((outcome) => outcome === 'ok').length).toBeGreaterThanOrEqual(9);
  expect(seen.endpoints.every((endpoint) => s.state(endpoint)?.running === 1)).toBe(true);
});

test('an endpoint that is no longer wanted is not asked again', async () => {
  const seen = await engines(2, 0);
  const { scraper: s } = scraper(20, new Gate(4));
  s.set(seen.endpoints);
  await until(() => seen.atMs.length > 4, 'some scrapes');
  s.set([]);
  await new Promise((resolve) => setTimeout(resolve, 30));
  const before = seen.atMs.length;
  await new Promise((resolve) => setTimeout(resolve, 80));
  expect(seen.atMs.length).toBe(before);
  expect(s.state(seen.endpoints[0] ?? '')).toBeUndefined();
});

test('an endpoint that goes while it waits for its turn is not asked at all', async () => {
  const [first, other] = [await engines(1, 0), await engines(1, 0)];
  const { scraper: s } = scraper(60_000, new Gate(1));
  s.set([...first.endpoints, ...other.endpoints]);
  const all = s.scrapeAll();
  s.set(first.endpoints);
  await all;
  expect(first.atMs).not.toEqual([]);
  expect(other.atMs).toEqual([]);
});

test('a clock that is set back does not stop the scraping', async () => {
  const seen = await engines(1, 0);
  const clock = { setBackMs: 0, nowMs: () => Date.now() - clock.setBackMs };
  const { scraper: s } = scraper(20, new Gate(4), clock);
  s.set(seen.endpoints);
  await until(() => seen.atMs.length > 2, 'some scrapes');
  clock.setBackMs = 3_600_000;
  const before = seen.atMs.length;
  await until(() => seen.atMs.length > before + 3, 'further scrapes');
});

test("an engine's absurd numbers are cut to what a frame carries", async () => {
  const engine = await startFakeEngine(metricsText({ running: '1e300', kvUsage: 1e300, ttftCount: 1, ttftSum: 1 }));
  closing.push(() => engine.close());
  const { scraper: s } = scraper(60_000, new Gate(1));
  s.set([engine.endpoint]);
  await s.scrapeAll();
  await until(() => (s.state(engine.endpoint)?.scrapedMs ?? 0) > 0, 'the first scrape');
  engine.answer.text = metricsText({ kvUsage: 1e300, ttftCount: 2, ttftSum: 1e300 });
  await s.scrapeAll();
  await until(() => (s.state(engine.endpoint)?.ttftMs ?? 0) > 0, 'the second scrape');
  const frames = await loadFrames();
  const { running, waiting, kvUsage, ttftMs, ttftRequests } = s.state(engine.endpoint)!;
  const metrics = [{ podId: 1, running, waiting, kvUsage, ttftMs, ttftRequests, ageMs: 0, stale: false }];
  const head = { epoch: 1n, sequence: 0n, poolHash: 1n, settingsVersion: 1, flags: [] };
  expect(frames.check(frames.encode({ kind: 'delta', ...head, metrics }))).toBe('ok');
});
