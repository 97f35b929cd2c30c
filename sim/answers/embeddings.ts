// The answers of /v1/embeddings: a small vector of unit length for each text, the same for the same text.

import type { Sequence } from '../engine.ts';
import { nextState, spread } from '../tokens.ts';
import { totals, type Form, type Head } from './form.ts';

const DIMENSIONS_DEFAULT = 8;
const DIMENSIONS_MAX = 1024;

export class EmbeddingsForm implements Form {
  readonly #head: Head;
  readonly #vectors: Float32Array[];

  constructor(head: Head) {
    this.#head = head;
    const { prompts, body } = head.work;
    const asked = body['dimensions'];
    const dimensions = typeof asked === 'number' && asked >= 1 ? Math.min(asked, DIMENSIONS_MAX) : DIMENSIONS_DEFAULT;
    // Made before the engine adds its token to what the hasher has seen.
    this.#vectors = prompts.map(({ hasher }) => vectorOf(hasher.state, dimensions));
  }

  opening(): string {
    return '';
  }

  token(): string {
    return '';
  }

  ending(): string {
    return '';
  }

  whole(_texts: readonly string[], sequences: readonly Sequence[]): unknown {
    const { promptTokens } = totals(sequences);
    const isBase64 = this.#head.work.body['encoding_format'] === 'base64';
    return {
      id: `embd-${this.#head.id}`,
      object: 'list',
      created: this.#head.createdSeconds,
      model: this.#head.work.model,
      data: this.#vectors.map((vector, index) => ({
        index,
        object: 'embedding',
        embedding: isBase64 ? Buffer.from(vector.buffer).toString('base64') : [...vector],
      })),
      usage: {
        prompt_tokens: promptTokens,
        total_tokens: promptTokens,
        completion_tokens: 0,
        prompt_tokens_details: null,
      },
    };
  }
}

function vectorOf(seed: number, dimensions: number): Float32Array {
  const vector = new Float32Array(dimensions);
  let state = spread(seed);
  let square = 0;
  for (let i = 0; i < dimensions; i++) {
    state = nextState(state);
    const value = state / 2 ** 31 - 1;
    vector[i] = value;
    square += value * value;
  }
  const length = Math.sqrt(square) || 1;
  return vector.map((value) => value / length);
}
