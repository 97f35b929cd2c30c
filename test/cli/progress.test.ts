// Progress must stay out of the way: one line on a terminal, few lines in a log, never anything on standard output.

import { describe, expect, it } from 'vitest';
import { Progress } from '../../cli/up/progress.ts';

function watch(isTTY: boolean) {
  const written: string[] = [];
  const clock = { nowMs: 0 };
  const progress = new Progress({ write: (text) => written.push(text), isTTY, columns: 60 }, () => clock.nowMs);
  return { written, clock, progress };
}

describe('progress', () => {
  it('writes over one line on a terminal and clears it before a line of its own', () => {
    const { written, clock, progress } = watch(true);
    progress.begin('W1');
    for (clock.nowMs = 0; clock.nowMs < 1000; clock.nowMs += 100)
      progress.update('a', { done: 1, inFlight: 9, failed: 0 });
    progress.say('next');
    expect(written.slice(0, -2).every((text) => text.startsWith('\r\u001b[K') && !text.includes('\n'))).toBe(true);
    expect(written.length).toBeGreaterThan(3);
    expect(written.at(-2)).toBe('\r\u001b[K');
    expect(written.at(-1)).toBe('warmpath: next\n');
    expect(Math.max(...written.map((text) => text.length))).toBeLessThan(60 + '\r\u001b[K'.length);
  });

  it('writes a plain line each ten seconds into a log, with every arm in it', () => {
    const { written, clock, progress } = watch(false);
    progress.begin('W1');
    for (clock.nowMs = 0; clock.nowMs <= 60_000; clock.nowMs += 500) {
      progress.update('a', { done: clock.nowMs, inFlight: 9, failed: 0 });
      progress.update('b', { done: 1, inFlight: 9, failed: 2 });
    }
    expect(written).toHaveLength(6);
    expect(written[1]).toBe('W1 20 s: a 20000 done, 9 in flight | b 1 done, 9 in flight, 2 failed\n');
  });
});
