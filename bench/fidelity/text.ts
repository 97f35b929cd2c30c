// Texts whose tokens can be counted beforehand: words that are one token each, for the simulator by its rule and for the tiny model by its vocabulary.
// The model's tokenizer is trained where it is made, so its words are asked for and not believed.

import { nextState, spread } from '../../sim/tokens.ts';

/** Words that Python's own sources are full of: what the tokenizer is trained on. */
const CANDIDATES =
  'the self return def for and not file raise name else line value arg with object that from other are get try path fun len except string ' +
  'this elif type result option comp module key class par list has read import new time data can set pre method code number print add bytes ' +
  'format str use pos sup all args out int error will sub node used must stack first mode any lines cls break pass give end action text have ' +
  'which one cur size exp base while test given tuple case frame max should item start may sign call but only last when values names next does ' +
  'dict field opt help write then was follow check parser match source date input member output group fin char';

const WORDS_MIN = 48;

export interface Vocabulary {
  /** A text of exactly so many tokens that depends on the seed alone. */
  text(seed: number, tokens: number): string;
}

async function tokensOf(url: string, model: string, prompt: string): Promise<number> {
  const response = await fetch(`${url}/tokenize`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model, prompt }),
  });
  if (!response.ok) throw new Error(`${url}/tokenize answers ${response.status}`);
  return ((await response.json()) as { count: number }).count;
}

export async function vocabularyOf(url: string, model: string): Promise<Vocabulary> {
  const words: string[] = [];
  for (const word of CANDIDATES.split(' ')) {
    if (word.length <= 6 && (await tokensOf(url, model, ` ${word}`)) === 1) words.push(` ${word}`);
  }
  if (words.length < WORDS_MIN) throw new Error(`only ${words.length} words are one token for the model at ${url}`);
  const text = (seed: number, tokens: number): string => {
    let state = spread(seed);
    const parts: string[] = [];
    for (let i = 0; i < tokens; i++) {
      state = nextState(state);
      parts.push(words[(state >>> 9) % words.length]!);
    }
    return parts.join('');
  };
  const counted = await tokensOf(url, model, text(1, 500));
  if (counted !== 500) throw new Error(`500 words are ${counted} tokens for the model at ${url}`);
  return { text };
}

/** The tokens of a chat as the engine's own template and tokenizer make them. */
export async function chatTokens(url: string, model: string, messages: unknown): Promise<number[]> {
  const response = await fetch(`${url}/tokenize`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages, add_generation_prompt: true }),
  });
  if (!response.ok) throw new Error(`${url}/tokenize answers ${response.status}`);
  return ((await response.json()) as { tokens: number[] }).tokens;
}
