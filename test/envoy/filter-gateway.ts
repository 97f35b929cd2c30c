// A real Envoy with the filter, settled with a fake control plane over HTTP.

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { FakeControlPlane, endpointRecords } from '../filter/control-plane.ts';
import { eventually, startGateway } from './harness.ts';
import type { Gateway, GatewayOptions } from './harness.ts';

export const pluginConfig = {
  pool: 'pool',
  sync: { cluster: 'warmpath' },
  bounds: { pods: 64, blocks: 65_536, streams: 2048 },
};

export interface FilterGateway {
  gateway: Gateway;
  plane: FakeControlPlane;
  /** Changes settings, and resolves when every VM has them. */
  change(change: (plane: FakeControlPlane) => void): Promise<void>;
  close(): Promise<void>;
}

/** Every VM takes settings over at its own next tick after the leader has them. */
const TICKS_MS = 60;

export async function startFilter(options: GatewayOptions): Promise<FilterGateway> {
  const plane = await FakeControlPlane.create([]);
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => response.end(plane.answer(Buffer.concat(chunks))));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const gateway = await startGateway({ pluginConfig, controlPlane: { host: '127.0.0.1', port }, ...options });
  const change: FilterGateway['change'] = async (what) => {
    plane.change(what);
    await eventually('the new settings', () => plane.reports.at(-1)?.settingsVersion === plane.settingsVersion);
    await sleep(TICKS_MS);
  };
  const close = async (): Promise<void> => {
    await gateway.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  await change(() => (plane.endpoints = endpointRecords(gateway.pods.map(({ endpoint }) => endpoint))));
  return { gateway, plane, change, close };
}
