// Whatever fails while closing, the rest must still be closed: an Envoy left behind is worse than an error message.

import { expect, it } from 'vitest';
import { Closers } from '../../cli/closers.ts';

it('closes in reverse order, goes on after a failure, and names it', async () => {
  const closed: string[] = [];
  const closers = new Closers();
  closers.add('first', () => closed.push('first'));
  closers.add('broken', () => {
    throw new Error('no');
  });
  closers.add('last', async () => closed.push('last'));
  expect(await closers.closeAll()).toEqual(['broken']);
  expect(closed).toEqual(['last', 'first']);
  expect(await closers.closeAll()).toEqual([]);
});
