// The steps of a fuzzing run, as fast-check draws them. Fields named `at` stand for one of however many there are when the step's turn comes.

import fc from 'fast-check';
import { mappedAddress } from './control-plane.ts';
import { chat, words } from './gateway.ts';

const pods = 6;

export const address = (pod: number): string => `10.0.0.${pod + 1}:8000`;

/** A number that stands for one of a list, however long that is when its turn comes. */
const which = fc.nat(1000);
const u32 = fc.oneof(fc.nat(8), fc.integer({ min: 0, max: 0xffff_ffff }), fc.constant(0xffff_ffff));
const u64 = fc.oneof(fc.bigInt(0n, 200n), fc.bigInt(0n, (1n << 64n) - 1n));
const f32 = fc.oneof(fc.constant(0), fc.float({ min: 0, max: Math.fround(3e38), noNaN: true }), fc.constantFrom(1, 4));
const f64 = fc.oneof(fc.nat(1000), fc.double({ min: 0, max: 1.7e308, noNaN: true }), fc.constant(1_700_000_000_000));
const podId = fc.oneof(
  { weight: 5, arbitrary: fc.integer({ min: 1, max: pods }) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 0xffff_ffff }) },
);
const list = <T>(item: fc.Arbitrary<T>, maxLength = 8): fc.Arbitrary<T[]> => fc.array(item, { maxLength });
const maybe = <T>(item: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(item, { nil: undefined, freq: 1 });

const touch = fc.record({
  podId,
  clear: fc.boolean(),
  timeMs: f64,
  parentKey: u64,
  keys: list(u64, 20),
  weights: list(fc.oneof(fc.nat(4096), u32), 20),
});

const settings = fc.record({
  mode: fc.constantFrom('off' as const, 'shadow' as const, 'active' as const, 'active' as const),
  policy: fc.oneof(fc.nat(3), fc.nat(255)),
  toolsPosition: fc.constantFrom('auto' as const, 'after-system' as const, 'first' as const),
  blockBytes: fc.oneof(fc.constant(256), fc.integer({ min: 16, max: 65_536 })),
  windowBytes: fc.oneof(fc.constant(0), u32),
  syncIntervalMs: fc.integer({ min: 1, max: 60_000 }),
  bytesPerToken: f32,
  weights: fc.record({ prefix: f32, queue: f32, kv: f32 }),
});

const endpoint = fc.record({
  podId,
  address: fc.oneof(
    fc.nat(pods).map((pod) => mappedAddress(`10.0.0.${pod + 1}`)),
    fc.uint8Array({ minLength: 16, maxLength: 16 }),
  ),
  port: fc.oneof(fc.constant(8000), fc.integer({ min: 1, max: 65_535 })),
  ready: fc.boolean(),
  drain: fc.boolean(),
  weight: f32,
  capacityTokens: u32,
  startedSeconds: f64,
});

const content = fc.record({
  kind: fc.constantFrom('delta' as const, 'snapshot' as const, 'segment' as const, 'report' as const),
  epoch: u64,
  sequence: u64,
  isOurs: fc.boolean(),
  settingsVersion: u32,
  flags: fc.subarray(['more' as const, 'wantTable' as const, 'wantSnapshot' as const, 'table' as const]),
  pool: maybe(settings),
  secret: fc.uint8Array({ minLength: 32, maxLength: 32 }),
  endpoints: list(endpoint),
  load: maybe(
    list(fc.record({ podId, inFlight: u32, prefillTokens: u32, usedTokens: u32, ageMs: u32, slowness: f32 })),
  ),
  metrics: maybe(
    list(
      fc.record({
        podId,
        running: fc.option(u32),
        waiting: fc.option(u32),
        kvUsage: fc.option(f32),
        ageMs: u32,
        stale: fc.boolean(),
        ttftMs: f32,
        ttftRequests: u32,
      }),
    ),
  ),
  touches: maybe(list(touch, 4)),
  gateway: maybe(fc.record({ incarnation: u64, touchesNext: u64, workers: u32 })),
});
export type Content = typeof content extends fc.Arbitrary<infer T> ? T : never;

const spoil = fc.oneof(
  { weight: 6, arbitrary: fc.constant({ how: 'not' as const, at: 0 }) },
  {
    weight: 1,
    arbitrary: fc.record({
      how: fc.constantFrom('cut' as const, 'flip' as const, 'twice' as const, 'tail' as const),
      at: which,
    }),
  },
);

const bodies = fc.oneof(
  fc.nat(5).map((seed) => JSON.stringify(chat(words(`s${seed}-`, 3000), `user ${seed}`))),
  fc.record({ seed: fc.nat(2), turns: fc.nat(40) }).map(({ seed, turns }) =>
    JSON.stringify({
      model: 'm',
      stream: turns % 2 === 0,
      messages: Array.from({ length: turns }, (_, i) => ({ role: 'user', content: words(`t${seed}${i}`, 300) })),
    }),
  ),
  fc.constantFrom('', '{', '{}', 'null', '['.repeat(2000), '{"messages":[{"content":"\\ud800', '\u0000'),
  fc.json({ maxDepth: 4 }),
);

const answers = fc.oneof(
  fc.constantFrom(
    'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    'data: {"usage":{"prompt_tokens":700,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":512}}}\r\n\r\n',
    '{"usage":{"prompt_tokens":4294967295,"completion_tokens":99999999999,"prompt_tokens_details":{"cached_tokens":1e300}}}',
    '{"usage":{"input_tokens":1,"output_tokens":0,"cache_read_input_tokens":5}}',
    'data: [DONE]\n\n',
    '',
    'data: {"usage":{"prompt_tokens":',
  ),
  fc.string({ maxLength: 40 }),
);

const paths = fc.constantFrom(
  '/v1/chat/completions',
  '/v1/chat/completions',
  '/v1/chat/completions?x',
  '/v1/completions',
  '/v1/responses',
  '/v1/messages',
  '/v1/embeddings',
  '/',
  '',
);
const statuses = fc.constantFrom('200', '200', '200', '400', '429', '500', '503', '101', '', 'x');
const upstreams = fc.oneof(fc.nat(pods).map(address), fc.constantFrom('', '10.0.0.1', '[::1]:8000', undefined));
const callbacks = fc.constantFrom(
  'proxy_on_request_headers',
  'proxy_on_request_body',
  'proxy_on_request_trailers',
  'proxy_on_response_headers',
  'proxy_on_response_body',
  'proxy_on_response_trailers',
  'proxy_on_log',
  'proxy_on_done',
);

const configuration = fc.oneof(
  { weight: 3, arbitrary: fc.constant('{"pool":"POOL","sync":{"cluster":"warmpath"}}') },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      '{"pool":"other","sync":{"cluster":"warmpath"}}',
      '{"pool":"POOL"}',
      '{"pool":"POOL","sync":{"cluster":"nowhere"}}',
      '{"pool":"POOL","clusters":["pool-cluster"],"sync":{"cluster":"warmpath","intervalMs":1}}',
      '{"pool":"POOL","bounds":{"pods":1024,"streams":1}}',
      '{"pool":1}',
      '{"po',
      '',
    ),
  },
);

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('chat' as const), at: which, seed: fc.nat(5) }) },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('open' as const),
      at: which,
      path: paths,
      method: fc.constantFrom('POST', 'POST', 'POST', 'GET', ''),
      encoding: fc.constantFrom(undefined, undefined, 'gzip', 'identity'),
      end: fc.nat(9).map((n) => n === 0),
    }),
  },
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constant('request' as const),
      at: which,
      body: bodies,
      cuts: fc.nat(3),
      end: fc.boolean(),
      trailers: fc.boolean(),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('head' as const),
      at: which,
      status: statuses,
      type: fc.constantFrom('text/event-stream', 'application/json', ''),
      upstream: upstreams,
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('answer' as const), at: which, body: answers, end: fc.boolean() }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('finish' as const),
      at: which,
      upstream: upstreams,
      flags: fc.constantFrom(undefined, 0, 4, 16, 64, 1 << 30),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('odd' as const),
      at: which,
      callback: callbacks,
      context: fc.option(u32),
      bytes: u32,
      end: fc.nat(1),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('odd-root' as const), at: which, context: fc.option(u32), call: u32 }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      ms: fc.oneof(
        { weight: 6, arbitrary: fc.nat(20) },
        { weight: 4, arbitrary: fc.nat(400) },
        { weight: 1, arbitrary: fc.nat(4000) },
      ),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('clock' as const), ms: fc.integer({ min: -3_600_000, max: 3_600_000 }) }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('sync' as const),
      at: which,
      status: fc.constantFrom(200, 200, 200, 200, 404, 503),
      frames: list(content, 3),
      spoil,
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('good-sync' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('configure' as const), at: which, plugin: fc.nat(1), text: configuration }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('retire' as const), at: which, plugin: fc.nat(1) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const), at: which }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('write' as const),
      at: which,
      value: fc.oneof(fc.uint8Array({ maxLength: 64 }), content, which),
      spoil,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('wipe' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('deaf' as const), isDeaf: fc.boolean() }) },
);
export type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

export const runs = (maxLength: number): fc.Arbitrary<{ isSettled: boolean; steps: Step[] }> =>
  fc.record({ isSettled: fc.nat(4).map((n) => n > 0), steps: fc.array(step, { maxLength, size: 'max' }) });
