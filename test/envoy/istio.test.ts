// The rendered objects on a real Envoy: its configuration is made of them as istiod does it, with Istio's names. What API servers do not look into is
// looked into here, and requests pass through it: picks, the token from the gateway's environment, routes that are not ours.

import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KubeObject } from '../../cli/manifests/files.ts';
import { attachModes, defaults, poolCluster, syncCluster, type AttachMode } from '../../cli/manifests/parameters.ts';
import { builtFiles } from '../../cli/manifests/tree.ts';
import { startControlPlane, type ControlPlane } from '../../control-plane/server.ts';
import { socketAddress } from '../../envoy/cluster.ts';
import { ensureEnvoy } from '../../envoy/fetch.ts';
import { heldPaths, typed } from '../../envoy/names.ts';
import { freePort } from '../../envoy/ports.ts';
import {
  merged,
  patchedCluster,
  patchedFilters,
  patchedRoute,
  patchesOf,
  wasmFilter,
  type Json,
} from '../istio/patches.ts';
import { Backend, envoyVersions, eventually, send, wasmPath, type Answer, type Send } from './harness.ts';

/** More than a tick of the filter, and more than what its counters wait for. */
const TICK_MS = 20;
const COUNTERS_MS = 300;

const token = 'a-token-of-some-length';
const otherCluster = 'outbound|80||other.llm.svc.cluster.local';
const picker = 'envoy.filters.http.ext_proc';

const cluster = (name: string, endpoints: string[], fields: Json = {}): Json => ({
  name,
  type: 'STATIC',
  connect_timeout: '1s',
  load_assignment: {
    cluster_name: name,
    endpoints: [
      {
        lb_endpoints: endpoints.map((endpoint) => ({
          endpoint: { address: { socket_address: socketAddress(endpoint) } },
        })),
      },
    ],
  },
  ...fields,
});

/** How Istio's clusters of InferencePools balance. */
const poolBalancing: Json = {
  lb_policy: 'CLUSTER_PROVIDED',
  load_balancing_policy: {
    policies: [
      {
        typed_extension_config: {
          name: 'envoy.load_balancing_policies.override_host',
          typed_config: typed('envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost', {
            override_host_sources: [
              { metadata: { key: 'envoy.lb', path: [{ key: 'x-gateway-destination-endpoint' }] } },
            ],
            fallback_policy: {
              policies: [
                {
                  typed_extension_config: {
                    name: 'envoy.load_balancing_policies.round_robin',
                    typed_config: typed('envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin'),
                  },
                },
              ],
            },
          }),
        },
      },
    ],
  },
};

/** An endpoint picker that nobody can reach, as Istio asks it on routes to InferencePools: a request that goes there fails. */
const extProc = (fields: Json): Json => ({
  grpc_service: { envoy_grpc: { cluster_name: 'nobody' } },
  failure_mode_allow: false,
  ...fields,
});
const askPicker = {
  [picker]: typed('envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute', {
    overrides: {
      grpc_service: { envoy_grpc: { cluster_name: 'nobody' } },
      processing_mode: { request_header_mode: 'SEND' },
    },
  }),
};

interface Places {
  pods: string[];
  other: string;
  sync: string;
  port: number;
  adminPort: number;
}

/** A gateway as istiod would configure it: the pool's route, and another one that is none of our business. */
function bootstrap(attach: AttachMode, { pods, other, sync, port, adminPort }: Places): Json {
  const parameters = { ...defaults, attach, token: true, statsTags: true };
  const objects = builtFiles(parameters).flatMap((file) => file.objects as KubeObject[]);
  const plugin = objects.find(({ kind }) => kind === 'WasmPlugin') as KubeObject;
  const isPool = attach === 'inference-pool';
  const filters: Json[] = [
    wasmFilter(plugin, wasmPath('filter')),
    ...(isPool
      ? [
          {
            name: picker,
            typed_config: typed(
              'envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor',
              extProc({ processing_mode: { request_header_mode: 'SKIP', response_header_mode: 'SKIP' } }),
            ),
          },
        ]
      : []),
    { name: 'envoy.filters.http.router', typed_config: typed('envoy.extensions.filters.http.router.v3.Router') },
  ];
  const toPool = { cluster: poolCluster(parameters), timeout: '0s' };
  const routeOf = (name: string, match: Json): Json =>
    patchedRoute({ name, match, route: toPool, ...(isPool ? { typed_per_filter_config: askPicker } : {}) }, objects);
  const isPost = [{ name: ':method', string_match: { exact: 'POST' } }];
  const routes = [
    ...heldPaths.map((path) => routeOf('llm.vllm.0', { path, headers: isPost })),
    routeOf('llm.vllm.1', { prefix: '/' }),
  ];
  const others = [{ name: 'llm.other.0', match: { prefix: '/' }, route: { cluster: otherCluster } }];
  const manager = typed('envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', {
    stat_prefix: 'outbound_0.0.0.0_80',
    route_config: {
      name: 'http.80',
      virtual_hosts: [
        { name: 'llm.example:80', domains: ['llm.example'], routes },
        { name: 'other.example:80', domains: ['other.example'], routes: others },
      ],
    },
    http_filters: patchedFilters(filters, objects),
  });
  const frame: Json = {
    node: { id: 'router~10.0.0.1~gateway-0.llm~llm.svc.cluster.local', cluster: 'inference-gateway.llm' },
    admin: { address: { socket_address: { address: '127.0.0.1', port_value: adminPort } } },
    static_resources: {
      listeners: [
        {
          name: '0.0.0.0_80',
          address: { socket_address: { address: '127.0.0.1', port_value: port } },
          filter_chains: [
            { filters: [{ name: 'envoy.filters.network.http_connection_manager', typed_config: manager }] },
          ],
        },
      ],
      clusters: [
        patchedCluster(cluster(poolCluster(parameters), pods, isPool ? poolBalancing : {}), objects),
        cluster(otherCluster, [other]),
        cluster(syncCluster(parameters), [sync]),
        cluster('nobody', ['127.0.0.1:1']),
      ],
    },
  };
  return patchesOf(objects, 'BOOTSTRAP').reduce((result, { patch }) => merged(result, patch.value), frame);
}

const ask = (text: string): Send => ({
  path: '/v1/chat/completions',
  headers: { host: 'llm.example', 'content-type': 'application/json' },
  body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: text }] }),
});

describe.each(envoyVersions)('Envoy %s', (version) => {
  describe.each(attachModes)('attached by %s', (attach) => {
    const folder = mkdtempSync(join(tmpdir(), 'warmpath-istio-'));
    let pods: Backend[];
    let other: Backend;
    let controlPlane: ControlPlane;
    let envoy: ChildProcess;
    let log = '';
    let port = 0;
    let adminPort = 0;

    const metrics = async (): Promise<string> => (await fetch(`http://127.0.0.1:${adminPort}/stats/prometheus`)).text();
    const state = () => controlPlane.state() as { pools: { gateways: { name: string }[] }[] };

    beforeAll(async () => {
      pods = await Promise.all(['a', 'b', 'c'].map((name) => Backend.start(name)));
      other = await Backend.start('other');
      const endpoints = pods.map(({ endpoint }) => endpoint);
      controlPlane = await startControlPlane({ pools: [{ name: 'llm/vllm', endpoints }], token, scrapeTimeoutMs: 100 });
      [port, adminPort] = [await freePort(), await freePort()];
      const places = {
        pods: endpoints,
        other: other.endpoint,
        sync: `127.0.0.1:${controlPlane.port}`,
        port,
        adminPort,
      };
      const file = join(folder, 'bootstrap.json');
      writeFileSync(file, JSON.stringify(bootstrap(attach, places)));
      envoy = spawn(
        await ensureEnvoy(version),
        ['-c', file, '--concurrency', '2', '--use-dynamic-base-id', '-l', 'warning'],
        {
          env: { ...process.env, WARMPATH_SYNC_TOKEN: token },
          stdio: ['ignore', 'ignore', 'pipe'],
        },
      );
      envoy.stderr?.on('data', (piece: Buffer) => (log += piece.toString()));
      await eventually(`the gateway to sync: ${log}`, () => state().pools[0]?.gateways.length === 1);
      await eventually('every worker to know the pods', async () => {
        const before = picks(await metrics());
        for (let i = 0; i < 8; i++) await send(port, ask('warm up'));
        return picks(await metrics()) === before + 8;
      });
      // Workers look for each other every 50 ms.
      await sleep(200);
    });
    afterAll(async () => {
      const ended = new Promise((resolve) => envoy.once('exit', resolve));
      envoy.kill('SIGKILL');
      await ended;
      await controlPlane.close();
      await Promise.all([...pods, other].map((backend) => backend.close()));
      rmSync(folder, { recursive: true, force: true });
    });

    const same = async (text: string, count: number, more: Partial<Send> = {}): Promise<(string | undefined)[]> => {
      const answers: Answer[] = [];
      for (let i = 0; i < count; i++) {
        answers.push(await send(port, { ...ask(text), ...more }));
        // The other worker hears of an end with the next tick; until then the pod looks busy to it.
        await sleep(TICK_MS);
      }
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
      return answers.map(({ pod }) => pod);
    };

    it('syncs with the token that is in its environment, under the name that Istio gave it', () => {
      expect(state().pools[0]?.gateways.map(({ name }) => name)).toEqual([
        'router~10.0.0.1~gateway-0.llm~llm.svc.cluster.local',
      ]);
    });

    it('requests with the same beginning go to the same pod, all of them', async () => {
      const homes = [];
      for (const topic of ['whales', 'bridges', 'opera', 'volcanoes', 'trains', 'cheese', 'chess', 'kites']) {
        const visited = new Set(await same(`${topic} `.repeat(400), 4));
        expect(visited.size).toBe(1);
        homes.push(...visited);
      }
      expect(new Set(homes).size).toBeGreaterThan(1);
    });

    it("a client's own destination is not obeyed", async () => {
      const text = 'glaciers '.repeat(400);
      const [home] = await same(text, 1);
      const elsewhere = pods.find(({ name }) => name !== home)!;
      const headers = { ...ask(text).headers, 'x-gateway-destination-endpoint': elsewhere.endpoint };
      expect(new Set(await same(text, 4, { headers }))).toEqual(new Set([home]));
    });

    it('the second rule is served, and is not held', async () => {
      const get = await send(port, { method: 'GET', path: '/v1/models', headers: { host: 'llm.example' } });
      expect([get.status, get.pod === undefined]).toEqual([200, false]);
    });

    it('another route of the gateway is untouched', async () => {
      // Workers count for themselves and tell Envoy once in a while.
      await sleep(COUNTERS_MS);
      const before = await metrics();
      const answer = await send(port, { ...ask('tides '.repeat(100)), headers: { host: 'other.example' } });
      expect([answer.status, answer.pod]).toEqual([200, 'other']);
      expect(other.requests.at(-1)?.headers['x-gateway-destination-endpoint']).toBeUndefined();
      await sleep(COUNTERS_MS);
      expect(picks(await metrics())).toBe(picks(before));
    });

    it("the filter's metrics have labels", async () => {
      expect(await metrics()).toMatch(/^warmpath_picks_total\{pool="llm\/vllm",policy="prefill-cost"\} \d+$/m);
      expect(picks(await metrics())).toBeGreaterThan(20);
    });
  });
});

const picks = (text: string): number =>
  [...text.matchAll(/^warmpath_picks_total\{[^}]*\} (\d+)$/gm)].reduce((sum, [, n]) => sum + Number(n), 0);
