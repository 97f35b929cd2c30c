// Reads images/Dockerfile into its stages and steps, as far as it uses the language, so that tests can hold it against the repository and
// walk through it without a container engine.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export const root = join(import.meta.dirname, '..', '..');

export interface Step {
  instruction: string;
  text: string;
}

export interface Stage {
  name: string;
  steps: Step[];
}

const known = ['ARG', 'FROM', 'WORKDIR', 'COPY', 'RUN', 'ENV', 'USER', 'EXPOSE', 'ENTRYPOINT', 'CMD'];

export function stages(): Stage[] {
  const found: Stage[] = [];
  const lines = readFileSync(join(root, 'images', 'Dockerfile'), 'utf8').split('\n');
  for (const line of lines.filter((text) => text !== '' && !text.startsWith('#'))) {
    const [, instruction = '', text = ''] = /^([A-Z]+) (.*)$/.exec(line) ?? [];
    if (!known.includes(instruction)) throw new Error(`a line that this reader does not know: ${line}`);
    if (instruction === 'FROM') found.push({ name: / AS (\S+)$/.exec(text)?.[1] ?? '', steps: [] });
    else if (instruction !== 'ARG') found.at(-1)?.steps.push({ instruction, text });
  }
  return found;
}

export interface Copy {
  /** A stage, or null for the repository. */
  from: string | null;
  sources: string[];
  target: string;
}

export function copyOf({ text }: Step): Copy {
  const words = text.split(' ');
  const from = words[0]?.startsWith('--from=') ? words.shift()!.slice('--from='.length) : null;
  const target = words.pop() ?? '';
  return { from, sources: words, target };
}

/** The value of the last step of that kind in a stage. */
export const lastOf = (stage: Stage, instruction: string): string | undefined =>
  stage.steps.findLast((step) => step.instruction === instruction)?.text;
