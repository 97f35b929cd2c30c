// What a request costs in host calls: in Envoy one that brings bytes takes 0.8 us and one that brings none 0.1 to 0.2 us, so the number of
// them is pinned here. A change that needs more must say so by changing these tests.
import { expect, test } from 'vitest';
import { chat, Gateway, podAddress, words } from './gateway.ts';

/** The calls that a worker's VM makes while `run` runs, by name. */
function calls(gateway: Gateway, run: () => void, worker = 'worker-1'): Record<string, number> {
  const { hostCalls } = gateway.host.vm(worker);
  hostCalls.clear();
  run();
  return Object.fromEntries([...hostCalls].map(([name, count]) => [name.replace('proxy_', ''), count]));
}

async function start(workers: number): Promise<Gateway> {
  const gateway = (await Gateway.start({ workers })).settle();
  gateway.answer(gateway.request(0, chat(words('warm', 600), 'x')));
  // A moment after a tick, so that none comes in between and what siblings wrote is read anew.
  gateway.settle(302);
  return gateway;
}

test('a request of 1 KiB that is not streamed', async () => {
  const gateway = await start(2);
  const body = { ...chat(words('s', 800), 'x'), stream: false };
  const made = calls(gateway, () => {
    const stream = gateway.request(0, body);
    const [pod] = gateway.picks(stream);
    stream.responseHeaders({
      ':status': '200',
      'content-type': 'application/json',
      'x-gateway-destination-endpoint-served': pod!,
    });
    stream.responseBody('{"usage":{"prompt_tokens":200,"completion_tokens":9}}', true);
    stream.finish();
  });
  expect(made).toEqual({
    // Headers of the request and of the answer.
    get_header_map_pairs: 2,
    // Both bodies.
    get_buffer_bytes: 2,
    // At the pick.
    get_current_time_nanoseconds: 1,
    set_property: 1,
    // One sibling's head; and, since no tick has looked for 5 ms and a sync was meanwhile, how far the gateway is, settings and metrics.
    get_shared_data: 1 + 3,
    // The pick's record and the head with it, and the head when the request is over.
    set_shared_data: 3,
  });
});

test('an answer whose chain does not name the pod costs one call more', async () => {
  const gateway = await start(1);
  const made = calls(gateway, () => {
    const stream = gateway.request(0, chat(words('s', 800), 'x'));
    stream.properties['upstream.address'] = gateway.picks(stream)[0]!;
    stream.responseHeaders({ ':status': '200', 'content-type': 'text/event-stream' });
  });
  expect(made).toEqual({
    get_header_map_pairs: 2,
    get_buffer_bytes: 1,
    get_current_time_nanoseconds: 1,
    get_property: 1,
    set_property: 1,
    // How far the gateway is, settings and metrics.
    get_shared_data: 3,
    set_shared_data: 2,
  });
});

test('an event of a streamed answer behind the first', async () => {
  const gateway = await start(2);
  const stream = gateway.request(0, chat(words('s', 800), 'x'));
  stream.responseHeaders({
    ':status': '200',
    'content-type': 'text/event-stream',
    'x-gateway-destination-endpoint-served': gateway.picks(stream)[0]!,
  });
  const event = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n';
  stream.responseBody(event);
  const made = calls(gateway, () => {
    for (let i = 0; i < 100; i++) stream.responseBody(event);
  });
  expect(made).toEqual({ get_buffer_bytes: 100 });
  stream.finish();
});

test('requests within a millisecond read siblings once and tell of ends once', async () => {
  const gateway = await start(4);
  const made = calls(gateway, () => {
    for (let i = 0; i < 10; i++) {
      const stream = gateway.request(0, chat(words(`s${i}`, 800), 'x'));
      stream.responseHeaders({ ':status': '200', 'x-gateway-destination-endpoint-served': gateway.picks(stream)[0]! });
      stream.finish();
    }
  });
  expect(made).toMatchObject({ get_shared_data: 3 + 3, set_shared_data: 21 });
});

test('a tick without anything new, of a VM that does not lead and looks for no new sibling', async () => {
  const gateway = await start(2);
  // It ticks once in 50 ms while no request is under way. Nothing is new while the control plane does not answer.
  gateway.answers = false;
  gateway.settle();
  const made = Array.from({ length: 8 }, () => calls(gateway, () => gateway.host.advance(50), 'worker-2'));
  // The time; how far the gateway is, which tells whether anything is new, and one sibling's head.
  const cheap = { get_current_time_nanoseconds: 1, get_shared_data: 2 };
  // Every second one looks for new siblings, and one in a while renews what says that this VM lives.
  expect(made.filter((calls) => JSON.stringify(calls) === JSON.stringify(cheap)).length).toBeGreaterThanOrEqual(3);
  for (const { get_shared_data } of made) expect(get_shared_data).toBeLessThanOrEqual(7);
});

test('the pod that the chain names is believed before the property', async () => {
  const gateway = await start(1);
  const stream = gateway.request(0, chat(words('s', 800), 'x'));
  const other = [podAddress(0), podAddress(1)].find((pod) => pod !== gateway.picks(stream)[0])!;
  stream.properties['upstream.address'] = gateway.picks(stream)[0]!;
  stream.responseHeaders({ ':status': '200', 'x-gateway-destination-endpoint-served': other });
  expect(gateway.metric('warmpath_moved_total.pool.pool')).toBe(1);
  stream.finish();
});
