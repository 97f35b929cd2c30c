// `warmpath replay` as it is used: its document is the documented one, its table carries S, and standard output stays clean.

import { describe, expect, it } from 'vitest';
import { ProgressBar } from '../../cli/progress-bar.ts';
import { replayReport, type ReplayDocument } from '../../cli/replay-report.ts';
import { main } from '../../cli/main.ts';

async function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const written = { stdout: '', stderr: '' };
  const writers = (['stdout', 'stderr'] as const).map((name) => {
    const before = process[name].write.bind(process[name]);
    process[name].write = ((text: string) => {
      written[name] += text;
      return true;
    }) as typeof before;
    return () => (process[name].write = before);
  });
  try {
    return { code: await main(args), ...written };
  } finally {
    for (const restore of writers) restore();
  }
}

it('prints the documented JSON, the same bytes each time', async () => {
  const args = ['replay', 'W1', '--policies', 'round-robin,prefill-cost', '--limit', '40', '--seeds', '2', '--json'];
  const { code, stdout, stderr } = await run(...args, '--routers', '2', '--workers', '2', '--replicas', '3');
  expect(code).toBe(0);
  // On a busy machine it takes long enough to tell how far it is.
  expect(stderr).toMatch(/^(replay W1 .*\n)*$/);
  const document = JSON.parse(stdout) as ReplayDocument;
  expect(document).toMatchObject({ source: 'W1', replicas: 3, engine: 'L4-8B', routers: 2, seeds: 2 });
  expect(Object.keys(document)).toEqual(['source', 'replicas', 'engine', 'routers', 'seeds', 'policies']);
  expect(document.policies.map(({ name, requests }) => [name, requests])).toEqual([
    ['round-robin', 80],
    ['prefill-cost', 80],
  ]);
  for (const row of document.policies) {
    expect(Object.keys(row)).toEqual('name requests ttftMs e2eMs hitShareTokens requestsPerSecond loadSkew'.split(' '));
    expect(Object.keys(row.ttftMs)).toEqual(['mean', 'p50', 'p95', 'p99']);
    expect(Object.keys(row.e2eMs)).toEqual(['mean']);
    for (const value of [row.ttftMs.mean, row.e2eMs.mean, row.hitShareTokens, row.requestsPerSecond, row.loadSkew]) {
      expect(value).toBeGreaterThan(0);
    }
  }
  const again = await run(...args, '--routers', '2', '--workers', '2', '--replicas', '3', '--threads', '1');
  expect(again.stdout).toBe(stdout);
});

describe('the table', () => {
  const row = (name: string, time: number) => ({
    name,
    requests: 10,
    ttftMs: { mean: time, p50: time, p95: time, p99: time },
    e2eMs: { mean: time },
    hitShareTokens: 0.5,
    requestsPerSecond: 2,
    loadSkew: 1.5,
  });
  const head = { source: 'W1', replicas: 4, engine: 'L4-8B', routers: 1, seeds: 2 };

  it('has S of each policy', () => {
    const lines = replayReport({ ...head, policies: [row('a', 100), row('b', 50)] }).split('\n');
    expect(lines[0]).toBe('W1  4 x L4-8B, 1 router, 2 seeds');
    expect(lines[2]).toMatch(/^a .* 50\.0 % .* 1\.50x +2\.00$/);
    expect(lines[3]).toMatch(/^b .* 0\.50$/);
  });

  it('has none for a policy alone', () => {
    expect(replayReport({ ...head, policies: [row('a', 100)] })).toMatch(/1\.50x\n$/);
  });
});

describe('the progress bar', () => {
  const played = (isTTY: boolean): string => {
    let now = 0;
    let written = '';
    const output = { isTTY, columns: 100, write: (text: string) => (written += text) };
    const bar = new ProgressBar(output, 'replay W1', () => now);
    for (let second = 1; second <= 20; second++) {
      now = second * 1000;
      bar.show(second / 40);
    }
    bar.end();
    return written;
  };

  it('is one line that is written over on a terminal', () => {
    expect(played(true)).toContain('[###############...............] 50 %, 20 s, 20 s left');
    expect(played(true).endsWith('\r\u001b[K')).toBe(true);
    expect(played(true)).not.toContain('\n');
  });

  it('is a plain line now and then elsewhere', () => {
    expect(played(false)).toBe('replay W1 25 %, 10 s, 30 s left\nreplay W1 50 %, 20 s, 20 s left\n');
  });
});
