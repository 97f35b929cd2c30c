// Names that are one model: a prompt that was sent under one of them is found under the others, and no other name is taken for one of them.

import { expect, test } from 'vitest';
import { adapterHash } from '../../control-plane/scrape.ts';
import { chat, Gateway, words } from './gateway.ts';

const group = adapterHash('base');
const aliases = ['base', 'base-alias'].map((name) => ({ name: adapterHash(name), group }));

/** Bytes of a prompt under a name that the picked pod is believed to hold. */
function matched(gateway: Gateway, model: string, text: string): number {
  const name = 'warmpath_matched_bytes_total.pool.pool';
  const before = gateway.metric(name);
  gateway.answer(gateway.request(0, chat(text, 'x', { model })));
  return gateway.metric(name) - before;
}

test('a prompt is found under each name of its model, whichever came first, and under no other', async () => {
  const gateway = await Gateway.start();
  gateway.change((plane) => (plane.aliases = aliases));
  gateway.settle();
  for (const [first, second] of [
    ['base', 'base-alias'],
    ['base-alias', 'base'],
  ] as const) {
    const text = words(first, 6000);
    expect(matched(gateway, first, text)).toBe(0);
    expect(matched(gateway, 'other', text)).toBe(0);
    expect(matched(gateway, 'base-aliaS', text)).toBe(0);
    expect(matched(gateway, second, text)).toBeGreaterThan(5500);
  }
});

test('settings without such names leave them as they are, an empty list ends them', async () => {
  const gateway = await Gateway.start();
  gateway.change((plane) => (plane.aliases = aliases));
  gateway.settle();
  expect(matched(gateway, 'base', words('a', 6000))).toBe(0);
  gateway.change((plane) => (plane.aliases = undefined));
  gateway.settle();
  expect(matched(gateway, 'base-alias', words('a', 6000))).toBeGreaterThan(5500);
  gateway.change((plane) => (plane.aliases = []));
  gateway.settle();
  expect(matched(gateway, 'base', words('b', 6000))).toBe(0);
  expect(matched(gateway, 'base-alias', words('b', 6000))).toBe(0);
});

test('a salt keeps caches apart under all names, and more names than there is room for are left out', async () => {
  const gateway = await Gateway.start();
  const many = Array.from({ length: 100 }, (_, i) => ({ name: adapterHash(`filler-${i}`), group: 5 }));
  gateway.change((plane) => (plane.aliases = [...aliases, ...many]));
  gateway.settle();
  const text = words('salted', 6000);
  const name = 'warmpath_matched_bytes_total.pool.pool';
  gateway.answer(gateway.request(0, chat(text, 'x', { model: 'base', cache_salt: 'mine' })));
  gateway.answer(gateway.request(0, chat(text, 'x', { model: 'base-alias', cache_salt: 'yours' })));
  expect(gateway.metric(name)).toBe(0);
  gateway.answer(gateway.request(0, chat(text, 'x', { model: 'base-alias', cache_salt: 'mine' })));
  expect(gateway.metric(name)).toBeGreaterThan(5500);
});
