// The answers of /v1/responses: an object that repeats much of its request, and a stream that begins before the engine does, with events that
// are numbered through.

import type { Sequence } from '../engine.ts';
import { CallText, event, pythonFloat, totals, type Form, type Head } from './form.ts';

export class ResponsesForm implements Form {
  readonly #head: Head;
  readonly #id: string;
  readonly #itemId: string;
  readonly #call: CallText | null;
  #sequenceNumber = 0;
  #said = '';

  constructor(head: Head) {
    this.#head = head;
    this.#id = `resp_${head.id}`;
    const { tool } = head.work;
    this.#itemId = `${tool === null ? 'msg' : 'fc'}_${head.id}`;
    this.#call = tool === null ? null : new CallText(tool);
  }

  /** Fields stand in the order of the alphabet, so some come after the number. */
  #event(type: string, fields: object, fieldsLast: object = {}): string {
    const numbered = { ...fields, sequence_number: this.#sequenceNumber, ...fieldsLast, type };
    this.#sequenceNumber += 1;
    return event(type, numbered);
  }

  opening(): string {
    const response = this.#response('in_progress', [], null);
    return this.#event('response.created', { response }) + this.#event('response.in_progress', { response });
  }

  token(_index: number, sequence: Sequence, word: string, isLast: boolean): string {
    const isFirst = sequence.outputTokens === 1;
    let text = isFirst ? this.#start() : '';
    if (this.#call === null) {
      this.#said += word;
      text += this.#event('response.output_text.delta', {
        content_index: 0,
        delta: word,
        item_id: this.#itemId,
        logprobs: [],
        output_index: 0,
      });
    } else {
      const piece = this.#call.piece(isFirst, word, isLast && sequence.finishReason === 'stop');
      this.#said += piece;
      const fields = { delta: piece, item_id: this.#itemId, output_index: 0 };
      text += this.#event('response.function_call_arguments.delta', fields);
    }
    return isLast ? text + this.#stop() : text;
  }

  #start(): string {
    const added = this.#event('response.output_item.added', {
      item: this.#call === null ? this.#message([], 'in_progress') : this.#functionCall('', 'in_progress'),
      output_index: 0,
    });
    if (this.#call !== null) return added;
    const part = { annotations: [], text: '', type: 'output_text', logprobs: [] };
    const fields = { content_index: 0, item_id: this.#itemId, output_index: 0, part };
    return added + this.#event('response.content_part.added', fields);
  }

  #stop(): string {
    if (this.#call !== null) {
      const fields = {
        arguments: this.#said,
        item_id: this.#itemId,
        name: this.#head.work.tool!.name,
        output_index: 0,
      };
      return (
        this.#event('response.function_call_arguments.done', fields) +
        this.#event('response.output_item.done', { item: this.#item(this.#said), output_index: 0 })
      );
    }
    const place = { content_index: 0, item_id: this.#itemId };
    return (
      this.#event('response.output_text.done', { ...place, logprobs: [], output_index: 0 }, { text: this.#said }) +
      this.#event('response.content_part.done', { ...place, output_index: 0, part: this.#text(this.#said) }) +
      this.#event('response.output_item.done', { item: this.#item(this.#said), output_index: 0 })
    );
  }

  ending(sequences: readonly Sequence[]): string {
    const response = this.#response(this.#status(sequences), [this.#item(this.#said)], this.#usage(sequences));
    return this.#event('response.completed', { response });
  }

  whole(texts: readonly string[], sequences: readonly Sequence[]): unknown {
    const [text] = texts as [string];
    const [{ finishReason }] = sequences as [Sequence];
    const said = this.#call === null ? text : this.#call.whole(text, finishReason === 'stop');
    return this.#response(this.#status(sequences), [this.#item(said)], this.#usage(sequences));
  }

  #status(sequences: readonly Sequence[]): string {
    return sequences[0]!.finishReason === 'length' ? 'incomplete' : 'completed';
  }

  #text(text: string): object {
    return { annotations: [], text, type: 'output_text', logprobs: null };
  }

  #message(content: object[], status: string): object {
    return { id: this.#itemId, content, role: 'assistant', status, type: 'message', phase: null };
  }

  #functionCall(text: string, status: string): object {
    const callId = `call_${this.#head.id}`;
    const { name } = this.#head.work.tool!;
    return { arguments: text, call_id: callId, name, type: 'function_call', id: this.#itemId, status };
  }

  #item(said: string): object {
    return this.#call === null ? this.#message([this.#text(said)], 'completed') : this.#functionCall(said, 'completed');
  }

  #usage(sequences: readonly Sequence[]): object {
    const { promptTokens, outputTokens, cachedTokens, createdTokens } = totals(sequences);
    return {
      input_tokens: promptTokens,
      input_tokens_details: {
        cached_tokens: cachedTokens,
        cache_write_tokens: createdTokens,
        input_tokens_per_turn: [],
        cached_tokens_per_turn: [],
      },
      output_tokens: outputTokens,
      output_tokens_details: {
        reasoning_tokens: 0,
        tool_output_tokens: 0,
        output_tokens_per_turn: [],
        tool_output_tokens_per_turn: [],
      },
      total_tokens: promptTokens + outputTokens,
    };
  }

  #response(status: string, output: object[], usage: object | null): object {
    const { body, model } = this.#head.work;
    const tools = Array.isArray(body['tools']) ? body['tools'] : [];
    return {
      id: this.#id,
      created_at: this.#head.createdSeconds,
      incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      instructions: body['instructions'] ?? null,
      metadata: body['metadata'] ?? null,
      model,
      object: 'response',
      output,
      parallel_tool_calls: body['parallel_tool_calls'] ?? true,
      temperature: pythonFloat(body['temperature'] ?? 1),
      tool_choice: body['tool_choice'] ?? (tools.length > 0 ? 'auto' : 'none'),
      tools,
      top_p: pythonFloat(body['top_p'] ?? 1),
      background: false,
      max_output_tokens: body['max_output_tokens'] ?? null,
      max_tool_calls: null,
      previous_response_id: body['previous_response_id'] ?? null,
      prompt: null,
      reasoning: body['reasoning'] ?? null,
      service_tier: 'auto',
      status,
      text: body['text'] ?? null,
      top_logprobs: null,
      truncation: 'disabled',
      usage,
      user: body['user'] ?? null,
      presence_penalty: pythonFloat(body['presence_penalty'] ?? 0),
      frequency_penalty: pythonFloat(body['frequency_penalty'] ?? 0),
      kv_transfer_params: null,
      ec_transfer_params: null,
      input_messages: null,
      output_messages: null,
    };
  }
}
