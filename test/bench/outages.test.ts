// The outages bench without its outages: how records become times and counts, and how its command line is used wrongly.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { outages, type Outage } from '../../bench/outages/cases.ts';
import { judge, tally, type Times } from '../../bench/outages/judge.ts';
import type { Record } from '../../bench/outages/load.ts';

const times: Times = { beforeMs: 0, beginMs: 2000, begunMs: 2000, endMs: 7000, stopMs: 12_000 };
const faulty = '127.0.0.1:1';
const killed = outages.find(({ name }) => name === 'replica-killed')!;
const frozen = outages.find(({ name }) => name === 'replica-frozen')!;

/** A request every 10 ms, to four pods in turn, as `change` makes it. */
function records(change: (record: Record) => Partial<Record>): Record[] {
  return Array.from({ length: 1200 }, (_, i) => {
    const record: Record = {
      startMs: i * 10,
      endMs: i * 10 + 50,
      isStream: false,
      outcome: 'ok',
      status: 200,
      pod: `127.0.0.1:${1 + (i % 4)}`,
      attempts: 1,
      isHit: true,
      ttftMs: 20,
    };
    return { ...record, ...change(record) };
  });
}
const picks = (outage: Outage, change: (record: Record) => Partial<Record>) =>
  judge(records(change), outage, times, faulty, 4);
const isIn = ({ startMs }: Record, from: number, to: number): boolean => startMs >= from && startMs < to;
const elsewhere = (record: Record) => (record.pod === faulty ? { pod: '127.0.0.1:2' } : {});

describe('picks', () => {
  test('are right at once when nothing changes for the worse', () => {
    expect(picks(killed, (record) => (record.startMs < 2000 ? {} : elsewhere(record)))).toEqual({
      hitsBefore: 1,
      hitsAfter: 1,
      rightAfterMs: 0,
      usedAgainMs: undefined,
    });
  });

  test('are right again when no window has too few hits or too many requests that went astray', () => {
    const missing = picks(killed, (record) => ({ ...elsewhere(record), isHit: !isIn(record, 2000, 4000) }));
    expect(missing.rightAfterMs).toBeGreaterThan(1800);
    expect(missing.rightAfterMs).toBeLessThanOrEqual(2000);
    const retried = picks(killed, (record) => ({ ...elsewhere(record), attempts: isIn(record, 2000, 3000) ? 2 : 1 }));
    expect(retried.rightAfterMs).toBeGreaterThan(800);
    expect(retried.rightAfterMs).toBeLessThanOrEqual(1000);
  });

  test('are never right when the faulty replica keeps its share or the hits stay away', () => {
    expect(picks(killed, () => ({})).rightAfterMs).toBeNull();
    expect(picks(killed, (record) => ({ ...elsewhere(record), isHit: record.startMs < 2000 })).rightAfterMs).toBeNull();
  });

  test('come back to a replica that was mended', () => {
    const away = (to: number) => (record: Record) => (isIn(record, 2000, to) ? elsewhere(record) : {});
    expect(picks(frozen, away(7000)).usedAgainMs).toBe(0);
    const late = picks(frozen, away(9000)).usedAgainMs!;
    expect(late).toBeGreaterThan(1000);
    expect(late).toBeLessThanOrEqual(2000);
    expect(picks(frozen, away(12_000)).usedAgainMs).toBeNull();
  });
});

test('requests count from the outage on, those in flight when it began included', () => {
  const outcomes = ['failed', 'cut', 'hung'] as const;
  const counted = tally(
    records((record) => ({ outcome: outcomes[Math.floor(record.startMs / 10) - 196] ?? 'ok' })),
    times,
  );
  expect(counted).toEqual({ requests: 1005, failed: 1, cut: 1, hung: 1, ttftMsP95: 20 });
});

describe('the command line', () => {
  const run = (...args: string[]) =>
    promisify(execFile)(process.execPath, ['bench/outages.ts', ...args], { cwd: `${import.meta.dirname}/../..` }).then(
      ({ stdout }) => ({ code: 0, stdout, stderr: '' }),
      (error: { code: number; stdout: string; stderr: string }) => error,
    );

  test('explains itself and lists the outages', async () => {
    const [help, list] = await Promise.all([run('--help'), run('--list')]);
    expect(help.stdout).toContain('--only NAME');
    expect(list.stdout.trim().split('\n')).toHaveLength(outages.length);
  });

  test.each([
    [['--only', 'no-such'], 'no outage is called "no-such"'],
    [['--seconds', 'x'], '--seconds is "x", expected a whole number from 2'],
    [['--plain', 'random'], '--plain is "random"'],
    [['--no-such'], '--no-such'],
  ])('%j is used wrongly', async (args, words) => {
    const { code, stderr } = await run(...args);
    expect(code).toBe(2);
    expect(stderr).toContain(words);
  });
});
