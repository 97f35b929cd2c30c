// `warmpath explain` against a control plane that really runs, and against what one says about a pool in Kubernetes.

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { PodAnnotations, PoolAnnotations, settingsOf } from '../../control-plane/annotations.ts';
import { readConfig } from '../../control-plane/config.ts';
import { startControlPlane, type ControlPlane } from '../../control-plane/server.ts';
import type { Explanation } from '../../cli/explain.ts';

const root = join(import.meta.dirname, '..', '..');

interface Result {
  code: number;
  stdout: string;
  stderr: string;
}
const explain = (...args: string[]): Promise<Result> =>
  new Promise((resolve) => {
    execFile(process.execPath, ['images/start.mjs', 'explain', ...args], { cwd: root }, (error, stdout, stderr) =>
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr }),
    );
  });

describe('a control plane without Kubernetes', () => {
  let server: ControlPlane;
  beforeAll(async () => {
    const pools = [{ name: 'chat', endpoints: ['10.0.0.7:8000', '10.0.0.8:8000'], mode: 'shadow' as const }];
    server = await startControlPlane({ pools, adminPort: 0, scrapeTimeoutMs: 50 });
  });
  afterAll(() => server.close());

  it('tells settings and endpoints', async () => {
    const { code, stdout } = await explain('chat', '--control-plane', server.adminUrl, '--json');
    expect(code).toBe(0);
    const explanation = JSON.parse(stdout) as Explanation;
    expect(explanation).toMatchObject({ pool: 'chat', ready: true, active: true, object: null, gateways: [] });
    expect(explanation.endpoints.map(({ endpoint }) => endpoint)).toEqual(['10.0.0.7:8000', '10.0.0.8:8000']);
    expect(explanation.settings.find(({ key }) => key === 'mode')).toMatchObject({
      inForce: 'shadow',
      source: 'default',
    });
  });

  it('is asked on the right port, and says which pools there are', async () => {
    const wrongPort = await explain('chat', '--control-plane', server.url);
    expect([wrongPort.code, wrongPort.stderr]).toEqual([1, expect.stringContaining('answers 404')]);
    const wrongPool = await explain('llm/chat', '--control-plane', server.adminUrl);
    expect([wrongPool.code, wrongPool.stderr]).toEqual([2, expect.stringContaining('it knows chat')]);
  });

  it('that is not there is told', async () => {
    const { code, stderr } = await explain('chat', '--control-plane', 'http://127.0.0.1:1');
    expect([code, stderr]).toEqual([1, expect.stringContaining('http://127.0.0.1:1 cannot be asked')]);
  });
});

describe('a pool in Kubernetes', () => {
  let fake: Server;
  afterEach(() => fake.close());

  /** A server that says what a control plane says of a pool with these annotations; they are read by the real table. */
  async function serve(annotations: Record<string, string>, podAnnotations: Record<string, string>, active: boolean) {
    const [config] = readConfig({ pools: [{ name: 'llm/vllm', endpoints: [] }] }).pools;
    const pool = new PoolAnnotations(settingsOf(config!));
    pool.take({ 'warmpath.dev/mode': 'shadow' });
    pool.take(annotations);
    const pod = new PodAnnotations();
    pod.take(podAnnotations);
    const object = {
      kind: 'InferencePool',
      namespace: 'llm',
      name: 'vllm',
      apiVersion: 'inference.networking.k8s.io/v1',
      unusable: null,
      selector: 'app=vllm',
      ports: [8000],
      annotations: pool.status,
      pods: [{ name: 'vllm-1', annotations: pod.status.filter(({ value }) => value !== null) }],
    };
    const gateways = [{ name: 'gw-0', live: true, ageMs: 12.3, workers: 2 }];
    const pools = [{ name: 'llm/vllm', settingsVersion: 1, settings: {}, endpoints: [], gateways, object }];
    const replica = { name: 'a', active, holder: 'b' };
    fake = createServer((_request, response) => response.end(JSON.stringify({ ready: true, active, replica, pools })));
    await new Promise<void>((resolve) => fake.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(fake.address() as AddressInfo).port}`;
  }

  it('that is well is explained with exit code 0', async () => {
    const url = await serve({ 'warmpath.dev/policy': 'least-request' }, { 'warmpath.dev/weight': '2' }, true);
    const { code, stdout } = await explain('llm/vllm', '--control-plane', url);
    expect(code).toBe(0);
    expect(stdout).toMatch(/InferencePool llm\/vllm, inference\.networking\.k8s\.io\/v1\n/);
    expect(stdout).toMatch(/warmpath\.dev\/policy\s+least-request\s+annotation/);
    expect(stdout).toMatch(/warmpath\.dev\/mode\s+active\s+default/);
    expect(stdout).toMatch(/pod vllm-1\n\s+warmpath\.dev\/weight 2\n/);
    expect(stdout).toMatch(/gw-0 {2}2 workers, live/);
  });

  it('with refused annotations says what is in force instead, and ends with 1', async () => {
    const wrong = { 'warmpath.dev/mode': 'on', 'warmpath.dev/polcy': 'x' };
    const url = await serve(wrong, { 'warmpath.dev/weight': '-1' }, true);
    const { code, stdout, stderr } = await explain('llm/vllm', '--control-plane', url);
    expect([code, stderr]).toEqual([1, expect.stringContaining('3 of its annotations are refused')]);
    expect(stdout).toMatch(
      /warmpath\.dev\/mode\s+shadow\s+last-good\n\s+refused: .*"on" is not one of off, shadow, active/,
    );
    expect(stdout).toMatch(/warmpath\.dev\/polcy.*\n\s+refused: .*there is no such annotation/);
  });

  it('asked of a standby names the active replica', async () => {
    const url = await serve({}, {}, false);
    const { stdout } = await explain('llm/vllm', '--control-plane', url);
    expect(stdout).toContain('this replica is a standby; b is active');
  });
});
