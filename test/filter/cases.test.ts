// The pairs of requests that say what block keys must do, read by filter.wasm in the Node host: its keys are those that it tells
// the control plane.

import { beforeAll, describe, expect, test } from 'vitest';
import type { ToolsPosition } from '../../control-plane/engine/frames.ts';
import { compareKeys, loadCases } from '../cases.ts';
import type { KeysOf } from '../cases.ts';
import { touchedKeys } from './control-plane.ts';
import { Gateway } from './gateway.ts';

const { cases, hasShared } = loadCases();
if (!hasShared) console.warn('shared/cases is not beside this checkout: only the pairs of test/vectors are read');

describe('filter.wasm in the Node host', () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = (await Gateway.start()).settle();
  });

  function read(path: string, body: string, toolsPosition: ToolsPosition = 'auto'): KeysOf {
    if (gateway.plane.toolsPosition !== toolsPosition) {
      gateway.change((plane) => (plane.toolsPosition = toolsPosition));
      gateway.settle();
    }
    gateway.reports.length = 0;
    const before = gateway.host.metrics.matching('fallbacks');
    gateway.answer(gateway.request(0, body, { ':path': path }));
    gateway.settle(150);
    const after = gateway.host.metrics.matching('fallbacks');
    const reason = Object.keys(after).find((name) => after[name] !== (before[name] ?? 0));
    return { ...touchedKeys(gateway.plane), reason: reason?.split('.').at(-1) ?? null };
  }

  test.each(cases)('$name', (one) => {
    expect(compareKeys(one, read)).toEqual([]);
  });
});
