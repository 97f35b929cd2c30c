// One HTTP answer being written: whole JSON at the end, or server-sent events as the tokens come. What the bytes around the text are is each API's
// own matter (sim/answers); when they go out is the same for all.

import type { ServerResponse } from 'node:http';
import { ChatForm } from './answers/chat.ts';
import { CompletionsForm } from './answers/completions.ts';
import { EmbeddingsForm } from './answers/embeddings.ts';
import type { Form, Head } from './answers/form.ts';
import { MessagesForm } from './answers/messages.ts';
import { ResponsesForm } from './answers/responses.ts';
import { Sequence } from './engine.ts';
import type { Work } from './intake.ts';
import type { ReplicaMetrics } from './metrics.ts';

function formOf(head: Head): Form {
  switch (head.work.api) {
    case 'chat':
      return new ChatForm(head);
    case 'completions':
      return new CompletionsForm(head);
    case 'responses':
      return new ResponsesForm(head);
    case 'embeddings':
      return new EmbeddingsForm(head);
    default:
      return new MessagesForm(head);
  }
}

export class Answer {
  readonly sequences: Sequence[];
  readonly #form: Form;
  readonly #isStream: boolean;
  readonly #response: ServerResponse;
  readonly #texts: string[];
  #open: number;

  constructor(work: Work, id: string, response: ServerResponse, metrics: ReplicaMetrics) {
    this.#form = formOf({ id, createdSeconds: Math.floor(Date.now() / 1000), work });
    this.#isStream = work.stream;
    this.#response = response;
    this.#open = work.prompts.length;
    this.#texts = work.prompts.map(() => '');
    this.sequences = work.prompts.map(
      ({ hasher, outputTokens, finishReason, tokensAsked }, index) =>
        new Sequence(
          hasher,
          outputTokens,
          {
            token: (sequence, word, nowMs) => {
              metrics.token(sequence, nowMs);
              this.#token(index, sequence, word);
            },
            finished: (sequence, nowMs) => {
              metrics.finished(sequence, nowMs, tokensAsked);
              this.#finished();
            },
          },
          finishReason,
        ),
    );
    for (const sequence of this.sequences) metrics.added(sequence, work.model);
  }

  /** Streams get their headers before any engine work, as real ones do: the first token is the first chunk with content. */
  open(): void {
    if (!this.#isStream) return;
    this.#response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    const opening = this.#form.opening();
    if (opening === '') this.#response.flushHeaders();
    else this.#response.write(opening);
  }

  #token(index: number, sequence: Sequence, word: string): void {
    if (!this.#isStream) {
      this.#texts[index] += word;
      return;
    }
    if (this.#response.destroyed) return;
    const isLast = sequence.outputTokens >= sequence.outputTokensMax;
    const text = this.#form.token(index, sequence, word, isLast);
    // The last words go out together with what ends the stream.
    if (isLast && this.#open === 1) this.#response.end(text + this.#form.ending(this.sequences));
    else this.#response.write(text);
  }

  #finished(): void {
    this.#open -= 1;
    if (this.#open > 0 || this.#isStream || this.#response.destroyed) return;
    const text = JSON.stringify(this.#form.whole(this.#texts, this.sequences));
    this.#response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
    this.#response.end(text);
  }
}
