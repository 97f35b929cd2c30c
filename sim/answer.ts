// One HTTP answer being written: whole JSON at the end, or server-sent events as the tokens come. The bytes around the text follow vLLM's.

import type { ServerResponse } from 'node:http';
import { Sequence } from './engine.ts';
import type { Work } from './intake.ts';
import type { ReplicaMetrics } from './metrics.ts';

const FINGERPRINT = 'vllm-0.32.0-sim';

export class Answer {
  readonly sequences: Sequence[];
  readonly #work: Work;
  readonly #id: string;
  readonly #model: string;
  readonly #created: number;
  readonly #response: ServerResponse;
  readonly #texts: string[];
  readonly #heads: string[];
  #open: number;

  constructor(work: Work, id: string, model: string, response: ServerResponse, metrics: ReplicaMetrics) {
    this.#work = work;
    this.#id = `${work.api === 'chat' ? 'chatcmpl' : 'cmpl'}-${id}`;
    this.#model = model;
    this.#created = Math.floor(Date.now() / 1000);
    this.#response = response;
    this.#open = work.prompts.length;
    this.#texts = work.prompts.map(() => '');
    const kind = work.api === 'chat' ? 'chat.completion.chunk' : 'text_completion';
    const field = work.api === 'chat' ? '"delta":{"content":' : '"text":';
    this.#heads = work.prompts.map(
      (_, index) =>
        `data: {"id":${JSON.stringify(this.#id)},"object":"${kind}","created":${this.#created},` +
        `"model":${JSON.stringify(model)},"choices":[{"index":${index},${field}"`,
    );
    this.sequences = work.prompts.map(
      ({ hasher, outputTokens, finishReason }, index) =>
        new Sequence(
          hasher,
          outputTokens,
          {
            token: (sequence, word, nowMs) => {
              metrics.token(sequence, nowMs);
              this.#token(index, sequence, word);
            },
            finished: (sequence, nowMs) => {
              metrics.finished(sequence, nowMs);
              this.#finished();
            },
          },
          finishReason,
        ),
    );
  }

  /** Streams get their headers before any engine work, as real ones do: the first token is the first chunk with content. */
  open(): void {
    if (!this.#work.stream) return;
    this.#response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    this.#response.flushHeaders();
  }

  #token(index: number, sequence: Sequence, word: string): void {
    if (!this.#work.stream) {
      this.#texts[index] += word;
      return;
    }
    if (this.#response.destroyed) return;
    const chat = this.#work.api === 'chat';
    const last = sequence.outputTokens >= sequence.outputTokensMax;
    let text = '';
    if (chat && sequence.outputTokens === 1) {
      const head = this.#heads[index]!;
      text +=
        `${head.slice(0, -'"content":"'.length)}"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]` +
        `${this.#continuous(sequence, 0)},"prompt_token_ids":null,"prompt_text":null}\n\n`;
    }
    const reason = last ? `"${sequence.finishReason}"` : 'null';
    text += this.#heads[index]! + word;
    if (chat) {
      text += `"},"logprobs":null,"finish_reason":${reason},${last ? '"stop_reason":null,' : ''}"token_ids":null}]`;
    } else {
      text += `","logprobs":null,"finish_reason":${reason},"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]`;
    }
    text += this.#continuous(sequence, sequence.outputTokens);
    if (last && chat && !this.#work.includeUsage) text += `,"system_fingerprint":"${FINGERPRINT}"`;
    text += '}\n\n';
    if (last && this.#open === 1) {
      // The last words go out together: usage when asked for, then the end.
      if (this.#work.includeUsage) text += this.#usageEvent();
      this.#response.end(`${text}data: [DONE]\n\n`, 'latin1');
    } else {
      this.#response.write(text, 'latin1');
    }
  }

  #continuous(sequence: Sequence, outputTokens: number): string {
    if (!this.#work.continuousUsage || !this.#work.includeUsage) return '';
    const { promptTokens } = sequence;
    return (
      `,"usage":{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + outputTokens},` +
      `"completion_tokens":${outputTokens},"completion_tokens_details":null}`
    );
  }

  #totals(): { prompt: number; completion: number; cached: number; created: number } {
    let prompt = 0;
    let completion = 0;
    for (const sequence of this.sequences) {
      prompt += sequence.promptTokens;
      completion += sequence.outputTokens;
    }
    // Of several prompts, vLLM reports the cache of the last one only.
    const last = this.sequences.at(-1)!;
    const blockTokens = last.hasher.blockTokens;
    const cached = Math.max(0, last.cachedTokens);
    return { prompt, completion, cached, created: Math.floor(last.promptTokens / blockTokens) * blockTokens - cached };
  }

  #usageEvent(): string {
    const { prompt, completion, cached, created } = this.#totals();
    const chat = this.#work.api === 'chat';
    const kind = chat ? 'chat.completion.chunk' : 'text_completion';
    return (
      `data: {"id":${JSON.stringify(this.#id)},"object":"${kind}","created":${this.#created},"model":${JSON.stringify(this.#model)},` +
      `"choices":[],"usage":{"prompt_tokens":${prompt},"total_tokens":${prompt + completion},"completion_tokens":${completion},` +
      `"prompt_tokens_details":{"cached_tokens":${cached}${chat ? `,"created_cache_tokens":${created}` : ''}}},` +
      `"system_fingerprint":"${FINGERPRINT}"}\n\n`
    );
  }

  #finished(): void {
    this.#open -= 1;
    if (this.#open > 0 || this.#work.stream || this.#response.destroyed) return;
    const text = JSON.stringify(this.#work.api === 'chat' ? this.#chat() : this.#completions());
    this.#response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
    this.#response.end(text);
  }

  #usage(): unknown {
    const { prompt, completion, cached, created } = this.#totals();
    return {
      prompt_tokens: prompt,
      total_tokens: prompt + completion,
      completion_tokens: completion,
      prompt_tokens_details: {
        cached_tokens: cached,
        created_cache_tokens: this.#work.api === 'chat' ? created : null,
        multimodal_tokens: null,
      },
      completion_tokens_details: null,
    };
  }

  #chat(): unknown {
    return {
      id: this.#id,
      object: 'chat.completion',
      created: this.#created,
      model: this.#model,
      choices: this.sequences.map((sequence, index) => ({
        index,
        message: {
          role: 'assistant',
          content: this.#texts[index],
          refusal: null,
          annotations: null,
          audio: null,
          function_call: null,
          reasoning: null,
        },
        logprobs: null,
        finish_reason: sequence.finishReason,
        stop_reason: null,
        token_ids: null,
        routed_experts: null,
      })),
      service_tier: null,
      system_fingerprint: FINGERPRINT,
      usage: this.#usage(),
      prompt_logprobs: null,
      prompt_token_ids: null,
      prompt_text: null,
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: null,
    };
  }

  #completions(): unknown {
    return {
      id: this.#id,
      object: 'text_completion',
      created: this.#created,
      model: this.#model,
      choices: this.sequences.map((sequence, index) => ({
        index,
        text: this.#texts[index],
        logprobs: null,
        finish_reason: sequence.finishReason,
        stop_reason: null,
        token_ids: null,
        prompt_logprobs: null,
        prompt_token_ids: null,
        routed_experts: null,
      })),
      service_tier: null,
      system_fingerprint: FINGERPRINT,
      usage: this.#usage(),
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: null,
    };
  }
}
