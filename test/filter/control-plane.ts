// The smallest control plane that can be: it answers every report at once with settings, secret and endpoints, keeps the reports
// for the test to look at, and can be made to fall silent or to lie. The Node host and a real Envoy are both given it.

import { parseAddress } from '../../control-plane/address.ts';
import { loadEngine } from '../../control-plane/engine/instance.ts';
import { Frames } from '../../control-plane/engine/frames.ts';
import type { FrameExports } from '../../control-plane/engine/frame-exports.ts';
import type {
  AdapterRecord,
  AliasRecord,
  EndpointRecord,
  MetricsRecord,
  Frame,
  PolicyKey,
  PoolMode,
  ToolsPosition,
  TouchRecord,
} from '../../control-plane/engine/frames.ts';

export const SECRET = Uint8Array.from({ length: 32 }, (_, i) => i + 1);

/** 16 bytes of an address that is written a.b.c.d. */
export function mappedAddress(text: string): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes.set([0xff, 0xff, ...text.split('.').map(Number)], 10);
  return bytes;
}

/** Endpoints `ip:port` as records, podId 1 for the first. */
export function endpointRecords(endpoints: string[]): EndpointRecord[] {
  return endpoints.map((endpoint, i) => {
    const { bytes, port } = parseAddress(endpoint, 'endpoint');
    return {
      podId: i + 1,
      address: bytes,
      port,
      ready: true,
      drain: false,
      weight: 1,
      capacityTokens: 100_000,
      startedSeconds: 0,
    };
  });
}

export class FakeControlPlane {
  readonly frames: Frames;
  readonly reports: Frame[] = [];
  endpoints: EndpointRecord[];
  settingsVersion = 1;
  policy = 0;
  weights = { prefix: 3, queue: 2, kv: 2 };
  policyKey: PolicyKey | undefined;
  adapters: AdapterRecord[] = [];
  aliases: AliasRecord[] | undefined;
  mode: PoolMode = 'active';
  toolsPosition: ToolsPosition = 'auto';
  syncIntervalMs = 50;
  secret: Uint8Array | undefined = SECRET;
  /** Touches that the next answer carries, as if another gateway had made them. */
  touches: TouchRecord[] = [];
  /** What the pods' metrics said last; every answer tells it again. */
  metrics: MetricsRecord[] = [];
  /** Which life of the control plane answers. */
  epoch = 7n;
  /** The next answer asks for the whole table. */
  wantsTable = false;
  /** What a snapshot holds. */
  table: TouchRecord[] = [];
  /** Changes an answer before it is sent. */
  spoil: ((body: Uint8Array) => Uint8Array) | undefined;

  static async create(endpoints: string[]): Promise<FakeControlPlane> {
    return new FakeControlPlane(new Frames((await loadEngine<FrameExports>()).exports), endpoints);
  }

  private constructor(frames: Frames, endpoints: string[]) {
    this.frames = frames;
    this.endpoints = endpointRecords(endpoints);
  }

  answer(body: Uint8Array): Uint8Array {
    const { frame } = this.frames.decode(body);
    this.reports.push(frame);
    const isNew = frame.settingsVersion !== this.settingsVersion;
    const wantsSnapshot = frame.flags.includes('wantSnapshot');
    const touches = wantsSnapshot ? [...this.table, ...this.touches] : this.touches;
    this.touches = [];
    const wantsTable = this.wantsTable;
    this.wantsTable = false;
    // The touches of a whole table are not numbered.
    const numbered = frame.flags.includes('table') ? 0 : (frame.touches?.length ?? 0);
    const answer = this.frames.encode({
      kind: wantsSnapshot ? 'snapshot' : 'delta',
      epoch: this.epoch,
      sequence: BigInt(this.reports.length),
      poolHash: frame.poolHash,
      settingsVersion: this.settingsVersion,
      flags: wantsTable ? ['wantTable'] : [],
      ...(isNew ? this.#settings() : {}),
      // A snapshot has the section even when it is empty.
      ...(wantsSnapshot || touches.length > 0 ? { touches } : {}),
      ...(this.metrics.length > 0 ? { metrics: this.metrics } : {}),
      gateway: {
        incarnation: frame.gateway!.incarnation,
        touchesNext: frame.gateway!.touchesNext + BigInt(numbered),
        workers: 0,
        name: 'control-plane',
      },
      ...(this.adapters.length > 0 ? { adapters: this.adapters } : {}),
    });
    return this.spoil ? this.spoil(answer) : answer;
  }

  #settings(): Partial<Frame> {
    return {
      pool: {
        mode: this.mode,
        policy: this.policy,
        toolsPosition: this.toolsPosition,
        blockBytes: 256,
        windowBytes: 0,
        syncIntervalMs: this.syncIntervalMs,
        bytesPerToken: 4,
        weights: this.weights,
        ...(this.policyKey === undefined ? {} : { policyKey: this.policyKey }),
      },
      ...(this.secret ? { secret: this.secret } : {}),
      endpoints: this.endpoints,
      ...(this.aliases === undefined ? {} : { aliases: this.aliases }),
    };
  }

  /** Changes settings or endpoints; they are in force after the next sync. */
  change(change: (self: this) => void): void {
    change(this);
    this.settingsVersion++;
  }

  /** Everything that was touched since the reports were cleared last. */
  touched(): TouchRecord[] {
    return this.reports.flatMap((report) => report.touches ?? []);
  }
}

/** Keys and ends of the one prompt that was reported since the reports were cleared, if one was. What comes at a request's end stands behind a known key. */
export function touchedKeys(plane: FakeControlPlane): { keys: bigint[]; ends: number[] } {
  const touch = plane.touched().find(({ keys, parentKey }) => keys.length > 0 && parentKey === 0n);
  let end = 0;
  return { keys: [...(touch?.keys ?? [])], ends: [...(touch?.weights ?? [])].map((weight) => (end += weight)) };
}
