// A prompt is told from its first block on once in a while, and otherwise only by what is new in it; who missed the beginning finds it with the next telling of it.
import { expect, test } from 'vitest';
import type { TouchRecord } from '../../control-plane/engine/frames.ts';
import { isAnswer } from './control-plane.ts';
import { chat, Gateway, words } from './gateway.ts';

const SYSTEM = words('shared', 16_000);
const podOf = (gateway: Gateway, worker: number, user: string): string => {
  const stream = gateway.request(worker, chat(SYSTEM, user));
  const [pod = ''] = gateway.picks(stream);
  gateway.answer(stream);
  return pod;
};
const prompts = (gateway: Gateway): TouchRecord[] => gateway.plane.touched().filter((touch) => !isAnswer(touch));

/** A gateway that has worked for a while: its pods keep what they have for minutes. */
async function started(workers: number): Promise<Gateway> {
  const gateway = (await Gateway.start({ workers })).settle();
  for (let i = 0; i < 8; i++) gateway.answer(gateway.request(i % workers, chat(words(`other${i}`, 4000), 'x')));
  gateway.settle(20_000);
  gateway.reports.length = 0;
  return gateway;
}

test('a prompt is told whole, then by its new end, and whole again after a second', async () => {
  const gateway = await started(2);
  const home = podOf(gateway, 0, words('first', 3000));
  gateway.settle(100);
  for (const worker of [1, 0]) expect(podOf(gateway, worker, words(`next ${worker}`, 3000))).toBe(home);
  gateway.settle(1000);
  podOf(gateway, 1, words('later', 3000));
  gateway.settle(200);
  const [first, second, third, later, ...more] = prompts(gateway);
  expect(more).toEqual([]);
  expect(first!.parentKey).toBe(0n);
  expect(later!.parentKey).toBe(0n);
  const shared = first!.keys.findIndex((key, i) => key !== later!.keys[i]);
  expect(shared).toBeGreaterThan(40);
  for (const one of [second!, third!]) {
    expect(one.parentKey).toBe(first!.keys[shared - 1]);
    expect(one.keys.length).toBeLessThan(16);
  }
});

test('a prompt of which nothing is new is told again by its answer only, and its pod is found by others', async () => {
  const gateway = await started(2);
  const home = podOf(gateway, 0, 'x');
  gateway.settle(100);
  for (let i = 0; i < 5; i++) expect(podOf(gateway, i % 2, 'x')).toBe(home);
  gateway.settle(200);
  expect(prompts(gateway)).toHaveLength(1);
});

test('a gateway that missed the beginning counts it, and finds the prompt when it is told whole again', async () => {
  const sender = await started(1);
  podOf(sender, 0, words('first', 3000));
  sender.settle(100);
  podOf(sender, 0, words('second', 3000));
  sender.settle(1000);
  podOf(sender, 0, words('third', 3000));
  sender.settle(200);
  const [, behind, whole] = prompts(sender);
  expect(behind!.parentKey).not.toBe(0n);

  const receiver = (await Gateway.start({ workers: 2 })).settle();
  const unattached = (): number => receiver.metric('warmpath_unattached_touches_total.pool.pool');
  const tell = (touch: TouchRecord): void => {
    receiver.plane.touches = [{ ...touch, podId: 3, timeMs: receiver.host.nowMs }];
    receiver.settle(100);
  };
  tell(behind!);
  // Each of the two VMs does.
  expect(unattached()).toBe(2);
  tell(whole!);
  receiver.request(1, chat(SYSTEM, 'asks'));
  expect(receiver.metric('warmpath_matched_bytes_total.pool.pool')).toBeGreaterThan(15_000);
  expect(unattached()).toBe(2);
});

test('a chain that answers keep new is told whole sometimes, for those who missed its beginning', async () => {
  const gateway = await started(1);
  let user = words('turn', 2000);
  for (let turn = 0; turn < 64; turn++) {
    const stream = gateway.request(0, chat(SYSTEM, user));
    gateway.settle(1500);
    gateway.answer(stream);
    gateway.settle(100);
    user += words(`turn ${turn}`, 600);
  }
  const whole = prompts(gateway).filter(({ parentKey }) => parentKey === 0n);
  expect(prompts(gateway)).toHaveLength(64);
  expect(whole.length).toBeGreaterThan(1);
  expect(whole.length).toBeLessThan(16);
});
