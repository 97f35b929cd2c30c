// The two commands that need no Envoy, run as processes: what they print for people, what for programs, and how they end.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { KeysRow } from '../../cli/keys.ts';

const root = dirname(dirname(import.meta.dirname));

function start(...args: string[]) {
  const child = spawn(process.execPath, [join(root, 'bin/warmpath.mjs'), ...args], { cwd: root });
  let stdout = '';
  child.stdout.on('data', (part: Buffer) => (stdout += part.toString()));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number, stdout }));
  return { child, ended, firstLine: async () => ((await once(child.stdout, 'data')) as [Buffer])[0].toString() };
}

describe('control-plane', () => {
  it('says where it listens, serves its routes, and SIGTERM is its good end', async () => {
    const server = start(
      'control-plane',
      '--pool',
      'p=127.0.0.1:9',
      '--port',
      '0',
      '--policy',
      'round-robin',
      '--json',
    );
    const { url } = JSON.parse(await server.firstLine()) as { url: string };
    for (const path of ['/healthz', '/readyz', '/metrics']) expect((await fetch(url + path)).status).toBe(200);
    const state = (await (await fetch(`${url}/v1/state`)).json()) as { pools: object[] };
    expect(state.pools).toMatchObject([{ name: 'p', settings: { policy: 'round-robin' } }]);
    server.child.kill('SIGTERM');
    expect((await server.ended).code).toBe(0);
  });
});

describe('keys', () => {
  const example = 'docs/examples/chat.json';

  async function keys(input: string, ...args: string[]): Promise<KeysRow[]> {
    const command = start('keys', '--json', ...args);
    command.child.stdin.end(input);
    const { code, stdout } = await command.ended;
    expect(code).toBe(0);
    return JSON.parse(stdout) as KeysRow[];
  }

  it('prints the documented shape for each file, in order', async () => {
    const rows = await keys('no JSON', example, '-');
    expect(rows).toHaveLength(2);
    expect(rows[0]).toEqual({
      file: example,
      path: '/v1/chat/completions',
      api: 'chat',
      model: 'Qwen/Qwen3-8B',
      promptBytes: expect.any(Number) as number,
      tokensEstimated: expect.any(Number) as number,
      keys: expect.arrayContaining([expect.stringMatching(/^[0-9a-f]{16}$/)]) as string[],
      reason: null,
    });
    const { messages } = JSON.parse(readFileSync(join(root, example), 'utf8')) as { messages: { content: string }[] };
    const textBytes = messages.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0);
    expect(rows[0]?.promptBytes).toBe(textBytes);
    expect(rows[0]?.tokensEstimated).toBe(Math.ceil(textBytes / 4));
    expect(rows[1]).toMatchObject({ file: '-', keys: [], reason: 'not-json' });
  });

  it('shares keys exactly as far as two prompts share a prefix', async () => {
    const body = JSON.parse(readFileSync(join(root, example), 'utf8')) as { messages: { content: string }[] };
    const [system, user] = body.messages;
    const other = JSON.stringify({ ...body, messages: [system, { ...user, content: 'And how do I book a train?' }] });
    const [one, two] = await keys(other, example, '-');
    expect(one?.keys[0]).toBe(two?.keys[0]);
    const changed = JSON.stringify({ ...body, messages: [{ ...system, content: `x${system?.content}` }, user] });
    const [three] = await keys(changed, '-');
    expect(three?.keys).toHaveLength(one?.keys.length ?? 0);
    expect(three?.keys.filter((key) => one?.keys.includes(key))).toEqual([]);
  });

  it('says why a path is not read', async () => {
    expect(await keys('', '--path', '/v1/embeddings', example)).toMatchObject([
      { api: 'other', keys: [], reason: 'path' },
    ]);
  });
});
