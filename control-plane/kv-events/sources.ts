// Where an engine publishes its cache events: by what it says at GET /kv_event_sources, or at a port that the pool's settings name. Only ports are
// taken from what an engine says: the host is always the endpoint's own, so that no engine can send the control plane elsewhere.
import { request } from 'undici';
import type { Dispatcher } from 'undici';
import type { Address } from '../address.ts';
import { LIMITS } from '../limits.ts';

/** Off, as each engine says, or fixed ports; replayPort 0 = there is no replay. */
export type KvEventsSetting = { mode: 'off' } | { mode: 'on' } | { mode: 'ports'; port: number; replayPort: number };

export const KV_EVENTS_TYPE = 'off, on, or PORT or PORT/REPLAY-PORT such as 5557/5558';

/** A setting as text, or undefined when it is none. */
export function readKvEvents(text: string): KvEventsSetting | undefined {
  if (text === 'off' || text === 'on') return { mode: text };
  const [, port = '0', replayPort = '0'] = /^([1-9]\d{0,4})(?:\/([1-9]\d{0,4}))?$/.exec(text) ?? [];
  const setting = { mode: 'ports', port: Number(port), replayPort: Number(replayPort) } as const;
  return setting.port > 0 && setting.port <= 65_535 && setting.replayPort <= 65_535 ? setting : undefined;
}

export function showKvEvents(setting: KvEventsSetting): string {
  if (setting.mode !== 'ports') return setting.mode;
  return setting.replayPort === 0 ? `${setting.port}` : `${setting.port}/${setting.replayPort}`;
}

export interface KvSource {
  endpoint: string;
  /** Null where messages cannot be had again. */
  replayEndpoint: string | null;
}

/** An engine that does not publish, or does not say where. */
export class NoSources extends Error {
  override name = 'NoSources';
}

export async function findSources(
  setting: KvEventsSetting,
  address: Address,
  dispatcher: Dispatcher,
  signal: AbortSignal,
): Promise<KvSource[]> {
  const host = address.text.slice(0, address.text.lastIndexOf(':'));
  const at = (port: number): string => `tcp://${host}:${port}`;
  if (setting.mode === 'ports') {
    return [{ endpoint: at(setting.port), replayEndpoint: setting.replayPort === 0 ? null : at(setting.replayPort) }];
  }
  const { statusCode, body } = await request(`http://${address.text}/kv_event_sources`, { dispatcher, signal });
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of body as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > LIMITS.kvSourcesBytes) throw new NoSources('says too much of its cache events');
    parts.push(part);
  }
  if (statusCode !== 200) throw new NoSources(`does not say where it publishes cache events (status ${statusCode})`);
  return readSources(Buffer.concat(parts).toString('utf8')).map(([port, replayPort]) => ({
    endpoint: at(port),
    replayEndpoint: replayPort === null ? null : at(replayPort),
  }));
}

/** Ports of events and of their replay, one pair for each rank. */
export function readSources(text: string): [number, number | null][] {
  let sources: unknown;
  try {
    sources = JSON.parse(text);
  } catch {
    throw new NoSources('says something of its cache events that is not JSON');
  }
  if (typeof sources !== 'object' || sources === null) throw new NoSources('lists no cache events');
  const found = Object.values(sources).flatMap((source: unknown): [number, number | null][] => {
    const { publisher, endpoint, replay_endpoint: replay } = (source ?? {}) as Record<string, unknown>;
    const port = portOf(endpoint);
    return publisher === 'zmq' && port !== null ? [[port, portOf(replay)]] : [];
  });
  if (found.length === 0) throw new NoSources('publishes no cache events over TCP');
  if (found.length > LIMITS.kvPublishers) throw new NoSources(`has ${found.length} publishers of cache events`);
  return found;
}

function portOf(endpoint: unknown): number | null {
  const [, digits] = typeof endpoint === 'string' ? (/^tcp:\/\/.{1,256}:(\d{1,5})$/.exec(endpoint) ?? []) : [];
  const port = Number(digits ?? 0);
  return port > 0 && port <= 65_535 ? port : null;
}
