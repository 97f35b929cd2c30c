// Configuration is strict: what is wrong is named with its key, its value and what was expected.
import { expect, test } from 'vitest';
import { parseAddress } from '../../control-plane/address.ts';
import { parsePoolFlag, readConfig } from '../../control-plane/config.ts';
import type { ControlPlaneError } from '../../control-plane/errors.ts';

const pool = { name: 'chat', endpoints: ['10.0.0.7:8000'] };

function refusal(read: () => unknown): Pick<ControlPlaneError, 'code' | 'message'> {
  try {
    read();
  } catch (error) {
    const { code, message } = error as ControlPlaneError;
    return { code, message };
  }
  throw new Error('was accepted');
}

test('what is not given gets its default, and pools inherit the intervals', () => {
  const config = readConfig({ syncIntervalMs: 100, pools: [pool, { ...pool, name: 'b', syncIntervalMs: 20 }] });
  expect(config).toMatchObject({ host: '127.0.0.1', port: 0, token: null, secretFile: null });
  expect(config.pools[0]).toMatchObject({
    mode: 'active',
    policy: 'prefill-cost',
    toolsPosition: 'auto',
    blockBytes: 256,
    windowBytes: 0,
    syncIntervalMs: 100,
    scrapeIntervalMs: 1_000,
    kvEvents: 'off',
  });
  expect(config.pools[1]?.syncIntervalMs).toBe(20);
});

test.each([
  [{ pools: [pool], sync: 5 }, 'WARMPATH_CONFIG_KEY_UNKNOWN', 'sync: unknown key; known are host'],
  [{ pools: [{ ...pool, Policy: 'x' }] }, 'WARMPATH_CONFIG_KEY_UNKNOWN', 'pools[0].Policy: unknown key'],
  [
    { pools: [{ ...pool, policy: 'best' }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].policy: "best" is not one of prefill-cost',
  ],
  [
    { pools: [{ ...pool, kvEvents: 'yes' }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].kvEvents: "yes" is not off, on, or PORT',
  ],
  [
    { pools: [{ ...pool, mode: 1 }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].mode: 1 is not one of off, shadow, active',
  ],
  [
    { pools: [{ ...pool, blockBytes: 100 }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].blockBytes: 100 is not a multiple of 64 from 64 to 4096',
  ],
  [
    { pools: [{ ...pool, blockBytes: 8192 }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].blockBytes: 8192 is not a multiple of 64 from 64 to 4096',
  ],
  [
    { pools: [{ ...pool, endpoints: [{ endpoint: '1.2.3.4:5', weight: 0 }] }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].endpoints[0].weight: 0 is not a number from 0.001 to 1000',
  ],
  [
    { pools: [{ ...pool, endpoints: ['1.2.3.4:5', '[::ffff:1.2.3.4]:5'] }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].endpoints[1]',
  ],
  [
    { pools: [{ ...pool, endpoints: ['host:1'] }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].endpoints[0]: "host:1" is not an endpoint',
  ],
  [
    { pools: [{ ...pool, endpoints: ['1.2.3.4:5', '1.2.3.4:5'] }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[0].endpoints[1]',
  ],
  [{ pools: [{ name: 'chat' }] }, 'WARMPATH_CONFIG_VALUE_INVALID', 'one of endpoints, endpointsFile and object'],
  [
    { pools: [{ ...pool, endpointsFile: 'f' }] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'one of endpoints, endpointsFile and object',
  ],
  [
    { pools: [pool, pool] },
    'WARMPATH_CONFIG_VALUE_INVALID',
    'pools[1].name: "chat" is not a name that no other pool has',
  ],
  [{ pools: [] }, 'WARMPATH_CONFIG_VALUE_INVALID', 'pools: [] is not a list of 1 to 8 pools'],
  [{ pools: [{ ...pool, weights: { prefix: 1 } }] }, 'WARMPATH_CONFIG_VALUE_INVALID', 'pools[0].weights.queue'],
  [{ pools: [pool], port: 70_000 }, 'WARMPATH_CONFIG_VALUE_INVALID', 'port: 70000 is not an integer from 0 to 65535'],
  [null, 'WARMPATH_CONFIG_VALUE_INVALID', 'null is not an object'],
])('%j is refused', (input, code, message) => {
  const refused = refusal(() => readConfig(input));
  expect(refused.code).toBe(code);
  expect(refused.message).toContain(message);
});

test('a token that is refused is not shown', () => {
  expect(refusal(() => readConfig({ token: 'short-secret', pools: [pool] })).message).not.toContain('short-secret');
});

test('endpoints are read as people write them', () => {
  const text = (value: string): string => parseAddress(value, 'k').text;
  expect(text('10.0.0.7:8000')).toBe('10.0.0.7:8000');
  expect(text('http://localhost:8000/')).toBe('127.0.0.1:8000');
  expect(text('[2001:db8:0:0::7]:443')).toBe('[2001:db8::7]:443');
  expect(text('[::FFFF:10.0.0.7]:8000')).toBe('10.0.0.7:8000');
  expect([...parseAddress('10.0.0.7:1', 'k').bytes]).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 7]);
  expect([...parseAddress('[2001:db8::1.2.3.4]:1', 'k').bytes]).toEqual([
    0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4,
  ]);
  expect([...parseAddress('[::]:1', 'k').bytes]).toEqual(Array.from({ length: 16 }, () => 0));
  for (const bad of [
    '10.0.0.7',
    '10.0.0.7:0',
    '10.0.0.7:65536',
    '10.0.0.256:1',
    '2001:db8::7:80',
    '[10.0.0.7]:80',
    '[fe80::1%eth0]:80',
    'https://1.2.3.4:5',
    '1.2.3.4:5/x',
    '',
  ]) {
    expect(refusal(() => parseAddress(bad, 'k')).message).toContain('k: ');
  }
});

test('a pool on the command line', () => {
  expect(parsePoolFlag('chat=1.2.3.4:5,1.2.3.5:5')).toEqual({ name: 'chat', endpoints: ['1.2.3.4:5', '1.2.3.5:5'] });
  for (const bad of ['chat', '=1.2.3.4:5', 'chat=', 'chat=1.2.3.4:5,']) {
    expect(refusal(() => parsePoolFlag(bad)).message).toContain('NAME=ENDPOINT');
  }
});
