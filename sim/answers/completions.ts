// The answers of /v1/completions, with one choice for each prompt.

import type { Sequence } from '../engine.ts';
import { FINGERPRINT, openaiUsage, totals, type Form, type Head } from './form.ts';

export class CompletionsForm implements Form {
  readonly #head: Head;
  readonly #id: string;
  readonly #start: string;

  constructor(head: Head) {
    this.#head = head;
    this.#id = `cmpl-${head.id}`;
    this.#start =
      `data: {"id":${JSON.stringify(this.#id)},"object":"text_completion","created":${head.createdSeconds},` +
      `"model":${JSON.stringify(head.work.model)},"choices":[`;
  }

  opening(): string {
    return '';
  }

  token(index: number, sequence: Sequence, word: string, isLast: boolean): string {
    const reason = isLast ? `"${sequence.finishReason}"` : 'null';
    return (
      `${this.#start}{"index":${index},"text":"${word}","logprobs":null,"finish_reason":${reason},"stop_reason":null,` +
      `"prompt_token_ids":null,"token_ids":null}]${this.#continuous(sequence)}}\n\n`
    );
  }

  #continuous({ promptTokens, outputTokens }: Sequence): string {
    if (!this.#head.work.continuousUsage || !this.#head.work.includeUsage) return '';
    return (
      `,"usage":{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + outputTokens},` +
      `"completion_tokens":${outputTokens},"completion_tokens_details":null}`
    );
  }

  ending(sequences: readonly Sequence[]): string {
    if (!this.#head.work.includeUsage) return 'data: [DONE]\n\n';
    const { promptTokens, outputTokens, cachedTokens } = totals(sequences);
    return (
      `${this.#start}],"usage":{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + outputTokens},` +
      `"completion_tokens":${outputTokens},"prompt_tokens_details":{"cached_tokens":${cachedTokens}}},` +
      `"system_fingerprint":"${FINGERPRINT}"}\n\ndata: [DONE]\n\n`
    );
  }

  whole(texts: readonly string[], sequences: readonly Sequence[]): unknown {
    return {
      id: this.#id,
      object: 'text_completion',
      created: this.#head.createdSeconds,
      model: this.#head.work.model,
      choices: sequences.map(({ finishReason }, index) => ({
        index,
        text: texts[index],
        logprobs: null,
        finish_reason: finishReason,
        stop_reason: null,
        token_ids: null,
        prompt_logprobs: null,
        prompt_token_ids: null,
        routed_experts: null,
      })),
      service_tier: null,
      system_fingerprint: FINGERPRINT,
      usage: openaiUsage(sequences, false),
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: null,
    };
  }
}
