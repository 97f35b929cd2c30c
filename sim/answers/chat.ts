// The answers of /v1/chat/completions.

import type { Sequence } from '../engine.ts';
import { CallText, escaped, FINGERPRINT, openaiUsage, totals, type Form, type Head } from './form.ts';

export class ChatForm implements Form {
  readonly #head: Head;
  readonly #id: string;
  readonly #call: CallText | null;
  /** All chunks begin alike, and there is one per token. */
  readonly #start: string;
  readonly #choice: string;

  constructor(head: Head) {
    this.#head = head;
    this.#id = `chatcmpl-${head.id}`;
    const { tool, model } = head.work;
    this.#call = tool === null ? null : new CallText(tool);
    this.#start =
      `data: {"id":${JSON.stringify(this.#id)},"object":"chat.completion.chunk","created":${head.createdSeconds},` +
      `"model":${JSON.stringify(model)},"choices":[`;
    this.#choice = `${this.#start}{"index":0,"delta":{`;
  }

  opening(): string {
    return '';
  }

  token(_index: number, sequence: Sequence, word: string, isLast: boolean): string {
    let text = '';
    const isFirst = sequence.outputTokens === 1;
    if (isFirst) {
      text +=
        `${this.#choice}"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]` +
        `${this.#continuous(sequence, 0)},"prompt_token_ids":null,"prompt_text":null}\n\n`;
    }
    text += this.#choice + this.#delta(sequence, word, isFirst, isLast);
    text += `},"logprobs":null,"finish_reason":${isLast ? `"${this.#finishReason(sequence)}","stop_reason":null,` : 'null,'}"token_ids":null}]`;
    text += this.#continuous(sequence, sequence.outputTokens);
    if (isLast && !this.#head.work.includeUsage) text += `,"system_fingerprint":"${FINGERPRINT}"`;
    return `${text}}\n\n`;
  }

  #delta(sequence: Sequence, word: string, isFirst: boolean, isLast: boolean): string {
    if (this.#call === null) return `"content":"${word}"`;
    const piece = escaped(this.#call.piece(isFirst, word, isLast && sequence.finishReason === 'stop'));
    if (!isFirst) return `"tool_calls":[{"index":0,"function":{"arguments":"${piece}"}}]`;
    const name = JSON.stringify(this.#head.work.tool!.name);
    return `"tool_calls":[{"id":"${this.#callId}","type":"function","index":0,"function":{"name":${name},"arguments":"${piece}"}}]`;
  }

  get #callId(): string {
    return `chatcmpl-tool-${escaped(this.#head.id)}`;
  }

  #finishReason({ finishReason }: Sequence): string {
    const { tool } = this.#head.work;
    return tool !== null && !tool.isNamed && finishReason === 'stop' ? 'tool_calls' : finishReason;
  }

  #continuous({ promptTokens }: Sequence, outputTokens: number): string {
    if (!this.#head.work.continuousUsage || !this.#head.work.includeUsage) return '';
    return (
      `,"usage":{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + outputTokens},` +
      `"completion_tokens":${outputTokens},"completion_tokens_details":null}`
    );
  }

  ending(sequences: readonly Sequence[]): string {
    if (!this.#head.work.includeUsage) return 'data: [DONE]\n\n';
    const { promptTokens, outputTokens, cachedTokens, createdTokens } = totals(sequences);
    return (
      `${this.#start}],"usage":{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + outputTokens},` +
      `"completion_tokens":${outputTokens},"prompt_tokens_details":{"cached_tokens":${cachedTokens},` +
      `"created_cache_tokens":${createdTokens}}},"system_fingerprint":"${FINGERPRINT}"}\n\ndata: [DONE]\n\n`
    );
  }

  whole(texts: readonly string[], sequences: readonly Sequence[]): unknown {
    return {
      id: this.#id,
      object: 'chat.completion',
      created: this.#head.createdSeconds,
      model: this.#head.work.model,
      choices: sequences.map((sequence, index) => ({
        index,
        message: {
          role: 'assistant',
          content: this.#call === null ? texts[index] : '',
          refusal: null,
          annotations: null,
          audio: null,
          function_call: null,
          ...this.#calls(texts[index]!, sequence),
          reasoning: null,
        },
        logprobs: null,
        finish_reason: this.#finishReason(sequence),
        stop_reason: null,
        token_ids: null,
        routed_experts: null,
      })),
      service_tier: null,
      system_fingerprint: FINGERPRINT,
      usage: openaiUsage(sequences, true),
      prompt_logprobs: null,
      prompt_token_ids: null,
      prompt_text: null,
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: null,
    };
  }

  #calls(text: string, { finishReason }: Sequence): object {
    if (this.#call === null) return {};
    const called = { name: this.#head.work.tool!.name, arguments: this.#call.whole(text, finishReason === 'stop') };
    return { tool_calls: [{ id: this.#callId, type: 'function', function: called }] };
  }
}
