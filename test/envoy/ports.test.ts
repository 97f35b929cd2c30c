// Ports are chosen before they are used: two that are the same, or one that an outgoing connection took, would fail a start now and then.

import { createServer } from 'node:net';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { freePort } from '../../envoy/ports.ts';

test('ports chosen together are different, can be listened at, and are none that outgoing connections get', async () => {
  const ports = await Promise.all(Array.from({ length: 300 }, freePort));
  expect(new Set(ports).size).toBe(ports.length);
  const servers = ports.map((port) => createServer().listen(port, '127.0.0.1'));
  await Promise.all(servers.map((server) => new Promise((resolve) => server.once('listening', resolve))));
  for (const server of servers) server.close();
  const range = '/proc/sys/net/ipv4/ip_local_port_range';
  const [outgoingMin] = readFileSync(range, 'utf8').split(/\s+/).map(Number);
  if (outgoingMin! >= 32_000) expect(Math.max(...ports)).toBeLessThan(outgoingMin!);
});
