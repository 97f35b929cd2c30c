// The memory of answers: used again once an answer has been sent, and never before.
import { expect, test } from 'vitest';
import { AnswerBody } from '../../control-plane/answer-body.ts';

const frame = (bytes: number, fill: number): Uint8Array => new Uint8Array(bytes).fill(fill);

test('an answer keeps its bytes until it is given back, and its memory is used again then', () => {
  const body = new AnswerBody();
  const made = (fill: number): Buffer => {
    body.begin();
    body.add(frame(1_000, fill));
    body.add(frame(500, fill + 1));
    return body.take();
  };
  const first = made(1);
  const second = made(3);
  expect([...first]).toEqual([...frame(1_000, 1), ...frame(500, 2)]);
  expect(second.buffer).not.toBe(first.buffer);
  body.give(first);
  // Twice is once.
  body.give(first);
  const third = made(5);
  const fourth = made(7);
  expect(third.buffer).toBe(first.buffer);
  expect(fourth.buffer).not.toBe(first.buffer);
  expect([...second]).toEqual([...frame(1_000, 3), ...frame(500, 4)]);
});

test('an answer longer than the room is whole, and keeps no room', () => {
  const body = new AnswerBody();
  body.begin();
  const frames = [frame(200_000, 1), frame(200_000, 2), frame(700_000, 3), frame(10, 4)];
  for (const one of frames) body.add(one);
  const long = body.take();
  expect(Buffer.compare(long, Buffer.concat(frames))).toBe(0);
  body.give(long);
  body.begin();
  expect(body.take()).toHaveLength(0);
});

test('what an answer that came to nothing has left does not show in the next', () => {
  const body = new AnswerBody();
  body.begin();
  for (let i = 0; i < 3; i++) body.add(frame(150_000, 9));
  body.begin();
  body.add(frame(4, 1));
  expect([...body.take()]).toEqual([1, 1, 1, 1]);
});
