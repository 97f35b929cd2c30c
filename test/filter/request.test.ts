// One request's way through filter.wasm: what is picked, what is counted, what is learnt, and that all of it ends at zero.

import { beforeEach, describe, expect, test } from 'vitest';
import { chat, Gateway, PATH, podAddress, words } from './gateway.ts';

let gateway: Gateway;
beforeEach(async () => {
  gateway = (await Gateway.start()).settle();
});

describe('a pick', () => {
  test('is a list of three different pods, left in filter state at the end of the body', () => {
    const stream = gateway.roots[0]!.stream({ headers: { ':method': 'POST', ':path': PATH } });
    const body = JSON.stringify(chat(words('s', 4000), 'hello'));
    stream.requestBody(body.slice(0, 100));
    expect(gateway.picks(stream)).toEqual([]);
    stream.requestBody(body.slice(100), true);
    const picks = gateway.picks(stream);
    expect(picks).toHaveLength(3);
    expect(new Set(picks).size).toBe(3);
    for (const pick of picks) expect(gateway.endpoints.map((_, i) => podAddress(i))).toContain(pick);
  });

  test('comes with trailers as well', () => {
    const stream = gateway.roots[0]!.stream({ headers: { ':method': 'POST', ':path': PATH } });
    stream.requestBody(JSON.stringify(chat(words('s', 4000), 'hello')));
    stream.requestTrailers({ 'x-t': '1' });
    expect(gateway.picks(stream)).toHaveLength(3);
  });

  test('goes to the pod that holds the prompt, whoever asks and however it is cut', () => {
    const system = words('shared', 8000);
    const first = gateway.request(0, chat(system, 'one'));
    const home = gateway.picks(first)[0]!;
    gateway.answer(first);
    for (let i = 0; i < 20; i++) {
      const stream = gateway.roots[0]!.stream({ headers: { ':method': 'POST', ':path': PATH } });
      for (const byte of Buffer.from(JSON.stringify(chat(system, `user ${i}`))))
        stream.requestBody(Uint8Array.of(byte));
      stream.requestBody('', true);
      expect(gateway.picks(stream)[0]).toBe(home);
      gateway.answer(stream);
    }
    expect(gateway.metric('warmpath_matched_bytes_total.pool.pool')).toBeGreaterThan(20 * 7500);
  });

  test('spreads different prompts', () => {
    const pods = new Set<string>();
    for (let i = 0; i < 16; i++) pods.add(gateway.picks(gateway.request(0, chat(words(`p${i}-`, 8000), 'x')))[0]!);
    expect(pods.size).toBe(4);
  });

  test('leaves out a pod that is not ready or drains', () => {
    gateway.change(() => {
      gateway.endpoints[0]!.ready = false;
      gateway.endpoints[1]!.drain = true;
    });
    gateway.settle();
    for (let i = 0; i < 20; i++) {
      const picks = gateway.picks(gateway.request(0, chat(words(`q${i}-`, 3000), 'x')));
      expect(picks.length).toBeGreaterThan(0);
      for (const pick of picks) expect([podAddress(2), podAddress(3)]).toContain(pick);
    }
  });

  test('is made and counted, but steers nothing in shadow mode; nothing is made in mode off', () => {
    gateway.change((plane) => (plane.mode = 'shadow'));
    gateway.settle();
    const shadow = gateway.request(0, chat(words('s', 3000), 'x'));
    expect(gateway.picks(shadow)).toEqual([]);
    expect(gateway.metric('warmpath_prompt_bytes_total.pool.pool')).toBeGreaterThan(3000);
    gateway.answer(shadow);
    gateway.change((plane) => (plane.mode = 'off'));
    gateway.settle();
    const before = gateway.metric('warmpath_prompt_bytes_total.pool.pool');
    expect(gateway.picks(gateway.request(0, chat(words('s', 3000), 'x')))).toEqual([]);
    expect(gateway.metric('warmpath_prompt_bytes_total.pool.pool')).toBe(before);
  });
});

describe('a request that cannot be read', () => {
  const body = JSON.stringify(chat(words('s', 3000), 'x'));
  test.each([
    ['not-json', 'this is not JSON', {}],
    ['truncated', body.slice(0, 2000), {}],
    ['encoding', body, { 'content-encoding': 'gzip' }],
    ['too-deep', `{"messages":${'['.repeat(5000)}${']'.repeat(5000)}}`, {}],
  ])('%s: is picked for by load and counted', (reason, text, headers) => {
    const stream = gateway.request(0, text, headers);
    expect(gateway.picks(stream).length).toBeGreaterThan(0);
    expect(gateway.fallbacks(reason)).toBe(1);
    gateway.answer(stream, { status: 400, sse: false });
    gateway.settle();
    expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
  });

  test('another path or method passes without a pick, counted on the pod that answers', () => {
    const other = gateway.request(0, body, { ':path': '/v1/embeddings' });
    const get = gateway.request(0, '', { ':method': 'GET' });
    expect(gateway.picks(other)).toEqual([]);
    expect(gateway.picks(get)).toEqual([]);
    expect(gateway.fallbacks('path')).toBe(1);
    expect(gateway.fallbacks('method')).toBe(1);
    other.properties['upstream.address'] = podAddress(2);
    other.responseHeaders({ ':status': '200', 'content-type': 'application/json' });
    gateway.settle();
    expect(gateway.inFlight()).toEqual([0, 0, 1, 0]);
    other.finish();
    get.finish();
    gateway.settle();
    expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
  });
});

describe('what the answer teaches', () => {
  test('a retry moves the counters to the host that answered, and after a few in a row requests follow it', () => {
    const system = words('moved', 8000);
    const moved = (): number => gateway.metric('warmpath_moved_total.pool.pool');
    let [first, second] = ['', ''];
    // Once both are held to have the text, each is as good as the other.
    for (let i = 0; i < 100 && (i === 0 || moved() < 3); i++) {
      const stream = gateway.request(0, chat(system, `${i}`));
      if (i === 0) [first, second] = gateway.picks(stream) as [string, string];
      stream.properties['upstream.address'] = second;
      stream.responseHeaders({ ':status': '200', 'content-type': 'text/event-stream' });
      gateway.settle();
      const index = Number(second.split('.')[3]!.split(':')[0]) - 1;
      expect(gateway.inFlight()).toEqual([0, 1, 2, 3].map((pod) => (pod === index ? 1 : 0)));
      stream.responseBody('', true);
      stream.finish();
    }
    expect(moved()).toBe(3);
    const next = gateway.request(0, chat(system, 'y'));
    expect(gateway.picks(next)[0]).toBe(second);
    expect(gateway.picks(next)[0]).not.toBe(first);
  });

  test('a pod that fails fast does not draw the traffic', () => {
    const bad = gateway.picks(gateway.request(0, chat(words('a', 3000), 'x')))[0]!;
    let toBad = 0;
    for (let i = 0; i < 100; i++) {
      const stream = gateway.request(0, chat(words(`f${i}`, 3000), 'x'));
      const pick = gateway.picks(stream)[0]!;
      if (pick === bad) toBad++;
      gateway.answer(stream, { status: pick === bad ? 500 : 200 });
      gateway.host.advance(10);
    }
    expect(toBad).toBeLessThan(20);
  });

  test('usage is counted: prompt, cached and predicted tokens', () => {
    const system = words('u', 8000);
    gateway.answer(gateway.request(0, chat(system, 'x')), {
      usage: { prompt_tokens: 2000, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 0 } },
    });
    gateway.answer(gateway.request(0, chat(system, 'y')), {
      usage: { prompt_tokens: 2000, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 1984 } },
    });
    expect(gateway.metric('warmpath_prompt_tokens_total.pool.pool')).toBe(4000);
    expect(gateway.metric('warmpath_cached_tokens_total.pool.pool')).toBe(1984);
    const predicted = gateway.metric('warmpath_predicted_cached_tokens_total.pool.pool');
    expect(predicted).toBeGreaterThan(1800);
    expect(predicted).toBeLessThan(2100);
  });
});

describe('usage of several prompts', () => {
  test('tells of their tokens, and of the last one’s cache only, which teaches nothing', () => {
    const cached = (): number => gateway.metric('warmpath_cached_tokens_total.pool.pool');
    const complete = (prompt: unknown): void => {
      const stream = gateway.request(0, { model: 'm', prompt }, { ':path': '/v1/completions' });
      const usage = { prompt_tokens: 2000, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 16 } };
      gateway.answer(stream, { usage });
    };
    complete(words('one', 4000));
    expect(cached()).toBe(16);
    complete([words('two', 4000), words('three', 4000)]);
    expect(cached()).toBe(16);
    complete([words('four', 4000)]);
    expect(cached()).toBe(32);
    gateway.settle(3000);
    const { outcomes } = gateway.reports.findLast((report) => report.outcomes)!;
    const told = outcomes!.pods.reduce((sum, { promptTokens }) => sum + Number(promptTokens), 0);
    expect(told).toBe(3 * 2000);
  });
});

describe('the first token', () => {
  const created = 'event: response.created\ndata: {"response":{"instructions":"Say \\"a.delta\\"."}}\n\n';
  const delta = 'event: response.output_text.delta\ndata: {"delta":"a"}\n\n';
  const prefill = (): number => {
    gateway.settle(100);
    return gateway.reports.at(-1)!.load!.reduce((sum, load) => sum + load.prefillTokens, 0);
  };
  const begin = (path: string, body: object) => {
    const stream = gateway.request(0, body, { ':path': path });
    stream.properties['upstream.address'] = gateway.picks(stream)[0]!;
    stream.responseHeaders({ ':status': '200', 'content-type': 'text/event-stream' });
    return stream;
  };

  test('of responses comes later than their first events', () => {
    const body = { model: 'm', instructions: words('early', 8000), input: 'x', stream: true };
    const stream = begin('/v1/responses', body);
    stream.responseBody(created);
    expect(prefill()).toBeGreaterThan(1000);
    stream.responseBody(delta.slice(0, 30));
    expect(prefill()).toBeGreaterThan(1000);
    stream.responseBody(delta.slice(30));
    expect(prefill()).toBe(0);
    stream.responseBody('', true);
    stream.finish();
  });

  test('of an answer that is not streamed comes by its own prefill when metrics say that it has begun', async () => {
    // A ten-thousandth of a second a token: 2.5, 5 and 10 s of prefill, in a queue 2.5, 7.5 and 17.5 s.
    const after = async (waiting: number | null, ms: number, toldMs = 0, ttftMs = 0): Promise<number> => {
      gateway = (await Gateway.start({ pods: 1 })).settle();
      for (const bytes of [100_000, 200_000, 400_000]) {
        gateway.request(0, chat(words(`whole${bytes}`, bytes), 'x', { stream: false }));
        gateway.settle(20);
      }
      const all = prefill();
      expect(all).toBeGreaterThan(150_000);
      const ttftRequests = ttftMs > 0 ? 3 : 0;
      const told = { running: 1, waiting, kvUsage: 0, ageMs: 0, stale: false, ttftMs, ttftRequests };
      gateway.settle(toldMs);
      gateway.plane.metrics = [{ podId: 1, ...told }];
      // Those that are told late are told once, others each time anew.
      gateway.settle(toldMs > 0 ? 200 : ms);
      if (toldMs > 0) {
        gateway.plane.metrics = [];
        gateway.settle(ms - toldMs - 200);
      }
      return Math.round((prefill() / all) * 7);
    };
    // Without them only the first is due, and none while all wait.
    expect(await after(null, 5500)).toBe(6);
    expect(await after(3, 5500)).toBe(7);
    expect(await after(1, 5500)).toBe(4);
    expect(await after(1, 11_000)).toBe(4);
    expect(await after(0, 11_000)).toBe(0);
    // One that waits still after 5 s has all of its prefill before it.
    expect(await after(null, 9000, 5000)).toBe(4);
    expect(await after(2, 9000, 5000)).toBe(6);
    expect(await after(2, 11_000, 5000)).toBe(4);
    // An engine that is ten times as fast: 91,700 tokens were before the first tokens on average.
    expect(await after(1, 1000, 0, 917)).toBe(4);
    expect(await after(0, 1500, 0, 917)).toBe(0);
  });

  test('of a chat comes with its first bytes', () => {
    const stream = begin(PATH, chat(words('chat', 8000), 'x'));
    expect(prefill()).toBeGreaterThan(1000);
    stream.responseBody('data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n');
    expect(prefill()).toBe(0);
    stream.finish();
  });
});

describe('in flight', () => {
  /** Every way in which a request can end, as the host plays it. */
  const endings: ((gateway: Gateway, i: number) => void)[] = [
    (g, i) => g.answer(g.request(0, chat(words(`e${i % 7}`, 2000), 'x'))),
    (g, i) => g.answer(g.request(0, chat(words(`e${i % 7}`, 2000), 'x')), { sse: false }),
    (g) => g.request(0, chat(words('gone', 2000), 'x')).finish(), // client gone before an answer
    (g) => {
      const stream = g.request(0, chat(words('reset', 2000), 'x'));
      stream.properties['upstream.address'] = g.picks(stream)[0]!;
      stream.responseHeaders({ ':status': '200', 'content-type': 'text/event-stream' });
      stream.responseBody('data: {}\n\n');
      stream.finish({ 'response.flags': 1 << 6 }); // the engine died mid-stream
    },
    (g) => g.answer(g.request(0, chat(words('c', 2000), 'x')), { status: 400, sse: false }),
    (g) => g.answer(g.request(0, chat(words('c', 2000), 'x')), { status: 500, sse: false }),
    (g) => {
      const stream = g.request(0, chat(words('timeout', 2000), 'x'));
      stream.responseHeaders({ ':status': '504', 'content-type': 'text/plain' }); // Envoy's own answer
      stream.responseBody('upstream request timeout', true);
      stream.finish({ 'response.flags': 1 << 2 });
    },
    (g) => {
      const stream = g.roots[0]!.stream({ headers: { ':method': 'POST', ':path': PATH } });
      stream.requestBody('{"messages":[{"role":"us');
      stream.responseHeaders({ ':status': '413' });
      stream.finish(); // the hold limit answered in the middle of the body
    },
    (g) => g.roots[0]!.stream({ headers: { ':method': 'POST', ':path': PATH } }).finish(),
    (g) => g.answer(g.request(0, chat(words('m', 2000), 'x')), { upstream: podAddress(3) }),
  ];

  test('is zero on every pod after 10,000 requests that end in every way, and memory has not grown', () => {
    const { memory } = gateway.host.vm('worker-1');
    const before = memory.bytes;
    const late: (() => void)[] = [];
    for (let i = 0; i < 10_000; i++) {
      endings[i % endings.length]!(gateway, i);
      if (i % 50 === 0) {
        const stream = gateway.request(0, chat(words(`late${i}`, 1500), 'x'));
        late.push(() => gateway.answer(stream));
      }
      if (late.length > 20) late.shift()!();
      if (i % 100 === 0) gateway.host.advance(5);
      gateway.host.logs.length = 0;
    }
    for (const end of late) end();
    gateway.settle(60_000);
    expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
    expect(gateway.reports.at(-1)!.load!.map((load) => [load.inFlight, load.prefillTokens, load.usedTokens])).toEqual(
      [0, 1, 2, 3].map(() => [0, 0, 0]),
    );
    expect(memory.bytes).toBe(before);
  });
});

test('a VM with room for 64 pods, 400,000 blocks and 4,096 requests at a time takes less than 32 MB', async () => {
  const full = await Gateway.start({ config: { bounds: { pods: 64, blocks: 400_000, streams: 4096 } } });
  expect(full.host.vm('worker-1').memory.bytes).toBeLessThan(32_000_000);
});
