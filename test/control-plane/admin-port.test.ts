// The port for sync and the port for all else: each answers its own routes only, so that whoever guards one by its number guards the route.

import { afterEach, describe, expect, it } from 'vitest';
import { startControlPlane, type ControlPlane } from '../../control-plane/server.ts';

let server: ControlPlane | undefined;
afterEach(async () => {
  await server?.close();
  server = undefined;
});

const pools = [{ name: 'p', endpoints: [] }];
const token = 'a-token-of-some-length';
const statusOf = async (url: string, method = 'GET'): Promise<number> => {
  const response = await fetch(url, { method, ...(method === 'POST' ? { body: 'x' } : {}) });
  await response.arrayBuffer();
  return response.status;
};

describe('with an admin port', () => {
  it('sync is on one port and everything else on the other', async () => {
    server = await startControlPlane({ pools, token, adminPort: 0 });
    expect(server.adminUrl).not.toBe(server.url);
    expect(await statusOf(`${server.url}/v1/sync`, 'POST')).toBe(401);
    for (const path of ['/v1/state', '/metrics', '/healthz', '/readyz']) {
      expect([path, await statusOf(server.url + path)]).toEqual([path, 404]);
      expect([path, await statusOf(server.adminUrl + path)]).toEqual([path, 200]);
    }
    expect(await statusOf(`${server.adminUrl}/v1/sync`, 'POST')).toBe(404);
    const metrics = await (await fetch(`${server.adminUrl}/metrics`)).text();
    expect(metrics).toContain('warmpath_sync_refused_total{code="WARMPATH_TOKEN_INVALID"} 1');
  });

  it('both ports are closed in the end', async () => {
    const { url, adminUrl, close } = await startControlPlane({ pools, adminPort: 0 });
    await close();
    await expect(fetch(`${url}/v1/sync`)).rejects.toThrow();
    await expect(fetch(`${adminUrl}/healthz`)).rejects.toThrow();
  });
});

it('without one, all routes are on one port', async () => {
  server = await startControlPlane({ pools });
  expect(server.adminUrl).toBe(server.url);
  expect(await statusOf(`${server.url}/healthz`)).toBe(200);
  expect(await statusOf(`${server.url}/v1/sync`, 'POST')).toBe(400);
});
