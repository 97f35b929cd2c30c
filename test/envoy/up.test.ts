// `warmpath up` as its user runs it: a process with a real Envoy, short workloads, and every way out. What must hold on each of them is that
// nothing is left behind: the whole process group is gone.

import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { UpDocument } from '../../cli/up/results.ts';

const root = dirname(dirname(import.meta.dirname));
const short = ['--workload', 'W3s', '--duration', '2', '--policies', 'round-robin,prefill-cost'];
const groups = new Set<number>();

/** A command in a process group of its own, so that what it leaves behind can be seen and ended. */
function start(...args: string[]) {
  const child = spawn(process.execPath, [join(root, 'bin/warmpath.mjs'), 'up', ...args], { cwd: root, detached: true });
  const pid = child.pid ?? 0;
  groups.add(pid);
  const output = { stdout: '', stderr: '' };
  child.stdout.on('data', (part: Buffer) => (output.stdout += part.toString()));
  child.stderr.on('data', (part: Buffer) => (output.stderr += part.toString()));
  const ended = new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve) => {
    child.on('close', (code) => resolve({ code, ...output }));
  });
  const until = (pattern: RegExp) =>
    new Promise<RegExpExecArray>((resolve, reject) => {
      const look = () => {
        const match = pattern.exec(output.stderr);
        if (match !== null) resolve(match);
      };
      child.stderr.on('data', look);
      child.on('close', () => reject(new Error(`it ended before ${String(pattern)}:\n${output.stderr}`)));
      look();
    });
  return { pid, child, ended, until };
}

function isGroupGone(pid: number): boolean {
  try {
    process.kill(-pid, 0);
    return false;
  } catch {
    return true;
  }
}

/** The Envoy among a process's children. */
function envoyOf(pid: number): number {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number);
  const found = children.find((child) => /envoy/.test(readFileSync(`/proc/${child}/cmdline`, 'utf8')));
  if (found === undefined) throw new Error(`no Envoy among ${children.join(' ')}`);
  return found;
}

afterEach(() => {
  for (const pid of groups) if (!isGroupGone(pid)) process.kill(-pid, 'SIGKILL');
  groups.clear();
});

describe('up --once --json', () => {
  it('prints one document of the documented shape, and exits with 0 when no request failed', async () => {
    const run = start('--once', '--json', ...short);
    const { code, stdout, stderr } = await run.ended;
    expect(code, stderr).toBe(0);
    const { runs } = JSON.parse(stdout) as UpDocument;
    expect(runs).toHaveLength(1);
    expect(runs[0]).toMatchObject({ workload: 'W3s', engine: 'H100-8B', replicas: 4 });
    expect(runs[0]?.published.length).toBeGreaterThan(0);
    expect(runs[0]?.arms.map((arm) => arm.name)).toEqual(['round-robin', 'prefill-cost']);
    for (const arm of runs[0]?.arms ?? []) {
      expect(arm).toMatchObject({ failed: 0, hung: 0 });
      expect(arm.requests).toBeGreaterThan(10);
      expect(arm.ttftMs.p99).toBeGreaterThanOrEqual(arm.ttftMs.p50);
      expect(arm.tpotMs.p95).toBeGreaterThan(1);
      expect(arm.hitShareTokens).toBeGreaterThan(0.1);
      expect(arm.busiestPodShare).toBeGreaterThanOrEqual(1);
      expect(arm.requestsPerSecond * arm.seconds).toBeCloseTo(arm.requests, -1);
    }
    expect(isGroupGone(run.pid)).toBe(true);
  });
});

describe('up', () => {
  it('stays up with a gateway that answers, and Ctrl-C is its good end', async () => {
    const run = start(...short);
    const [, url = '', body = ''] = await run.until(/curl (http:\S+) .* -d '(.*)'/);
    const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    const answer = (await response.json()) as { usage: { completion_tokens: number } };
    expect(response.status).toBe(200);
    expect(answer.usage.completion_tokens).toBeGreaterThan(0);
    // As it comes through npm: more than once.
    run.child.kill('SIGINT');
    await new Promise((wake) => setTimeout(wake, 20));
    run.child.kill('SIGINT');
    const { code, stdout } = await run.ended;
    expect(code).toBe(0);
    expect(stdout).toContain('prefill-cost');
    expect(isGroupGone(run.pid)).toBe(true);
  });

  it('ends with 1 and leaves nothing when it is interrupted on the way', async () => {
    const run = start('--once', '--workload', 'W1', '--policies', 'round-robin');
    await run.until(/starting Envoy/);
    await new Promise((wake) => setTimeout(wake, 3_000));
    run.child.kill('SIGTERM');
    const { code, stderr } = await run.ended;
    expect(code).toBe(1);
    expect(stderr).toContain('interrupted by SIGTERM');
    expect(isGroupGone(run.pid)).toBe(true);
  });

  it('says so, ends with 1 and leaves nothing when Envoy dies', async () => {
    const run = start('--once', '--workload', 'W1', '--policies', 'round-robin');
    await run.until(/^W1 \d+ s: /m);
    process.kill(envoyOf(run.pid), 'SIGKILL');
    const { code, stderr } = await run.ended;
    expect(code).toBe(1);
    expect(stderr).toContain('Envoy ended by itself');
    expect(isGroupGone(run.pid)).toBe(true);
  });

  it('refuses a port that is taken, before anybody waits for a comparison', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const { code, stderr } = await start('--port', String(port), ...short).ended;
    expect(code).toBe(1);
    expect(stderr).toContain(`--port ${port} is taken`);
    await new Promise((resolve) => server.close(resolve));
  });
});
