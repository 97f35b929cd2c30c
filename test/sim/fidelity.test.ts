// The simulator's HTTP face and metrics page against recordings of a real vLLM, byte by byte and field by field. Every difference is named, and the
// names are those that docs/FIDELITY.md lists with their reasons: one that is not listed fails, and so does a listed one that is no more.

import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startReplica, type Replica, type ReplicaOptions } from '../../sim/server.ts';
import {
  comparable,
  families,
  recordedText,
  recording,
  recordingNames,
  requestOf,
  usages,
  type Recording,
} from './recordings.ts';

const BLOCK_TOKENS = 32;
const options: ReplicaOptions = {
  engine: 'H100-8B',
  model: 'tiny',
  blockTokens: BLOCK_TOKENS,
  kvTokens: 8192,
  modelTokensMax: 4096,
  slowFactor: 0.1,
};
const CHAT = '/v1/chat/completions';
const COMPLETIONS = '/v1/completions';

interface Asked {
  path: string;
  body?: string;
  headers?: Record<string, string>;
}

const few = JSON.stringify({ model: 'tiny', prompt: [1, 2, 3, 4, 5], max_tokens: 3, ignore_eos: true });

/** What was asked for each recording, in the order in which the caches filled. */
const asked: Record<string, Asked> = {
  chat_cold: { path: CHAT },
  chat_hit: { path: CHAT },
  chat_stream_plain: { path: CHAT },
  chat_stream_usage: { path: CHAT },
  chat_stream_continuous: { path: CHAT },
  chat_tools: { path: CHAT },
  chat_render: { path: `${CHAT}/render` },
  completions_cold: { path: COMPLETIONS },
  completions_hit: { path: COMPLETIONS },
  completions_stream_usage: { path: COMPLETIONS },
  completions_batch2: { path: COMPLETIONS },
  completions_token_ids: { path: COMPLETIONS },
  completions_orca_json: { path: COMPLETIONS, body: few, headers: { 'endpoint-load-metrics-format': 'JSON' } },
  completions_orca_text: { path: COMPLETIONS, body: few, headers: { 'endpoint-load-metrics-format': 'TEXT' } },
  responses_hit: { path: '/v1/responses' },
  responses_stream: { path: '/v1/responses' },
  messages_hit: { path: '/v1/messages' },
  messages_stream: { path: '/v1/messages' },
  messages_count_tokens: { path: '/v1/messages/count_tokens' },
  tokenize_chat: { path: '/tokenize' },
  tokenize_prompt: { path: '/tokenize' },
  error_bad_json_400: { path: CHAT },
  error_max_tokens_400: { path: COMPLETIONS },
  error_method_405: { path: CHAT },
  error_missing_field_400: { path: CHAT },
  error_model_404: { path: CHAT },
  error_model_404_messages: { path: '/v1/messages' },
  error_model_404_stream: { path: CHAT },
  error_not_found_path: { path: '/v1/nope' },
  error_too_long_400: {
    path: COMPLETIONS,
    body: JSON.stringify({ model: 'tiny', prompt: Array.from({ length: 5000 }, () => 7), max_tokens: 8 }),
  },
  error_too_long_chat_400: {
    path: CHAT,
    body: JSON.stringify({ model: 'tiny', messages: [{ role: 'user', content: 'word '.repeat(6000) }], max_tokens: 8 }),
  },
  health: { path: '/health' },
  kv_event_sources: { path: '/kv_event_sources' },
  load: { path: '/load' },
  models: { path: '/v1/models' },
  version: { path: '/version' },
};
/** Recordings of a server that was full or that was stopped; each has a replica of its own below. */
const ownReplica = ['error_queue_full_503', 'sigterm_midstream_chat', 'engine_killed_midstream_chat'];

async function ask(url: string, body: string | null, headers: Record<string, string> = {}): Promise<Recording> {
  const response = await fetch(url, body === null ? { headers } : { method: 'POST', body, headers });
  return { status: response.status, headers: new Map(response.headers), body: await response.text() };
}

const fingerprintOf = ({ body }: Recording): string | undefined => /"system_fingerprint":"([^"]*)"/.exec(body)?.[1];

/** Lengths and times say nothing about who wrote them. */
const HEADERS_FREE = new Set(['date', 'content-length', 'x-request-id']);

function differences(name: string, real: Recording, ours: Recording): string[] {
  const found: string[] = [];
  if (real.status !== ours.status) found.push(`${name}: status`);
  const names = new Set([...real.headers.keys(), ...ours.headers.keys()]);
  for (const header of names) {
    const isSame =
      real.headers.has(header) === ours.headers.has(header) &&
      (HEADERS_FREE.has(header) || real.headers.get(header) === ours.headers.get(header));
    if (!isSame) found.push(`${name}: header ${header}`);
  }
  const realEvents = comparable(real.body);
  const oursEvents = comparable(ours.body);
  if (realEvents.length !== oursEvents.length) found.push(`${name}: number of events`);
  if (realEvents.some((event, i) => event !== oursEvents[i])) found.push(`${name}: body`);
  if (fingerprintOf(real) !== fingerprintOf(ours)) found.push(`${name}: system_fingerprint`);
  return found;
}

function labelsOf(series: string): Map<string, string> {
  return new Map([...series.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name!, value!]));
}

function pageDifferences(real: string, ours: string): string[] {
  const found: string[] = [];
  const theirs = new Map(families(real).map((family) => [family.name, family]));
  const own = new Map(families(ours).map((family) => [family.name, family]));
  for (const name of new Set([...theirs.keys(), ...own.keys()])) {
    const a = theirs.get(name);
    const b = own.get(name);
    if (a === undefined || b === undefined) {
      found.push(`metrics: family ${name}`);
      continue;
    }
    if (a.type !== b.type) found.push(`metrics: ${name} type`);
    if (a.help !== b.help) found.push(`metrics: ${name} help`);
    if (a.series.length === 1 && b.series.length === 1) {
      const [labelsA, labelsB] = [labelsOf(a.series[0]!), labelsOf(b.series[0]!)];
      if ([...labelsA.keys()].join() !== [...labelsB.keys()].join()) found.push(`metrics: ${name} names of labels`);
      for (const [label, value] of labelsA) {
        if (labelsB.get(label) !== value) found.push(`metrics: ${name} label ${label}`);
      }
    } else if (a.series.join('\n') !== b.series.join('\n')) found.push(`metrics: ${name} series`);
  }
  const both = (names: Iterable<string>): string[] => [...names].filter((name) => theirs.has(name) && own.has(name));
  if (both(theirs.keys()).join() !== both(own.keys()).join()) found.push('metrics: order of families');
  return found;
}

let replica: Replica;
const answers = new Map<string, Recording>();
const found: string[] = [];

beforeAll(async () => {
  replica = await startReplica(options);
  for (const [name, { path, body, headers }] of Object.entries(asked)) {
    const answer = await ask(replica.url + path, body ?? requestOf(name), headers);
    answers.set(name, answer);
    found.push(...differences(name, recording(name), answer));
  }
  const page = await ask(`${replica.url}/metrics`, null);
  found.push(...pageDifferences(recordedText('metrics/page.prom'), page.body));
  found.push(...pageDifferences(recordedText('metrics/kv-cache-metrics.prom'), '').map((name) => `${name} (flag)`));

  const full = await startReplica({ ...options, queueMax: 0 });
  const busy = await ask(full.url + CHAT, requestOf('chat_cold'));
  found.push(...differences('error_queue_full_503', recording('error_queue_full_503'), busy));
  await full.close();

  const adapted = await startReplica({ ...options, loras: ['ad1', 'ad2'] });
  const served = await ask(`${adapted.url}/v1/models`, null);
  if (comparable(recordedText('http/models_lora.json')).join() !== comparable(served.body).join()) {
    found.push('models_lora: body');
  }
  const ofAdapters = await ask(`${adapted.url}/metrics`, null);
  // The recording holds adapters at work, and one series for each combination that was ever seen; both begin with none.
  const idle = recordedText('metrics/lora.prom').replaceAll(/^.*running_lora_adapters="ad.*\n/gm, '');
  found.push(...pageDifferences(idle, ofAdapters.body).filter((name) => name.includes('vllm:lora')));
  await adapted.close();
});
afterAll(() => replica.close());

/** The first column of the list of differences. A star stands for any text. */
const listed = [
  ...readFileSync(new URL('../../docs/FIDELITY.md', import.meta.url), 'utf8').matchAll(/^\| `([^`]+: [^`]+)` +\|/gm),
].map(([, pattern]) => pattern!);

function fits(pattern: string, name: string): boolean {
  const escaped = pattern.split('*').map((part) => part.replaceAll(/[.+?^${}()|[\]\\]/g, String.raw`\$&`));
  return new RegExp(`^${escaped.join('.*')}$`).test(name);
}

describe('differences from a real vLLM', () => {
  test('every recording is compared', () => {
    expect([...Object.keys(asked), ...ownReplica].toSorted()).toEqual(recordingNames.toSorted());
  });

  test('each is listed in docs/FIDELITY.md', () => {
    expect(found.filter((name) => !listed.some((pattern) => fits(pattern, name)))).toEqual([]);
  });

  test('each that is listed is there', () => {
    expect(listed.length).toBeGreaterThan(5);
    expect(listed.filter((pattern) => !found.some((name) => fits(pattern, name)))).toEqual([]);
  });
});

describe('counts of tokens obey the same laws', () => {
  interface Counts {
    prompt: number;
    output: number;
    total: number | undefined;
    cached: number | undefined;
    created: number | undefined;
  }

  function countsOf(usage: Record<string, unknown>): Counts {
    const number = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);
    const details = (usage['prompt_tokens_details'] ?? usage['input_tokens_details'] ?? {}) as Record<string, unknown>;
    const read = number(usage['cache_read_input_tokens']);
    const written = number(usage['cache_creation_input_tokens']);
    return {
      prompt: (number(usage['prompt_tokens'] ?? usage['input_tokens']) ?? 0) + (read ?? 0) + (written ?? 0),
      output: number(usage['completion_tokens'] ?? usage['output_tokens']) ?? 0,
      total: number(usage['total_tokens']),
      cached: read ?? number(details['cached_tokens']),
      created: written ?? number(details['created_cache_tokens'] ?? details['cache_write_tokens']),
    };
  }

  const names = recordingNames.filter((name) => usages(recording(name).body).length > 0 && asked[name] !== undefined);

  test('there are some of every API', () => {
    expect(names.length).toBeGreaterThan(12);
  });

  test.each(names)('%s', (name) => {
    const real = usages(recording(name).body).map(countsOf);
    const ours = usages(answers.get(name)!.body).map(countsOf);
    for (const counts of [real, ours]) {
      for (const { prompt, output, total, cached, created } of counts) {
        expect(prompt).toBeGreaterThan(0);
        if (total !== undefined) expect(total).toBe(prompt + output);
        if (cached === undefined) continue;
        expect(cached % BLOCK_TOKENS).toBe(0);
        expect(cached).toBeLessThan(prompt);
        if (created !== undefined) expect(cached + created).toBe(Math.floor(prompt / BLOCK_TOKENS) * BLOCK_TOKENS);
      }
    }
    // A whole hit is all but the block that holds the last token, in both.
    const last = ours.at(-1)!;
    const realLast = real.at(-1)!;
    const whole = ({ prompt }: Counts): number => Math.floor((prompt - 1) / BLOCK_TOKENS) * BLOCK_TOKENS;
    expect(last.cached === whole(last)).toBe(realLast.cached === whole(realLast));
    expect(last.cached === 0).toBe(realLast.cached === 0);
    expect(last.output).toBe(realLast.output);
  });
});
