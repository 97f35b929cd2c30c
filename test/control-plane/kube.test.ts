// Following objects in Kubernetes while the API server misbehaves: whatever happens to a watch, the copy is right again soon, nothing is
// removed that was not removed, and nobody has to be restarted.
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Reflector } from '../../control-plane/kube/reflector.ts';
import type { KubeObject, ReflectorTimes } from '../../control-plane/kube/reflector.ts';
import { silentLog } from '../../control-plane/log.ts';
import { FakeApi } from './fake-api.ts';
import { until } from './fakes.ts';

const PODS = '/api/v1/namespaces/llm/pods';
const times: ReflectorTimes = {
  watchSeconds: 5,
  graceMs: 100,
  relistMs: 60_000,
  pauseMsMin: 10,
  pauseMsMax: 50,
  absentMs: 30,
};

let fake: FakeApi;
let reflector: Reflector<KubeObject>;
let names: string[];
let changes: number;
let failures: string[];

function follow(more: Partial<ReflectorTimes> = {}, api = fake.api()): void {
  reflector = new Reflector<KubeObject>(
    api,
    PODS,
    {},
    {
      changed: (objects) => {
        changes++;
        names = objects.map(({ metadata }) => metadata.name).toSorted();
      },
      failed: (reason) => failures.push(reason),
    },
    silentLog,
    { ...times, ...more },
  );
  reflector.start();
}

const pod = (name: string): KubeObject & Record<string, unknown> => ({ metadata: { name, namespace: 'llm' } });
const add = (name: string): void => void fake.put(PODS, pod(name));
const has = async (...expected: string[]): Promise<void> =>
  until(() => JSON.stringify(names) === JSON.stringify(expected), `${expected.join()} (there are ${names.join()})`);

beforeEach(async () => {
  fake = await new FakeApi().start();
  names = ['not listed'];
  changes = 0;
  failures = [];
});
afterEach(async () => {
  await reflector.close();
  await fake.close();
});

describe('a list that is followed', () => {
  test('additions, changes and removals arrive, with one list only', async () => {
    add('a');
    follow();
    await has('a');
    add('b');
    await has('a', 'b');
    fake.remove(PODS, 'a');
    await has('b');
    const before = changes;
    add('b');
    await until(() => changes > before, 'the change');
    expect(fake.count('GET', /pods/)).toBe(1);
    expect(failures).toEqual([]);
  });

  test('the end of a watch costs nothing: the next goes on from the last version', async () => {
    add('a');
    follow();
    await has('a');
    await until(() => fake.watchers === 1, 'the watch');
    add('b');
    await has('a', 'b');
    fake.cut('end');
    fake.remove(PODS, 'a');
    await has('b');
    expect(fake.count('GET', /pods/)).toBe(1);
    const versions = fake.seen
      .filter(({ query }) => query.has('watch'))
      .map(({ query }) => query.get('resourceVersion'));
    expect(versions).toEqual(['101', '102']);
  });

  test.each(['break', 'within-event'] as const)('a stream cut by %s is taken up where it was', async (how) => {
    add('a');
    follow();
    await has('a');
    await until(() => fake.watchers === 1, 'the watch');
    fake.cut(how);
    add('b');
    await has('a', 'b');
    expect(names).not.toContain('half');
    expect(fake.count('GET', /pods/)).toBe(1);
  });

  test('bookmarks move the version on', async () => {
    add('a');
    follow();
    await until(() => fake.watchers === 1, 'the watch');
    fake.put('/api/v1/namespaces/other/pods', pod('x'));
    fake.bookmark();
    await new Promise((resolve) => setTimeout(resolve, 50));
    fake.cut('end');
    await until(() => fake.count('GET', /pods/, true) === 2, 'the second watch');
    expect(fake.seen.at(-1)?.query.get('resourceVersion')).toBe(String(fake.version));
  });

  test('410 within the stream and 410 as an answer: listed again and compared', async () => {
    add('a');
    add('b');
    follow();
    await has('a', 'b');
    await until(() => fake.watchers === 1, 'the watch');
    fake.isSilent = true;
    fake.remove(PODS, 'a');
    add('c');
    fake.isSilent = false;
    fake.expire();
    await has('b', 'c');
    expect(fake.count('GET', /pods/)).toBe(2);
    fake.cut('break');
    fake.oldest = fake.version + 1;
    await until(() => fake.count('GET', /pods/) === 3, 'the third list');
    fake.oldest = 0;
    add('d');
    await has('b', 'c', 'd');
    expect(failures).toContain('410');
  });

  test('a list that changes nothing says nothing', async () => {
    add('a');
    follow({ relistMs: 0, watchSeconds: 0, graceMs: 20 });
    await until(() => fake.count('GET', /pods/) > 3, 'some lists');
    expect(changes).toBe(1);
  });

  test('429 is waited out as asked, 503 with growing pauses; the copy stays meanwhile', async () => {
    add('a');
    follow();
    await has('a');
    await until(() => fake.watchers === 1, 'the watch');
    fake.refusals.push({ path: /pods/, status: 503, times: 4 });
    fake.refusals.push({ path: /pods/, status: 429, retryAfter: 1, times: 1 });
    const startedMs = Date.now();
    fake.cut('break');
    add('b');
    await has('a', 'b');
    // A pause of 10 times 50 ms is the longest that is granted here.
    expect(Date.now() - startedMs).toBeGreaterThanOrEqual(500);
    expect(failures.filter((reason) => reason === '503')).toHaveLength(4);
    expect(failures.filter((reason) => reason === '429')).toHaveLength(1);
    expect(names).toEqual(['a', 'b']);
  });

  test('a connection that falls silent is given up and what was missed is caught up', async () => {
    add('a');
    follow({ watchSeconds: 0, graceMs: 300 });
    await has('a');
    fake.isSilent = true;
    fake.cut('end');
    await until(() => fake.watchers === 1, 'the silent watch');
    add('b');
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(names).toEqual(['a']);
    fake.isSilent = false;
    await has('a', 'b');
    expect(failures).toContain('timeout');
  });

  test('an API server that hangs on a list is given up as well', async () => {
    const hanging = await new FakeApi().start();
    follow({}, hanging.api(50));
    hanging.put(PODS, pod('z'));
    const { port } = new URL(hanging.url);
    await has('z');
    await hanging.close();
    const sockets = new Set<Socket>();
    const mute = createServer((socket) => sockets.add(socket.on('error', () => undefined)));
    await new Promise<void>((resolve) => mute.listen(Number(port), '127.0.0.1', resolve));
    await until(() => sockets.size > 0, 'a connection to the mute server');
    expect(names).toEqual(['z']);
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => mute.close(resolve));
    const again = await new FakeApi().start(Number(port));
    again.put(PODS, pod('z'));
    again.put(PODS, pod('y'));
    again.oldest = 1e9;
    await until(() => again.count('GET', /pods/) > 0, 'the list');
    await has('y', 'z');
    await reflector.close();
    await again.close();
  });

  test('while the API server is away nothing is removed, and afterwards all is right without help', async () => {
    add('a');
    add('b');
    follow();
    await has('a', 'b');
    const { port } = new URL(fake.url);
    await fake.close();
    const before = changes;
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect({ names, changes }).toEqual({ names: ['a', 'b'], changes: before });
    expect(failures.length).toBeGreaterThan(2);
    // It comes back with another history: versions begin anew, as after a restore of etcd.
    fake = await new FakeApi().start(Number(port));
    fake.oldest = 1e9;
    add('b');
    add('c');
    await has('b', 'c');
  });

  test('a kind that is not installed is looked for again and again, and found when it is', async () => {
    fake.absent.add(PODS);
    follow();
    await until(() => failures.filter((reason) => reason === '404').length > 2, 'some questions');
    expect(changes).toBe(0);
    add('a');
    fake.absent.clear();
    await has('a');
  });
});
