// The commands of a document, in order: what stands in its shell blocks, lines that end in a backslash joined. The tests run them, so
// that what people copy is what was tried.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..', '..');

export function commandsOf(document: string): string[] {
  const text = readFileSync(join(root, document), 'utf8');
  return [...text.matchAll(/^```sh\n(.*?)^```/gms)].flatMap(([, block = '']) =>
    block
      .replaceAll(/ *\\\n */g, ' ')
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#')),
  );
}

/** Words as a shell sees them, quotes of both kinds taken off. */
export const wordsOf = (line: string): string[] =>
  [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2] ?? match[3] ?? '');
