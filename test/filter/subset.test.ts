// A request that a part of the gateway has bound to some of the pods: it goes to one of them, or is answered 503. And the headers by which
// clients ask a picker for more than a place.

import { beforeEach, describe, expect, test } from 'vitest';
import { encodePairs } from '../host/abi.ts';
import type { Stream } from '../host/host.ts';
import { chat, Gateway, PATH, podAddress, words } from './gateway.ts';

const HINT = 'metadata.filter_metadata.envoy.lb.subset_hint.x-gateway-destination-endpoint-subset';

let gateway: Gateway;
beforeEach(async () => {
  gateway = (await Gateway.start({ config: { subsetHint: true } })).settle();
});

let asked = 0;
function request(hint: string | Uint8Array | undefined, headers: Record<string, string> = {}): Stream {
  const stream = gateway.roots[0]!.stream({
    headers: { ':method': 'POST', ':path': PATH, ...headers },
    properties: hint === undefined ? {} : { [HINT]: hint },
  });
  stream.requestBody(JSON.stringify(chat(words(`p${asked++}-`, 3000), 'x')), true);
  return stream;
}
const list = (...addresses: string[]): Uint8Array => encodePairs(addresses.map((address) => [address, '']));

describe('a subset', () => {
  test.each([
    ['a text', `${podAddress(1)},${podAddress(3)}`],
    ['a text with blanks and gaps', ` ${podAddress(3)} ,, ${podAddress(1)} ,`],
    ['a list', list(podAddress(3), podAddress(1))],
    ['a list with one that is no pod', list('10.9.9.9:1', podAddress(3), '', podAddress(1))],
  ])('as %s has all the picks', (_, hint) => {
    for (let i = 0; i < 12; i++) {
      expect(gateway.picks(request(hint)).toSorted()).toEqual([podAddress(1), podAddress(3)]);
    }
  });

  test('of more addresses than are looked at is bound to the first of them', () => {
    const strangers = Array.from({ length: 1023 }, () => '10.9.9.9:1');
    expect(gateway.picks(request([...strangers, podAddress(2), podAddress(0)].join()))).toEqual([podAddress(2)]);
    expect(gateway.picks(request(list(...strangers, podAddress(2), podAddress(0))))).toEqual([podAddress(2)]);
    expect(request(','.repeat(500_000)).localResponse?.status).toBe(503);
  });

  test('bounds one request, not the next', () => {
    request(podAddress(0));
    expect(gateway.picks(request(undefined))).toHaveLength(3);
  });

  test.each([
    ['empty text', ''],
    ['empty list', list()],
    ['text of strangers', '10.9.9.9:1,nonsense'],
    ['list cut off', list(podAddress(0), podAddress(1)).subarray(0, 24)],
    ['list that says it is long', Uint8Array.of(255, 255, 255, 0, 0, 0, 0, 0)],
    ['three bytes', Uint8Array.of(0, 0, 0)],
  ])('%s is answered 503 and counted', (_, hint) => {
    const stream = request(hint);
    expect(stream.localResponse?.status).toBe(503);
    expect(gateway.picks(stream)).toEqual([]);
    stream.finish();
    expect(gateway.metric('warmpath_subset_refused_total.pool.pool')).toBe(1);
    expect(gateway.metric('warmpath_unpicked_total.pool.pool')).toBe(0);
    expect(gateway.inFlight()).toEqual([0, 0, 0, 0]);
    expect(gateway.picks(request(undefined))).toHaveLength(3);
  });

  test('of a pod that is not ready is answered 503', () => {
    gateway.change(() => (gateway.endpoints[2]!.ready = false));
    gateway.settle();
    expect(request(podAddress(2)).localResponse?.status).toBe(503);
  });

  test('refuses nothing in mode shadow', () => {
    gateway.change((plane) => (plane.mode = 'shadow'));
    gateway.settle();
    expect(request('').localResponse).toBeUndefined();
  });

  test('is not looked for unless the configuration says so', async () => {
    gateway = (await Gateway.start()).settle();
    expect(gateway.picks(request(podAddress(0)))).toHaveLength(3);
  });
});

test('priority and fair share are counted, whichever of their names they have', () => {
  request(undefined, { 'x-gateway-inference-objective': 'batch' });
  request(undefined, { 'x-llm-d-inference-objective': 'batch', 'x-gateway-inference-fairness-id': 'tenant' });
  request(undefined, { 'x-llm-d-inference-fairness-id': 'tenant' });
  request(undefined);
  expect(gateway.metric('warmpath_unordered_total.pool.pool.reason.objective')).toBe(2);
  expect(gateway.metric('warmpath_unordered_total.pool.pool.reason.fairness')).toBe(2);
});
