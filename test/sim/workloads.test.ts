// Workloads: the same seed gives the same requests, the table's sizes hold, and the trivial policies land where they were published.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { BlockHasher, renderChat } from '../../sim/tokens.ts';
import { traceWorkload } from '../../sim/trace.ts';
import { firstBlockHash, oracle, roundRobin, runVirtual } from '../../sim/virtual.ts';
import type { Workload } from '../../sim/workload.ts';
import { WORKLOAD_IDS, workload } from '../../sim/workloads.ts';

/** The first requests of the first sessions, answered with a fixed text. */
function sample(load: Workload, sessionsMax = 5, turnsMax = 3): unknown[] {
  return load
    .sessions()
    .slice(0, sessionsMax)
    .flatMap((session) => {
      const seen: unknown[] = [session.startMs];
      for (let turn = 0; turn < turnsMax; turn++) seen.push(session.next(turn === 0 ? '' : ' fine'));
      return seen;
    });
}

function promptTokens(load: Workload, index: number): number {
  const hasher = new BlockHasher();
  renderChat(hasher, { messages: load.sessions()[index]!.next('')!.messages });
  return hasher.tokens;
}

describe('every workload', () => {
  test.each(WORKLOAD_IDS)('%s depends on its seed alone', (id) => {
    const options = { seconds: 3 };
    expect(sample(workload(id, 7, options))).toEqual(sample(workload(id, 7, options)));
    expect(sample(workload(id, 7, options))).not.toEqual(sample(workload(id, 8, options)));
  });

  test('one workload can be played more than once', () => {
    const load = workload('W3s', 1, { seconds: 2 });
    expect(sample(load)).toEqual(sample(load));
  });

  test('an unknown name is refused', () => {
    expect(() => workload('W9' as 'W1')).toThrow('unknown name "W9", expected one of W1, W2');
  });
});

describe('sizes', () => {
  test('W1: 11 users, 10 turns a round, 2 documents of 2,000 tokens, history of the answers', () => {
    const sessions = workload('W1', 1, { rounds: 2 }).sessions();
    expect(sessions).toHaveLength(11);
    const documents = new Set<string>();
    for (const session of sessions) {
      let turns = 0;
      for (let request = session.next(''); request !== null; request = session.next(' so be it')) {
        expect(request.messages).toHaveLength(2 + 2 * (turns % 10));
        if (turns % 10 > 0) expect(request.messages.at(-2)).toEqual({ role: 'assistant', content: ' so be it' });
        expect(request.outputTokens).toBeGreaterThanOrEqual(80);
        expect(request.outputTokens).toBeLessThanOrEqual(220);
        documents.add(request.messages[0]!.content);
        turns += 1;
      }
      expect(turns).toBe(20);
    }
    // Two types a round, new ones each round.
    expect(documents.size).toBe(4);
  });

  test('W3s: four of five prompts are the hot prefix, and it has 8,000 tokens', () => {
    const sessions = workload('W3s', 1).sessions();
    const systems = sessions.map((session) => session.next('')!.messages[0]!.content);
    const counts = Map.groupBy(systems, (system) => system);
    const hot = [...counts.values()].map((same) => same.length).toSorted((a, b) => b - a);
    expect(hot[0]! / systems.length).toBeGreaterThan(0.76);
    expect(hot[0]! / systems.length).toBeLessThan(0.84);
    expect(counts.size).toBe(41);
    expect(sessions.length / 90).toBeGreaterThan(18);
    expect(sessions.length / 90).toBeLessThan(22);
    const first = promptTokens(
      workload('W3s', 1),
      systems.indexOf([...counts].toSorted((a, b) => b[1].length - a[1].length)[0]![0]),
    );
    expect(first).toBeGreaterThan(8300);
    expect(first).toBeLessThan(8720);
  });
});

describe('trace', () => {
  const lines = [
    { timestamp: 1000, input_length: 1300, output_length: 20, hash_ids: [0, 1, 2] },
    { timestamp: 3000, input_length: 1500, output_length: 30, hash_ids: [0, 1, 3] },
    { timestamp: 3500, input_length: 40, output_length: 1, hash_ids: [0] },
    { timestamp: 3600, input_length: 2000, output_length: 1, hash_ids: [9] },
  ];

  test('prompts have their recorded length and share what their ids share', () => {
    const folder = mkdtempSync(join(tmpdir(), 'warmpath-trace-'));
    try {
      const file = join(folder, 'trace.jsonl');
      writeFileSync(file, lines.map((line) => JSON.stringify(line)).join('\n'));
      const load = traceWorkload(file, Infinity, { speed: 2 });
      expect(load.sessions().map(({ startMs }) => startMs)).toEqual([0, 1000, 1250, 1300]);
      expect(lines.map((_, index) => promptTokens(load, index))).toEqual([1300, 1500, 40, 2000]);
      const [one, two] = load.sessions().map((session) => session.next('')!.messages[0]!.content);
      const hashers = [one!, two!].map((content) => {
        const hasher = new BlockHasher();
        renderChat(hasher, { messages: [{ role: 'user', content }] });
        return hasher.keys;
      });
      const same = hashers[0]!.filter((key, index) => hashers[1]![index] === key).length;
      expect(same).toBe(Math.floor((1024 + 3) / 16));
      expect(traceWorkload(file, 2).sessions()).toHaveLength(2);
      writeFileSync(file, '{"timestamp": 1}');
      expect(() => traceWorkload(file)).toThrow('trace.jsonl:1 has no number input_length');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('a trace that is absent is said to be no part of the repository', () => {
    expect(() => traceWorkload('/nowhere/trace.jsonl')).toThrow('not part of this repository');
  });
});

describe('calibration', () => {
  test('W1: round robin and affinity come near the published times and shares', () => {
    const load = workload('W1', 2);
    const even = runVirtual({ workload: load, chooser: roundRobin() }).summary;
    const best = runVirtual({ workload: load, chooser: oracle() }).summary;
    // Published: p95 745 -> 272 ms, p99 841 -> 674 ms, hit 62 -> 90 %.
    expect(even.ttftMs.p95).toBeGreaterThan(600);
    expect(even.ttftMs.p95).toBeLessThan(850);
    expect(best.ttftMs.p99).toBeGreaterThan(550);
    expect(best.ttftMs.p99).toBeLessThan(750);
    expect(even.ttftMs.p95 / best.ttftMs.p95).toBeGreaterThan(2.5);
    expect(even.hitShareTokens).toBeLessThan(0.84);
    expect(best.hitShareTokens).toBeGreaterThan(0.9);
    expect(Math.abs(best.requestsPerSecond / even.requestsPerSecond - 1)).toBeLessThan(0.05);
  });

  test('W1 with rewritten answers: what affinity finds is the published 90 %', () => {
    const best = runVirtual({ workload: workload('W1', 2, { answers: 'rewritten' }), chooser: oracle() }).summary;
    expect(best.hitShareTokens).toBeGreaterThan(0.89);
    expect(best.hitShareTokens).toBeLessThan(0.93);
  });

  test('W3s: round robin, first-block hash and perfect knowledge as in the study', () => {
    const load = workload('W3s', 2);
    const [even, hashed, best] = [roundRobin(), firstBlockHash(), oracle()].map(
      (chooser) => runVirtual({ workload: load, chooser }).summary,
    );
    // The study: 210 ms, 22.4 s, 60 ms.
    expect(even!.ttftMs.p95).toBeGreaterThan(180);
    expect(even!.ttftMs.p95).toBeLessThan(260);
    expect(hashed!.ttftMs.p95).toBeGreaterThan(10_000);
    expect(hashed!.busiestPodShare).toBeGreaterThan(3);
    expect(best!.ttftMs.p95).toBeLessThan(0.5 * even!.ttftMs.p95);
    expect(best!.busiestPodShare).toBeLessThan(1.3);
  });

  test('a run can be repeated exactly', () => {
    const load = workload('W5', 3, { seconds: 10 });
    const play = () => runVirtual({ workload: load, chooser: roundRobin() }).records;
    expect(play()).toEqual(play());
  });
});
