// The answers of /v1/messages. A real vLLM makes them from its chat stream, so the first event comes with the first token.

import type { Sequence } from '../engine.ts';
import { CallText, escaped, event, totals, type Form, type Head } from './form.ts';

export class MessagesForm implements Form {
  readonly #head: Head;
  readonly #id: string;
  readonly #call: CallText | null;

  constructor(head: Head) {
    this.#head = head;
    this.#id = `chatcmpl-${head.id}`;
    this.#call = head.work.tool === null ? null : new CallText(head.work.tool);
  }

  opening(): string {
    return '';
  }

  token(_index: number, sequence: Sequence, word: string, isLast: boolean): string {
    const isFirst = sequence.outputTokens === 1;
    let text = isFirst ? this.#start(sequence) : '';
    const delta =
      this.#call === null
        ? `"text_delta","text":"${word}"`
        : `"input_json_delta","partial_json":"${escaped(this.#call.piece(isFirst, word, isLast && sequence.finishReason === 'stop'))}"`;
    text += `event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":${delta}},"index":0}\n\n`;
    if (isLast) text += event('content_block_stop', { type: 'content_block_stop', index: 0 });
    return text;
  }

  #start({ promptTokens }: Sequence): string {
    const message = {
      id: this.#id,
      type: 'message',
      role: 'assistant',
      content: [],
      model: this.#head.work.model,
      stop_reason: null,
      stop_sequence: null,
      // What the cache held is not told before the end.
      usage: { input_tokens: promptTokens, output_tokens: 0 },
    };
    const block = this.#call === null ? { type: 'text', text: '' } : this.#toolUse({});
    return (
      event('message_start', { type: 'message_start', message }) +
      event('content_block_start', { type: 'content_block_start', content_block: block, index: 0 })
    );
  }

  #toolUse(input: unknown): object {
    return { type: 'tool_use', id: `chatcmpl-tool-${this.#head.id}`, name: this.#head.work.tool!.name, input };
  }

  #stopReason({ finishReason }: Sequence): string {
    if (finishReason === 'length') return 'max_tokens';
    return this.#call === null ? 'end_turn' : 'tool_use';
  }

  /** Here the prompt is what was computed and not kept, what was kept, and what the cache held. */
  #usage(sequences: readonly Sequence[]): object {
    const { promptTokens, outputTokens, cachedTokens, createdTokens } = totals(sequences);
    return {
      input_tokens: promptTokens - cachedTokens - createdTokens,
      output_tokens: outputTokens,
      cache_creation_input_tokens: createdTokens,
      cache_read_input_tokens: cachedTokens,
    };
  }

  ending(sequences: readonly Sequence[]): string {
    const delta = { stop_reason: this.#stopReason(sequences[0]!), stop_sequence: null };
    return (
      event('message_delta', { type: 'message_delta', delta, usage: this.#usage(sequences) }) +
      event('message_stop', { type: 'message_stop' })
    );
  }

  whole(texts: readonly string[], sequences: readonly Sequence[]): unknown {
    const [text] = texts as [string];
    const [sequence] = sequences as [Sequence];
    return {
      id: this.#id,
      type: 'message',
      role: 'assistant',
      content: [this.#content(text, sequence)],
      model: this.#head.work.model,
      stop_reason: this.#stopReason(sequence),
      usage: this.#usage(sequences),
    };
  }

  #content(text: string, { finishReason }: Sequence): object {
    if (this.#call === null) return { type: 'text', text };
    // A call that was cut off is no JSON, and this API has no place for half of one.
    return this.#toolUse(finishReason === 'stop' ? JSON.parse(this.#call.whole(text, true)) : {});
  }
}
