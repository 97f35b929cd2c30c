// The outages that matter most, in short: nobody fails or hangs, and picks are right again. `npm run outages` tries all of them, for longer.

import { expect, test } from 'vitest';
import { outages } from '../../bench/outages/cases.ts';
import { runOutage } from '../../bench/outages/run.ts';

const isLong = process.env.WARMPATH_OUTAGES === 'all';
const tried = isLong ? outages.map(({ name }) => name) : ['replica-killed', 'control-plane-stopped', 'replica-500'];

test.each(tried)('%s', async (name) => {
  const whole = outages.find((one) => one.name === name)!;
  // In short, what is mended afterwards is not.
  const { end: _end, ...lasting } = whole;
  const outage = isLong ? whole : lasting;
  const times = isLong ? {} : { warmMs: 1800, quietMs: 1000 };
  const result = await runOutage(outage, {
    seed: 1,
    seconds: isLong ? 5 : 2,
    clients: isLong ? 32 : 20,
    plain: 'round-robin',
    ...times,
  });
  expect(result.broken).toEqual([]);
  expect(result.picks.hitsBefore).toBeGreaterThan(0.7);
});
