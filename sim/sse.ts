// Reads the few things the driver needs from a stream of server-sent events, cut anywhere: the text, the usage, an error, the end. Events are
// searched, not parsed, because there is one per token; only the one with the usage goes through JSON.parse.

export interface Usage {
  promptTokens: number;
  cachedTokens: number;
  outputTokens: number;
}

const CONTENT = '"content":"';

interface UsageJson {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number } | null;
}

export class StreamReader {
  answer = '';
  contentEvents = 0;
  lastContentMs = 0;
  usage: Usage | null = null;
  error: string | null = null;
  done = false;
  readonly #decoder = new TextDecoder();
  #carry = '';

  /** Feeds a chunk; true when it held content. */
  feed(chunk: Uint8Array, nowMs: number): boolean {
    const text = this.#carry + this.#decoder.decode(chunk, { stream: true });
    const before = this.contentEvents;
    let from = 0;
    for (;;) {
      const end = text.indexOf('\n', from);
      if (end < 0) break;
      if (end - from > 6) this.#line(text, from, end);
      from = end + 1;
    }
    this.#carry = from === 0 ? text : text.slice(from);
    if (this.contentEvents === before) return false;
    this.lastContentMs = nowMs;
    return true;
  }

  #line(text: string, from: number, end: number): void {
    if (!text.startsWith('data:', from)) return;
    const at = text.indexOf(CONTENT, from);
    if (at >= 0 && at < end) {
      this.#content(text, at + CONTENT.length);
    } else if (text.startsWith('data: [DONE]', from)) {
      this.done = true;
      return;
    }
    // A usage object is only in events without content, unless usage is asked for with every event.
    if (at >= 0 && at < end && text.indexOf('"usage":{', at) < 0) return;
    const json = text.slice(from + 5, end);
    if (json.includes('"usage":{')) this.#usage(json);
    else if (json.includes('"error":{')) this.error = json.trim().slice(0, 200);
  }

  #content(text: string, from: number): void {
    let end = from;
    let escaped = false;
    for (;;) {
      const code = text.charCodeAt(end);
      if (code === 0x22 || Number.isNaN(code)) break;
      if (code === 0x5c) {
        escaped = true;
        end += 1;
      }
      end += 1;
    }
    if (end === from) return;
    const raw = text.slice(from, end);
    this.answer += escaped ? (JSON.parse(`"${raw}"`) as string) : raw;
    this.contentEvents += 1;
  }

  #usage(json: string): void {
    try {
      const { usage } = JSON.parse(json) as { usage?: UsageJson };
      if (usage === undefined) return;
      this.usage = {
        promptTokens: usage.prompt_tokens ?? 0,
        cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
        outputTokens: usage.completion_tokens ?? 0,
      };
    } catch {
      this.error = 'an event with usage is not JSON';
    }
  }
}
