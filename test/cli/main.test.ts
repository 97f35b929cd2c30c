// The command line as a person meets it: help that teaches, and exit codes that tell "failed" from "used wrongly".

import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';

const root = dirname(dirname(import.meta.dirname));

function warmpath(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [join(root, 'bin/warmpath.mjs'), ...args], { cwd: root }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
  });
}

describe('help', () => {
  it('lists the commands with examples on standard output and exits with 0', async () => {
    const { code, stdout, stderr } = await warmpath('--help');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    for (const word of ['up', 'keys', 'replay', 'control-plane', 'Examples', 'Exit codes'])
      expect(stdout).toContain(word);
  });

  it('is shown, with exit code 2, when no command is given', async () => {
    const { code, stdout, stderr } = await warmpath();
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('Usage: warmpath');
  });

  it('prints the version', async () => {
    expect((await warmpath('--version')).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});

describe('used wrongly: exit code 2, one message that names what is wrong, nothing on standard output', () => {
  it.each([
    ['an unknown command', ['launch'], "unknown command 'launch'"],
    ['an unknown option', ['up', '--fast'], "unknown option '--fast'"],
    ['an unknown workload', ['up', '--workload', 'W99'], '"W99" is not known. Known: W1, W3s.'],
    ['an unknown policy', ['up', '--policies', 'round-robin,best'], '"best" is not known. Known: prefill-cost'],
    ['a policy twice', ['up', '--policies', 'round-robin,round-robin'], 'A name is given twice.'],
    ['an unknown engine', ['up', '--engine', 'B200'], '"B200" is not known. Known: L4-8B'],
    ['a number that is none', ['up', '--replicas', 'four'], 'Expected a whole number from 1 to 32.'],
    ['a number out of bounds', ['up', '--concurrency', '99'], 'Expected a whole number from 1 to 16.'],
    ['an upstream with a path', ['up', '--upstream', 'http://h:8000/v1'], 'Expected http://HOST:PORT without a path.'],
    ['a trace that is absent', ['up', '--trace', 'no-such-file'], 'Mooncake'],
    ['a trace and a workload', ['up', '--trace', 'package.json', '--workload', 'W1'], 'exclude each other'],
    [
      'simulated and real replicas',
      ['up', '--upstream', 'http://h:1', '--engine', 'L4-8B'],
      '--upstream uses real ones',
    ],
    ['a model without upstream', ['up', '--model', 'x'], '--model goes with --upstream'],
    ['a replay of nothing known', ['replay', 'W99'], 'W99 is neither a workload (W1, W2,'],
    [
      'a replay by an unknown policy',
      ['replay', 'W1', '--policies', 'best'],
      '"best" is not known. Known: prefill-cost',
    ],
    ['a rate of W1', ['replay', 'W1', '--rate', '2'], '--rate: W1 has none'],
    ['a rate of a trace', ['replay', 'package.json', '--rate', '2'], '--rate goes with a named workload'],
    ['a speed of a workload', ['replay', 'W3', '--speed', '2'], '--speed goes with a trace'],
    ['a speed that is none', ['replay', 'package.json', '--speed', '0'], 'Expected a number above 0.'],
    ['keys of nothing', ['keys'], "missing required argument 'file'"],
    ['keys of an absent file', ['keys', 'no-such-file'], 'no-such-file cannot be read'],
    ['a control plane without pools', ['control-plane'], 'a pool is needed: --pool NAME=IP:PORT'],
    ['a pool without endpoints', ['control-plane', '--pool', 'x'], '--pool x has no endpoints'],
    ['an endpoint that is none', ['control-plane', '--pool', 'x=nowhere'], '"nowhere" is not an endpoint'],
    ['an unknown mode', ['control-plane', '--pool', 'x=1.2.3.4:5', '--mode', 'on'], 'off, shadow, active'],
    ['an absent endpoints file', ['control-plane', '--pool', 'x', '--endpoints-file', 'no-such-file'], 'no-such-file'],
    ['an absent configuration', ['control-plane', '--config', 'no-such-file'], '--config no-such-file cannot be read'],
    ['a configuration and options', ['control-plane', '--config', 'x', '--port', '1'], '--config gives everything'],
  ])('%s', async (_, args, message) => {
    const { code, stdout, stderr } = await warmpath(...args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(message);
    expect(stderr).toContain('--help');
    expect(stderr).not.toMatch(/^\s+at /m);
  });
});
