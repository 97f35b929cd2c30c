// What gateways tell of predictions: beside what usage said, by pod, API and language, and once, whatever becomes of the VMs.
import { expect, test } from 'vitest';
import type { OutcomeKindRecord, OutcomesRecord } from '../../control-plane/engine/outcomes.ts';
import { chat, Gateway, words } from './gateway.ts';

const told = (gateway: Gateway): OutcomesRecord => gateway.reports.findLast((report) => report.outcomes)!.outcomes!;
const kindOf = (gateway: Gateway, api: string, language: string): OutcomeKindRecord | undefined =>
  told(gateway).kinds.find((kind) => kind.api === api && kind.language === language);
const usage = (prompt: number, cached: number): object => ({
  prompt_tokens: prompt,
  completion_tokens: 1,
  prompt_tokens_details: { cached_tokens: cached },
});
const sum = (numbers: number[]): number => numbers.reduce((total, n) => total + n, 0);

test('predictions are told by API and language, with their error in tokens', async () => {
  const gateway = (await Gateway.start({ workers: 2 })).settle();
  const system = words('s', 8000);
  gateway.answer(gateway.request(0, chat(system, 'x')), { usage: usage(2000, 0) });
  gateway.settle(10);
  gateway.answer(gateway.request(1, chat(system, 'y')), { usage: usage(2000, 1984) });
  const russian = { ...chat('Отвечай коротко и по существу. '.repeat(200), 'Привет!'), max_tokens: 5 };
  gateway.answer(gateway.request(0, russian, { ':path': '/v1/messages' }), { usage: usage(2500, 0) });
  gateway.settle(3000);
  const english = kindOf(gateway, 'chat', 'latin')!;
  expect(english).toMatchObject({ requests: 2, promptTokens: 4000, actualCachedTokens: 1984, close: 2 });
  // The pool begins with 4 bytes a token, and so many these prompts have.
  expect(english.promptBytes / english.estimatedTokens).toBeCloseTo(4, 1);
  expect(english.predictedCachedTokens).toBeGreaterThan(1900);
  expect(english.predictedCachedTokens).toBeLessThanOrEqual(2000);
  expect(sum(english.errors)).toBe(2);
  expect(english.errors[5]).toBeGreaterThanOrEqual(1);
  const other = kindOf(gateway, 'messages', 'cyrillic')!;
  expect(other).toMatchObject({ requests: 1, promptTokens: 2500, predictedCachedTokens: 0, close: 1 });
  expect(told(gateway).kinds).toHaveLength(2);
  expect(told(gateway).ratioTokens).toBeGreaterThan(0);
  expect(told(gateway).bytesPerToken).toBeGreaterThan(3.5);
});

test('a match is confirmed, contradicted or exceeded; one of another pod than the one picked is not judged', async () => {
  const gateway = (await Gateway.start()).settle();
  const system = words('s', 8000);
  const ask = (cached: number, upstream?: string): void => {
    const stream = gateway.request(0, chat(system, `${cached}`));
    gateway.answer(stream, { usage: usage(2000, cached), ...(upstream ? { upstream } : {}) });
  };
  ask(0);
  ask(1984);
  ask(1000);
  gateway.settle(3000);
  const judged = (): number[] =>
    (['confirmed', 'contradicted', 'exceeded'] as const).map((name) => sum(told(gateway).pods.map((pod) => pod[name])));
  expect(judged()).toEqual([1, 1, 0]);
  gateway.answer(gateway.request(0, chat(words('new', 8000), 'x')), { usage: usage(2000, 1600) });
  const stream = gateway.request(0, chat(system, 'moved'));
  const elsewhere = ['10.0.0.1:8000', '10.0.0.2:8000'].find((pod) => pod !== gateway.picks(stream)[0])!;
  gateway.answer(stream, { usage: usage(2000, 0), upstream: elsewhere });
  gateway.settle(3000);
  expect(judged()).toEqual([1, 1, 1]);
  expect(kindOf(gateway, 'chat', 'latin')).toMatchObject({ requests: 5, actualCachedTokens: 4584 });
});

test('a match of a request that waited behind much work is told, but says nothing of capacity', async () => {
  const gateway = (await Gateway.start({ pods: 1 })).settle();
  const system = words('s', 8000);
  gateway.answer(gateway.request(0, chat(system, 'x')), { usage: usage(2000, 0) });
  gateway.request(0, chat(words('long', 80_000), 'x'));
  gateway.answer(gateway.request(0, chat(system, 'y')), { usage: usage(2000, 0) });
  gateway.settle(3000);
  expect(sum(told(gateway).pods.map((pod) => pod.contradicted))).toBe(0);
  expect(kindOf(gateway, 'chat', 'latin')!.errors.slice(8)).toEqual([0, 1, 0]);
});

test('a VM that lost its segment and holds another one is not counted again', async () => {
  const gateway = (await Gateway.start({ workers: 3 })).settle();
  const ask = (worker: number, count: number): void => {
    for (let i = 0; i < count; i++) {
      gateway.answer(gateway.request(worker, chat(words(`o${worker}`, 2000), 'x')), { usage: usage(500, 0) });
    }
  };
  ask(1, 5);
  ask(2, 7);
  gateway.settle(3000);
  // The second worker hangs for longer than its lease; a new one takes its segment, and it has to take another one.
  gateway.roots[1]!.tick(0);
  gateway.settle(3000);
  gateway.addWorker('fourth');
  gateway.settle(500);
  gateway.roots[1]!.tick(5);
  gateway.settle(500);
  ask(1, 2);
  ask(3, 1);
  gateway.settle(3000);
  expect(gateway.reports.at(-1)!.gateway!.workers).toBe(4);
  expect(sum(told(gateway).pods.map((pod) => pod.ok))).toBe(15);
  expect(kindOf(gateway, 'chat', 'latin')).toMatchObject({ requests: 15, promptTokens: 7500 });
});
