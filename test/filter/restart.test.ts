// The real control plane between eight gateways of real filters, on one clock that stands still between steps: what a restart of it costs in hits.
import { expect, test } from 'vitest';
import { readConfig } from '../../control-plane/config.ts';
import type { FrameExports } from '../../control-plane/engine/frame-exports.ts';
import { Frames } from '../../control-plane/engine/frames.ts';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import { silentLog } from '../../control-plane/log.ts';
import { Metrics } from '../../control-plane/metrics.ts';
import { Pool } from '../../control-plane/pool.ts';
import { Gate } from '../../control-plane/scrape.ts';
import { Sync } from '../../control-plane/sync.ts';
import { PoolTable } from '../../control-plane/table.ts';
import { Random } from '../../sim/random.ts';
import { SECRET } from './control-plane.ts';
import { chat, Gateway, words } from './gateway.ts';

const GATEWAYS = 8;
const PODS = 8;
const PREFIXES = 120;
/** Prefixes that a pod's cache holds. */
const HELD = 12;
const STEP_MS = 5;
const podAddress = (pod: number): string => `127.0.0.1:${9100 + pod}`;
const systems = Array.from({ length: PREFIXES }, (_, i) => words(`prefix${i}-`, 6000));

/** An engine's cache: the prefixes used last. */
class Cache {
  readonly #held = new Set<number>();

  use(prefix: number): boolean {
    const hit = this.#held.delete(prefix);
    this.#held.add(prefix);
    const [oldest] = this.#held;
    if (this.#held.size > HELD && oldest !== undefined) this.#held.delete(oldest);
    return hit;
  }
}

class World {
  readonly caches = Array.from({ length: PODS }, () => new Cache());
  readonly gateways: Gateway[] = [];
  readonly requests: { atMs: number; gateway: number; hit: boolean }[] = [];
  readonly #random: Random;
  readonly #frames: Frames;
  sync: Sync | null = null;
  pool: Pool | null = null;
  nowMs = 1_700_000_000_000;
  /** The gateway whose first worker hangs. */
  hung = -1;

  constructor(frames: Frames, seed: number) {
    this.#frames = frames;
    this.#random = new Random(seed);
  }

  static async create(seed: number): Promise<World> {
    return new World(new Frames((await loadEngine<FrameExports>()).exports), seed);
  }

  async startControlPlane(epoch: bigint): Promise<void> {
    const endpoints = this.caches.map((_, pod) => ({ endpoint: podAddress(pod), capacityTokens: HELD * 1500 }));
    const [config] = readConfig({ pools: [{ name: 'pool', endpoints, scrapeIntervalMs: 60_000 }] }).pools;
    const clock = { nowMs: () => this.nowMs };
    const metrics = new Metrics();
    const pool = new Pool(config!, {
      hash: this.#frames.poolHash('pool'),
      secret: SECRET,
      table: await PoolTable.create(64, 50_000),
      clock,
      log: silentLog,
      metrics,
      gate: new Gate(8),
      scrapeTimeoutMs: 100,
    });
    pool.setEndpoints(config!.endpoints!);
    await this.stopControlPlane();
    this.pool = pool;
    this.sync = new Sync(epoch, this.#frames, [pool], clock, metrics, silentLog);
  }

  async stopControlPlane(): Promise<void> {
    this.sync = null;
    this.pool?.scraper.close();
  }

  async addGateway(index: number): Promise<void> {
    const gateway = await Gateway.start({ workers: 0 });
    const { host } = gateway;
    host.nowMs = this.nowMs;
    host.onCall = (call) => (this.sync === null ? { status: 503, body: '' } : { body: this.sync.answer(call.body) });
    for (const worker of ['one', 'two']) gateway.addWorker(worker, { gateway: `gateway-${index}` });
    this.gateways[index] = gateway;
  }

  run(ms: number): void {
    for (const endMs = this.nowMs + ms; this.nowMs < endMs;) {
      this.nowMs += STEP_MS;
      for (const { host } of this.gateways) host.advance(this.nowMs - host.nowMs);
      for (let i = 0; i < 2; i++) this.#request();
    }
  }

  #request(): void {
    const index = this.#random.below(GATEWAYS);
    const gateway = this.gateways[index]!;
    const prefix = Math.floor(PREFIXES * this.#random.unit() ** 2);
    // A worker that hangs takes no requests either.
    const worker = index === this.hung ? 1 : this.#random.below(2);
    const stream = gateway.request(worker, chat(systems[prefix]!, `${this.requests.length}`));
    // Without a pick Envoy balances.
    const upstream = gateway.picks(stream)[0] ?? podAddress(this.#random.below(PODS));
    const hit = this.caches[Number(upstream.split(':')[1]) - 9100]!.use(prefix);
    this.requests.push({ atMs: this.nowMs, gateway: index, hit });
    gateway.answer(stream, { upstream });
  }

  hitShare(fromMs: number, toMs: number, gateways: (index: number) => boolean = () => true): number {
    const seen = this.requests.filter(({ atMs, gateway }) => atMs > fromMs && atMs <= toMs && gateways(gateway));
    return seen.filter(({ hit }) => hit).length / seen.length;
  }
}

test('a control plane that is restarted under 8 gateways: the hit share is back to 95 % of before within 2 s, a new gateway’s too', async () => {
  const world = await World.create(2);
  await world.startControlPlane(1n << 40n);
  for (let i = 0; i < GATEWAYS; i++) await world.addGateway(i);
  world.run(8000);
  const before = world.hitShare(world.nowMs - 5000, world.nowMs);
  expect(before).toBeGreaterThan(0.6);
  expect(before).toBeLessThan(0.98);
  const blocksHeld = (): number =>
    world.pool!.pods.list().reduce((sum, { id }) => sum + world.pool!.table.held(id).blocks, 0);
  const heldBefore = blocksHeld();

  await world.stopControlPlane();
  world.run(300);
  const restartedMs = world.nowMs;
  await world.startControlPlane(2n << 40n);
  // With it, one gateway's leader goes, and another gateway is replaced by one that knows nothing.
  world.gateways[0]!.roots[0]!.tick(0);
  world.hung = 0;
  await world.addGateway(7);
  world.run(3000);

  const share = (fromMs: number, toMs: number, of?: (index: number) => boolean): number =>
    world.hitShare(restartedMs + fromMs, restartedMs + toMs, of);
  expect(share(2000, 3000) / before).toBeGreaterThan(0.95);
  expect(share(500, 3000, (index) => index === 7) / before).toBeGreaterThan(0.9);
  expect(blocksHeld() / heldBefore).toBeGreaterThan(0.9);
  await world.stopControlPlane();
});
