// The endpoint picker of the peers bench: absent without EPP_BIN, and wrong in words that name it. A real one is not here.
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { Load } from '../../bench/overhead/load.ts';
import { configFile, endpointsFile, pickerCommand, startPicker } from '../../bench/peers/picker.ts';
import { textOf, type PeersReport } from '../../bench/peers.ts';

const root = dirname(dirname(import.meta.dirname));
const program = '/bin/sh';

test('EPP_BIN and EPP_ARGS name the picker', async () => {
  expect(await pickerCommand({})).toBeNull();
  expect(await pickerCommand({ EPP_BIN: '', EPP_ARGS: '--v=1' })).toBeNull();
  expect(await pickerCommand({ EPP_BIN: program })).toEqual({ command: program, args: [] });
  const args = ['--v=1', '--tracing'];
  expect(await pickerCommand({ EPP_BIN: program, EPP_ARGS: ' --v=1  --tracing ' })).toEqual({ command: program, args });
});

test.each(['/nonexistent/epp', join(root, 'package.json')])(
  '%s is no picker, and EPP_BIN is to blame',
  async (path) => {
    await expect(pickerCommand({ EPP_BIN: path })).rejects.toThrow(`EPP_BIN names no program that can be run: ${path}`);
  },
);

test('a picker that ends at once is an error with what it said', async () => {
  const command = { command: program, args: [] };
  await expect(startPicker(command, ['127.0.0.1:9'])).rejects.toThrow(/EPP_BIN \(\/bin\/sh\) ended:\n.*option/s);
});

test('its files name every worker, and plugins that are there', () => {
  expect(endpointsFile(['127.0.0.1:8000', '10.0.0.2:81'])).toEqual({
    endpoints: [
      { name: 'worker-0', address: '127.0.0.1', port: '8000' },
      { name: 'worker-1', address: '10.0.0.2', port: '81' },
    ],
  });
  const text = JSON.stringify(configFile('/endpoints.yaml'));
  const { plugins } = JSON.parse(text) as { plugins: { name: string; parameters?: object }[] };
  const named = [...text.matchAll(/"pluginRef":"([^"]+)"/g)].map((match) => match[1]);
  expect(named.toSorted()).toEqual(plugins.map(({ name }) => name).toSorted());
  expect(plugins.find(({ name }) => name === 'file-discovery')?.parameters).toEqual({ path: '/endpoints.yaml' });
});

test('without EPP_BIN the report says that the arm is absent', async () => {
  const size = ['--sizes', '1', '--backends', '1', '--rounds', '1', '--requests', '8'];
  const args = [join(root, 'bench/peers.ts'), '--json', '--arms', 'plain,epp', ...size];
  const env = { ...process.env, EPP_BIN: '' };
  const report = JSON.parse((await promisify(execFile)(process.execPath, args, { env })).stdout) as PeersReport;
  expect(report.cells.map(({ arm, pickerUs }) => [arm, pickerUs])).toEqual([['plain', null]]);
  expect(textOf(report).split('\n')).toContain('epp is absent: EPP_BIN names no endpoint picker');
});

test('the load takes bodies in chunks, as Envoy makes them of all that passes a picker', async () => {
  const load = await Load.start(1);
  const server = createServer((request, response) => {
    request.resume().once('end', () => {
      response.write('{');
      setTimeout(() => response.end('"usage":{}}'), 5);
    });
  }).listen(0, '127.0.0.1');
  try {
    const body = new Blob(['x'.repeat(70_000)]).stream();
    const url = `http://${load.endpoints[0]!}/v1/chat/completions`;
    // A stream has no length, so it is sent in chunks. The next request shows that the first left nothing behind.
    const answer = await fetch(url, { method: 'POST', body, duplex: 'half' });
    expect(await answer.json()).toMatchObject({ usage: { prompt_tokens: 17_500 } });
    expect(await (await fetch(url)).text()).toContain('vllm:num_requests_running');
    const { port } = server.address() as AddressInfo;
    const task = { port, sizeBytes: 1024, requests: 4, connections: 2 };
    const { failed, latenciesMs } = await load.run(task);
    expect([failed, latenciesMs.length]).toEqual([0, 4]);
  } finally {
    server.close();
    await load.close();
  }
});
