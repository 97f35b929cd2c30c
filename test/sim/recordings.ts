// Recordings of a real vLLM (test/vectors/vllm), and the form in which an answer of the simulator is compared with one: what differs from run to
// run (ids, times, what was said, how many tokens a tokenizer made) is replaced by a word, and every other byte has to be the same.

import { existsSync, readdirSync, readFileSync } from 'node:fs';

const folder = new URL('../vectors/vllm/', import.meta.url);

export interface Recording {
  status: number;
  headers: Map<string, string>;
  body: string;
}

export function recording(name: string): Recording {
  const text = readFileSync(new URL(`http/${name}.http`, folder), 'utf8').replaceAll('\r\n', '\n');
  const cut = text.indexOf('\n\n');
  const [first, ...rest] = text.slice(0, cut).split('\n') as [string, ...string[]];
  const headers = new Map(
    rest.map((line): [string, string] => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  return { status: Number(first.split(' ')[1]), headers, body: text.slice(cut + 2) };
}

export const recordingNames = readdirSync(new URL('http/', folder))
  .filter((name) => name.endsWith('.http'))
  .map((name) => name.slice(0, -'.http'.length));

/** The body that was sent; null where none was kept. */
export function requestOf(name: string): string | null {
  const path = new URL(`http/${name}.request.json`, folder);
  return existsSync(path) ? readFileSync(path, 'utf8') : null;
}

export function recordedText(path: string): string {
  return readFileSync(new URL(path, folder), 'utf8');
}

const TOKENS =
  'prompt_tokens|total_tokens|completion_tokens|cached_tokens|created_cache_tokens|input_tokens|output_tokens|cache_write_tokens|' +
  'cache_creation_input_tokens|cache_read_input_tokens|original_input_tokens|count';

/** The pieces of an answer that differ from run to run. A count of tokens stays 0 where it is 0. */
const volatile: [RegExp, string][] = [
  [
    /"(id|item_id|call_id|request_id)":"(chatcmpl-tool|chatcmpl|cmpl|resp|msg|fc|modelperm)([-_])[^"]*"/g,
    '"$1":"$2$3ID"',
  ],
  [/"(created|created_at)":\d+/g, '"$1":TIME'],
  [/"root":"[^"]*"/g, '"root":"PATH"'],
  [new RegExp(`"(${TOKENS})":[1-9]\\d*`, 'g'), '"$1":N'],
  [/"system_fingerprint":"vllm-0\.32\.0-\w+"/g, '"system_fingerprint":"vllm-0.32.0-BUILD"'],
  [/"sequence_number":\d+/g, '"sequence_number":N'],
  [/"(content|text|delta)":"(?:[^"\\]|\\.)+"/g, '"$1":"SAID"'],
];

function plain(text: string): string {
  return volatile.reduce((now, [pattern, word]) => now.replace(pattern, word), text);
}

/** A body without what is volatile; of a stream, events that then are equal to the one before are one. */
export function comparable(body: string): string[] {
  const events = body.split(/(?<=\n\n)/).map(plain);
  return events.filter((event, i) => event !== events[i - 1]);
}

/** The counts of tokens that an answer tells, by their place. */
export function usages(body: string): Record<string, unknown>[] {
  const values = body.startsWith('{')
    ? [JSON.parse(body) as Record<string, unknown>]
    : body
        .split('\n')
        .filter((line) => line.startsWith('data: {'))
        .map((line) => JSON.parse(line.slice(6)) as Record<string, unknown>);
  return values.flatMap((value) => {
    const inner = (value['message'] ?? value['response'] ?? value) as { usage?: Record<string, unknown> | null };
    return inner.usage === null || inner.usage === undefined ? [] : [inner.usage];
  });
}

export interface Family {
  name: string;
  type: string;
  help: string;
  /** Each series' labels, the bounds of buckets among them, with the names in order; values that tell a size or a setting apart. */
  series: string[];
}

/** The families of a metrics page in their order. */
export function families(text: string): Family[] {
  const found: Family[] = [];
  let help = '';
  for (const line of text.split('\n')) {
    if (line.startsWith('# HELP ')) help = line.slice('# HELP '.length);
    else if (line.startsWith('# TYPE ')) {
      const [name, type] = line.slice('# TYPE '.length).split(' ') as [string, string];
      found.push({ name, type, help: help.slice(name.length + 1), series: [] });
    } else if (line !== '') found.at(-1)!.series.push(line.slice(0, line.lastIndexOf(' ')));
  }
  return found;
}
