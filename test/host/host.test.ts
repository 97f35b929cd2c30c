// The Node host against the probe filter: what the bindings of filter/proxy-wasm see must be what the host meant, and the host's
// answers must be Envoy's. test/envoy/probe.test.ts runs the same story in a real Envoy.

import { describe, expect, test } from 'vitest';
import { ConfigurationRefused, WasmHost, wasmModule } from './host.ts';
import {
  callStories,
  storyEnvironment,
  requestStory,
  startStory,
  storyConfiguration,
  storyPath,
  storyRequest,
  storyResponse,
} from './story.ts';

const probe = wasmModule('probe');
const request = { ':path': '/v1/chat/completions', ':method': 'POST' };

function start(configuration = '') {
  const host = new WasmHost(probe);
  const root = host.vm('worker-1').plugin('probe', configuration);
  return { host, root };
}

describe('plugins', () => {
  test('a refused configuration throws and leaves the old root in service', () => {
    const { host, root } = start('one');
    expect(() => root.reconfigure('refuse')).toThrow(ConfigurationRefused);
    root.stream({ headers: request }).finish();
    expect(host.logged('request_headers')).toHaveLength(1);
  });

  test('a new configuration makes a new root, and the old one ticks on until the drain time has passed', () => {
    const host = new WasmHost(probe, { drainMs: 30 });
    const root = host.vm('worker-1').plugin('probe', 'tick');
    const [ended, open] = [root.stream({ headers: request }), root.stream({ headers: request })];
    const next = root.reconfigure('tick');
    const tickers = (): number[] => host.logged('tick ').map((line) => Number(line.split(' ')[1]));
    ended.finish();
    host.advance(20);
    expect(tickers()).toEqual([root.id, next.id, root.id, next.id]);
    host.advance(20);
    expect(tickers().slice(-1)).toEqual([next.id]);
    expect(
      host.logs
        .map(({ message }) => message)
        .filter((line) => /^(log|done|delete)/.test(line))
        .slice(-5),
    ).toEqual([`log ${open.id}  - -`, `done ${open.id}`, `delete ${open.id}`, `done ${root.id}`, `delete ${root.id}`]);
    expect(host.logs.some(({ message }) => message === `delete ${next.id}`)).toBe(false);
  });
});

describe('streams', () => {
  test('see the bytes of each chunk, and the request headers only in the header callback and the log', () => {
    const { host, root } = start(storyConfiguration);
    const headers = { ...request, ':path': storyPath };
    const stream = root.stream({ headers, properties: { 'xds.cluster_name': 'pool' } });
    stream.requestBody(storyRequest);
    stream.requestBody('', true);
    stream.responseHeaders({ ':status': '200' });
    stream.responseBody(storyResponse);
    stream.responseBody('', true);
    stream.finish({ 'upstream.address': '10.0.0.1:80' });
    const lines = host.logs.map(({ message }) => message);
    expect(lines).toEqual([...startStory('probe'), ...requestStory(stream.id, root.id, 'pool', '10.0.0.1:80')]);
  });

  test('leave their pick in filter state when the body or the trailers end', () => {
    const { root } = start();
    const headers = { ...request, 'x-probe-pick': '10.0.0.1:80,10.0.0.2:80' };
    const byBody = root.stream({ headers });
    byBody.requestBody('{');
    expect(byBody.filterState('warmpath.pick')).toBeUndefined();
    byBody.requestBody('}', true);
    expect(byBody.filterState('warmpath.pick')).toBe('10.0.0.1:80,10.0.0.2:80');
    const byTrailers = root.stream({ headers });
    byTrailers.requestBody('{}');
    byTrailers.requestTrailers({ grpc: '1' });
    expect(byTrailers.filterState('warmpath.pick')).toBe('10.0.0.1:80,10.0.0.2:80');
  });

  test('a trap says where, throws, and ends the VM', () => {
    const { host, root } = start();
    expect(() => root.stream({ headers: { ...request, 'x-probe-trap': 'yes' } })).toThrow(/request_headers trapped/);
    expect(host.logged('abort: ')).toEqual([
      expect.stringMatching(/^abort: Index out of range at [\w~/.-]+\.ts:\d+:\d+$/),
    ]);
    expect(host.vm('worker-1').trap).toBeDefined();
  });

  test('memory does not grow with requests', () => {
    const { host, root } = start();
    const { memory } = host.vm('worker-1');
    const before = memory.bytes;
    const body = new Uint8Array(64 << 10).fill(97);
    for (let i = 0; i < 2000; i++) {
      host.logs.length = 0;
      const stream = root.stream({ headers: request });
      stream.requestBody(body, true);
      stream.finish();
    }
    expect(memory.bytes).toBe(before);
  });
});

test.each(callStories)('the calls of "%s" answer as in Envoy', (name, line) => {
  const host = new WasmHost(probe, { environment: storyEnvironment });
  const headers = { ...request, 'x-probe-do': name, 'x-probe-removed': 'here', 'x-probe-replaced': 'old' };
  const stream = host.vm('worker-1').plugin('probe').stream({ headers });
  expect(host.logged('do ')).toEqual([expect.stringMatching(line)]);
  expect(stream.localResponse?.status).toBe(name === 'respond' ? 418 : undefined);
});

describe('what VMs share', () => {
  test('ticks of two VMs count one shared value by compare-and-set, and the base VM does not tick', () => {
    const host = new WasmHost(probe);
    for (const name of ['worker-1', 'worker-2']) host.vm(name).plugin('probe', 'tick');
    host.vm('base', { ticks: false }).plugin('probe', 'tick');
    host.advance(100);
    expect(host.logged('tick ')).toHaveLength(20);
    expect(host.shared.get('probe.ticks')?.bytes).toEqual(Uint8Array.of(20, 0, 0, 0, 0, 0, 0, 0));
  });

  test('a compare-and-set creates an absent key whatever the version, and never overwrites a newer value', () => {
    const { shared } = new WasmHost(probe);
    expect(shared.set('a', Uint8Array.of(1), 77)).toBe(0);
    expect(shared.set('a', Uint8Array.of(2), 77)).toBe(8);
    expect(shared.set('a', Uint8Array.of(3), shared.get('a')!.cas)).toBe(0);
    expect(shared.set('a', Uint8Array.of(4))).toBe(0);
    expect(shared.get('a')!.bytes).toEqual(Uint8Array.of(4));
  });

  test('metrics are shared', () => {
    const host = new WasmHost(probe);
    const roots = ['worker-1', 'worker-2'].map((name) => host.vm(name).plugin('probe'));
    const streams = roots.map((root) => root.stream({ headers: request }));
    expect(host.metrics.value('warmpath_probe_open')).toBe(2);
    for (const stream of streams) stream.finish();
    expect(host.metrics.value('warmpath_probe_open')).toBe(0);
    expect(host.metrics.matching('probe_requests')).toEqual({ 'warmpath_probe_requests_total.pool.p.result.ok': 2 });
  });
});

describe('calls', () => {
  test('carry headers and body, and the answer reaches the filter', () => {
    const { host } = start('call');
    host.advance(10);
    const [call] = host.calls;
    expect(call!.cluster).toBe('warmpath');
    expect(call!.header(':path')).toBe('/v1/sync');
    expect(Buffer.from(call!.body).toString()).toBe('probe.ticks');
    call!.answer({ status: 201, body: 'answered' });
    expect(host.logged('answer')).toEqual(['answer 1 201 8 0 8 answered']);
  });

  test('time out with 504, and answer themselves by onCall', () => {
    const { host } = start('call');
    host.advance(1011);
    expect(host.logged('answer')[0]).toMatch(/^answer 1 504 /);
    host.onCall = () => ({ body: 'auto' });
    host.advance(10);
    expect(host.calls.size).toBe(0);
    expect(host.logged('auto').length).toBeGreaterThan(0);
  });

  test('an unknown cluster fails at the call', () => {
    const host = new WasmHost(probe, { clusters: [] });
    host.vm('worker-1').plugin('probe', 'call');
    host.advance(10);
    expect(host.logged('tick')).toEqual(['tick 1 1 0 2']);
  });

  test('an answer of 1 MiB is read in one piece; a larger one is refused with a status, not a trap', () => {
    const { host } = start('call');
    host.onCall = () => ({ body: new Uint8Array(1 << 20).fill(97) });
    host.advance(10);
    host.onCall = () => ({ body: new Uint8Array((1 << 20) + 1).fill(97) });
    host.advance(10);
    expect(host.logged('answer')).toEqual(['answer 1 200 1048576 0 1048576 aaaaaaaa', 'answer 1 200 1048577 6 0 ']);
  });
});
