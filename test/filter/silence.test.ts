// A pod that takes requests and answers none, through the whole filter: found by the first tokens that stay out, left alone, used again.

import { expect, test } from 'vitest';
import { Gateway, chat, podAddress, words } from './gateway.ts';

test('a pod is left alone when its first tokens stay out, and used again at its first sign of life', async () => {
  const gateway = (await Gateway.start({ pods: 3 })).settle();
  const system = words('silent', 8000);
  const ask = (text: string) => gateway.request(0, chat(system, text));
  const first = ask('0');
  const [silent] = gateway.picks(first);
  gateway.answer(first);
  const stuck = ask('1');
  expect(gateway.picks(stuck)[0]).toBe(silent);
  // Its server answers, as one does whose engine has stopped: headers are no sign of life.
  stuck.properties['upstream.address'] = silent!;
  stuck.responseHeaders({ ':status': '200', 'content-type': 'text/event-stream' });

  const other = [0, 1, 2].map(podAddress).find((pod) => pod !== silent)!;
  for (let waited = 0; waited < 1500; waited += 100) {
    gateway.settle(100);
    gateway.answer(gateway.request(0, 'not json'), { upstream: other });
  }
  expect(gateway.metric('warmpath_silent_pods_total.pool.pool')).toBe(1);
  for (let i = 0; i < 20; i++) {
    const next = ask(`2-${i}`);
    expect(gateway.picks(next)).not.toContain(silent);
    gateway.answer(next);
    gateway.settle(3000);
  }

  stuck.responseBody('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
  gateway.settle(100);
  expect(gateway.picks(ask('3')).length).toBe(3);
  expect(gateway.picks(ask('4'))).toContain(silent);
  stuck.finish();
});

test('when all are silent nobody is blamed: it may be the gateway that stood still', async () => {
  const gateway = (await Gateway.start({ pods: 2 })).settle();
  for (let i = 0; i < 8; i++) gateway.request(0, chat(words(`p${i}-`, 4000), 'x'));
  gateway.settle(30_000);
  expect(gateway.metric('warmpath_silent_pods_total.pool.pool')).toBe(0);
  expect(gateway.picks(gateway.request(0, chat('a', 'b')))).toHaveLength(2);
});
