// Codes are promises: the ones in the code, in docs/ERRORS.md and of the frames are the same, with the same status.
import { readFileSync, readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { FRAME_ERRORS } from '../../control-plane/engine/frames.ts';
import { ControlPlaneError, ERRORS, FRAME_ERROR_CODES } from '../../control-plane/errors.ts';
import type { ErrorCode } from '../../control-plane/errors.ts';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

test('docs/ERRORS.md lists exactly the codes of the code, in its order and with its status', () => {
  const rows = [...read('docs/ERRORS.md').matchAll(/^\| (WARMPATH_\w+) +\| (\d+) +\|/gm)].map((row) => [
    row[1],
    Number(row[2]),
  ]);
  expect(rows).toEqual(Object.entries(ERRORS).map(([code, { status }]) => [code, status]));
});

test('docs/WIRE.md numbers the faults of a frame as the engine does', () => {
  const rows = [...read('docs/WIRE.md').matchAll(/^\| (\d+) +\| (WARMPATH_FRAME_\w+) +\|/gm)].map((row) => [
    Number(row[1]),
    row[2],
  ]);
  expect(rows).toEqual(FRAME_ERROR_CODES.map((code, index) => [index + 1, code]));
  const layout = read('filter/engine/frame-layout.ts');
  for (const [index, name] of FRAME_ERRORS.entries()) {
    const constant = index === 0 ? 'FRAME_OK' : `FRAME_ERROR_${name.toUpperCase().replaceAll('-', '_')}`;
    expect(layout).toContain(`export const ${constant}: u32 = ${index};`);
  }
});

test('every code is used somewhere, and carries its status', () => {
  const folder = new URL('../../control-plane/', import.meta.url);
  const code = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && name !== 'errors.ts')
    .map((name) => read(`control-plane/${name}`))
    .join('');
  const named = (Object.keys(ERRORS) as ErrorCode[]).filter((name) => !FRAME_ERROR_CODES.includes(name));
  const own = ['WARMPATH_CONFIG_VALUE_INVALID'];
  expect(named.filter((name) => !own.includes(name) && !code.includes(`'${name}'`))).toEqual([]);
  for (const name of named) expect(new ControlPlaneError(name, 'x').statusCode).toBe(ERRORS[name].status);
});
