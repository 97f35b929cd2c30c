// Starting, changing and ending an Envoy, and the ways in which that fails.

import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { staticBootstrap } from '../../envoy/bootstrap.ts';
import { socketAddress } from '../../envoy/cluster.ts';
import { ensureEnvoy } from '../../envoy/fetch.ts';
import type { Chain, FailurePolicy } from '../../envoy/listener.ts';
import { pickedCluster } from '../../envoy/picker.ts';
import { freePort } from '../../envoy/ports.ts';
import { startEnvoy } from '../../envoy/run.ts';
import { envoyVersions, eventually, startGateway, wasmPath } from './harness.ts';

const run = promisify(execFile);
const pool = { name: 'pool', endpoints: ['127.0.0.1:9', '[::1]:9'], balancing: 'override-host' as const };

async function validate(version: string, config: object): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'warmpath-validate-'));
  try {
    const file = join(directory, 'bootstrap.json');
    await writeFile(file, JSON.stringify(config));
    const { stdout } = await run(await ensureEnvoy(version), ['--mode', 'validate', '-c', file, '-l', 'error']);
    return stdout;
  } finally {
    await rm(directory, { recursive: true });
  }
}

describe.each([...envoyVersions])('Envoy %s', (version) => {
  test('finds every form of the configuration valid', async () => {
    const chains: Chain[] = ['warmpath', 'empty', 'plain', 'picker'];
    const failurePolicies: FailurePolicy[] = ['reload', 'open', 'closed', 'reload'];
    const listeners = chains.map((chain, i) => ({
      name: chain,
      port: 10_000 + i,
      cluster: chain === 'picker' ? pickedCluster : 'pool',
      chain,
      wasmPath: wasmPath('empty'),
      pluginConfig: { pool: 'pool' },
      failurePolicy: failurePolicies[i]!,
      environment: { WARMPATH_TOKEN: 'secret' },
      showUpstream: true,
      accessLogPath: '/dev/null',
    }));
    const pools = (['override-host', 'least-request', 'round-robin'] as const).map((balancing) => ({
      ...pool,
      name: balancing === 'override-host' ? 'pool' : balancing,
      balancing,
    }));
    const controlPlane = { host: '::1', port: 8080 };
    const config = staticBootstrap({ adminPort: 0 }, { listeners, pools, controlPlane, picker: '127.0.0.1:9002' });
    expect(await validate(version, config)).toMatch(/OK/);
  });

  test('changes its pods and its module under open streams without cutting one', async () => {
    const sse = { events: Array.from({ length: 12 }, (_, i) => `${i}`), gapMs: 50 };
    await using gateway = await startGateway({ version, pods: [{ sse }], wasm: 'probe', concurrency: 2 });
    const open = Array.from({ length: 20 }, () => gateway.send({ path: '/v1/chat/completions', body: '{}' }));
    if (process.env['ENVOY_BIN'] === undefined) expect(gateway.envoy.version).toBe(version);
    await sleep(100);
    await gateway.reconfigure({ wasmPath: wasmPath('empty') });
    await gateway.reconfigure({ wasmPath: wasmPath('probe'), pluginConfig: 'tick' });
    for (const answer of await Promise.all(open)) {
      expect(answer.status).toBe(200);
      expect(answer.body.toString().split('\n\n')).toHaveLength(13);
    }
    const { endpoint } = gateway.pods[0]!;
    await gateway.envoy.update({ pools: [{ ...pool, endpoints: [endpoint, `127.0.0.1:${await freePort()}`] }] });
    const members = await gateway.envoy.stats('cluster.pool.membership_total');
    expect(members['cluster.pool.membership_total']).toBe(2);
  });
});

test('a configuration that Envoy refuses at start is an error with its reason', async () => {
  const listeners = [{ name: 'one', cluster: 'pool', chain: 'warmpath' as const, wasmPath: '/nonexistent.wasm' }];
  await expect(startEnvoy({ listeners, pools: [pool] })).rejects.toThrow(/one.*(?:\/nonexistent\.wasm|Unable)/s);
});

test('an Envoy that cannot start is an error with the end of its log', async () => {
  const listeners = [{ name: 'one', cluster: 'pool', chain: 'plain' as const }];
  const port = await freePort();
  const first = await startEnvoy({ listeners, pools: [pool], adminPort: port });
  try {
    await expect(startEnvoy({ listeners, pools: [pool], adminPort: port })).rejects.toThrow(
      /Envoy ended with code \d+:.*(?:address|in use)/is,
    );
  } finally {
    await first.stop();
  }
  expect(await first.exited).toBe(0);
});

test('Envoy ends with the process that started it, even when that is killed', async () => {
  const modulePath = fileURLToPath(new URL('../../envoy/run.ts', import.meta.url));
  const program = `
    import { startEnvoy } from ${JSON.stringify(modulePath)};
    const { pid } = await startEnvoy({ listeners: [], pools: [] });
    process.stdout.write(String(pid) + '\\n', () => process.kill(process.pid, 'SIGKILL'));`;
  const child = execFile(process.execPath, ['--input-type=module-typescript', '-e', program]);
  const pid = Number(String(await once(child.stdout!, 'data')));
  expect(pid).toBeGreaterThan(0);
  await eventually('Envoy is gone', () => !existsSync(`/proc/${pid}`));
});

test.each(['pod:80', '10.0.0.1', '10.0.0.1:0', '10.0.0.1:70000', '::1:80', '[::1]', ''])(
  '"%s" is no endpoint',
  (endpoint) => {
    expect(() => socketAddress(endpoint)).toThrow(/ip:port/);
  },
);

test('endpoints are IPv4 or bracketed IPv6', () => {
  expect(socketAddress('10.0.0.1:80')).toEqual({ address: '10.0.0.1', port_value: 80 });
  expect(socketAddress('[fd00::1]:8000')).toEqual({ address: 'fd00::1', port_value: 8000 });
});
