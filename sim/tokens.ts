// A stand-in for a model's tokenizer and chat template. The replicas need three things of a prompt: how many tokens it has, which of its blocks
// equal the blocks of another prompt, and where the system text, the tools and the turns stand. A real vocabulary would add nothing to
// that, so text is cut into word pieces by rule and every full block of tokens leaves one chained key; no token list is ever kept.
//
// The rule, about 4.3 bytes a token for English prose:
//   a run of at most 6 ASCII letters, together with one space before it     " prefix" is one token, " tokenizer" is " tokeni" + "zer"
//   a run of at most 3 digits
//   a run of at most 2 characters outside ASCII                             Cyrillic 4 bytes a token, Chinese 6
//   a run of at most 4 of the same kind of the rest (punctuation, white space)
// A token never crosses from one message into another, and each ChatML marker is one token.

export const BLOCK_TOKENS_DEFAULT = 16;

const LETTERS_MAX = 6;
const DIGITS_MAX = 3;
const WIDE_MAX = 2;
const OTHER_MAX = 4;

const KIND_LETTER = 1;
const KIND_DIGIT = 2;
const KIND_SPACE = 3;
const KIND_PUNCTUATION = 4;
const KIND_WHITE = 5;
const KIND_WIDE = 6;

const kinds = new Uint8Array(128).fill(KIND_PUNCTUATION);
for (let code = 0; code < 128; code++) {
  const lower = code | 32;
  if (lower >= 97 && lower <= 122) kinds[code] = KIND_LETTER;
  else if (code >= 48 && code <= 57) kinds[code] = KIND_DIGIT;
  else if (code === 32) kinds[code] = KIND_SPACE;
  else if (code < 32) kinds[code] = KIND_WHITE;
}
const kindMax = [0, LETTERS_MAX, DIGITS_MAX, OTHER_MAX, OTHER_MAX, OTHER_MAX, WIDE_MAX];

/** Marks that stand for one special token each. */
export const SPECIAL_START = 1;
export const SPECIAL_END = 2;
export const SPECIAL_IMAGE = 3;

/**
 * Counts the tokens of a text fed piece by piece and leaves one key per full block. A key covers everything before it, so equal keys mean
 * equal prefixes. Two 32-bit lanes give a key of 53 bits, which a double holds exactly.
 */
export class BlockHasher {
  readonly blockTokens: number;
  /** The keys of the full blocks so far. */
  readonly keys: number[] = [];
  tokens = 0;
  #laneA: number;
  #laneB: number;
  #blockFill = 0;

  constructor(blockTokens = BLOCK_TOKENS_DEFAULT, salt = '') {
    this.blockTokens = blockTokens;
    this.#laneA = 0x811c9dc5 | 0;
    this.#laneB = 0x2545f491 | 0;
    for (let i = 0; i < salt.length; i++) this.#mix(salt.charCodeAt(i));
  }

  /** A number that depends on everything fed so far; the sampler's seed. */
  get state(): number {
    return (this.#laneA ^ (this.#laneB << 7)) >>> 0;
  }

  special(mark: number): void {
    this.#mix(0x110000 + mark);
    this.#tokenEnd();
  }

  text(text: string): void {
    const length = text.length;
    let laneA = this.#laneA;
    let laneB = this.#laneB;
    let at = 0;
    while (at < length) {
      let code = text.charCodeAt(at);
      let kind = code < 128 ? kinds[code]! : KIND_WIDE;
      laneA = Math.imul(laneA ^ code, 0x01000193);
      laneB = (Math.imul(laneB, 0x2c1b3c6d) + code) | 0;
      at += 1;
      let run = 1;
      if (kind === KIND_SPACE && at < length) {
        // One space belongs to the word after it.
        const next = text.charCodeAt(at);
        if (next < 128 && kinds[next] === KIND_LETTER) {
          kind = KIND_LETTER;
          run = 0;
        }
      }
      const runMax = kindMax[kind]!;
      while (run < runMax && at < length) {
        code = text.charCodeAt(at);
        if ((code < 128 ? kinds[code] : KIND_WIDE) !== kind) break;
        if (kind === KIND_SPACE && at + 1 < length) {
          const next = text.charCodeAt(at + 1);
          if (next < 128 && kinds[next] === KIND_LETTER) break;
        }
        laneA = Math.imul(laneA ^ code, 0x01000193);
        laneB = (Math.imul(laneB, 0x2c1b3c6d) + code) | 0;
        at += 1;
        run += 1;
      }
      // The end of a token is mixed in too, so that a cut elsewhere gives other keys.
      laneA = Math.imul(laneA ^ 0x1ff, 0x01000193);
      laneA ^= laneA >>> 15;
      laneB ^= laneB >>> 13;
      this.tokens += 1;
      this.#blockFill += 1;
      if (this.#blockFill === this.blockTokens) {
        this.#blockFill = 0;
        this.keys.push((laneA >>> 0) * 0x200000 + (laneB >>> 11));
      }
    }
    this.#laneA = laneA;
    this.#laneB = laneB;
  }

  /** The prompt came as token ids, not as text. */
  isIds = false;

  /** Feeds a prompt that is already token ids; each id is one token. */
  tokenIds(ids: readonly number[]): void {
    this.isIds = true;
    for (const id of ids) {
      this.#mix(id | 0);
      this.#tokenEnd();
    }
  }

  /** Mixes in a text that has no tokens. */
  tokenless(text: string): void {
    for (let i = 0; i < text.length; i++) this.#mix(text.charCodeAt(i));
  }

  #mix(code: number): void {
    this.#laneA = Math.imul(this.#laneA ^ code, 0x01000193);
    this.#laneB = (Math.imul(this.#laneB, 0x2c1b3c6d) + code) | 0;
  }

  #tokenEnd(): void {
    this.#mix(0x1ff);
    this.#laneA ^= this.#laneA >>> 15;
    this.#laneB ^= this.#laneB >>> 13;
    this.tokens += 1;
    this.#blockFill += 1;
    if (this.#blockFill < this.blockTokens) return;
    this.#blockFill = 0;
    this.keys.push((this.#laneA >>> 0) * 0x200000 + (this.#laneB >>> 11));
  }
}

export interface ChatMessage {
  role: string;
  content?: unknown;
  reasoning?: unknown;
  tool_calls?: unknown;
}

export interface ChatPrompt {
  messages: readonly ChatMessage[];
  tools?: unknown;
}

/** What ChatML adds around each message: the start mark, the role, a line end; the end mark, a line end. */
export const MESSAGE_OVERHEAD_TOKENS = 5;
/** What ChatML adds at the end: the opening of the answer. */
export const ANSWER_OVERHEAD_TOKENS = 3;

const MEDIA_CHARS = 1024;
const MEDIA_SHARE = 64;

/** Data of a picture or a file has far fewer tokens than its letters would be, but all of it tells it from another. */
function shortened(hasher: BlockHasher, value: unknown): unknown {
  if (typeof value !== 'string' || value.length <= MEDIA_CHARS || !/^[!-~]{64}/.test(value)) return value;
  hasher.tokenless(value);
  return value.slice(0, MEDIA_CHARS + Math.floor((value.length - MEDIA_CHARS) / MEDIA_SHARE));
}

function feedContent(hasher: BlockHasher, content: unknown): void {
  if (typeof content === 'string') {
    hasher.text(content);
    return;
  }
  if (!Array.isArray(content)) return;
  for (const part of content as unknown[]) {
    if (typeof part === 'string') hasher.text(part);
    else if (typeof part === 'object' && part !== null) {
      const { text } = part as { text?: unknown };
      if (typeof text === 'string') hasher.text(text);
      else {
        // Anything that is not text is a mark and what identifies it.
        hasher.special(SPECIAL_IMAGE);
        hasher.text(JSON.stringify(part, (_key, value: unknown) => shortened(hasher, value)));
      }
    }
  }
}

/** A call is its name and arguments; templates do not render its id. */
function feedCalls(hasher: BlockHasher, calls: readonly unknown[]): void {
  for (const call of calls) {
    const { function: called } = (call ?? {}) as { function?: { name?: unknown; arguments?: unknown } };
    hasher.text('\n<tool_call>\n');
    hasher.text(JSON.stringify({ name: called?.name, arguments: called?.arguments }));
  }
}

/** Renders a chat as ChatML models do: system text, then tools, then the turns, then the opening of the answer. */
export function renderChat(hasher: BlockHasher, prompt: ChatPrompt): void {
  const { messages, tools } = prompt;
  const hasTools = Array.isArray(tools) && tools.length > 0;
  let from = 0;
  const first = messages[0];
  const firstIsSystem = first !== undefined && (first.role === 'system' || first.role === 'developer');
  if (hasTools || firstIsSystem) {
    hasher.special(SPECIAL_START);
    hasher.text('system');
    hasher.text('\n');
    if (firstIsSystem) {
      feedContent(hasher, first.content);
      from = 1;
    }
    if (hasTools) {
      hasher.text('\n\n# Tools\n');
      for (const tool of tools as unknown[]) {
        hasher.text('\n');
        hasher.text(JSON.stringify(tool));
      }
    }
    hasher.special(SPECIAL_END);
    hasher.text('\n');
  }
  for (let i = from; i < messages.length; i++) {
    const message = messages[i]!;
    hasher.special(SPECIAL_START);
    hasher.text(String(message.role).slice(0, LETTERS_MAX));
    hasher.text('\n');
    if (typeof message.reasoning === 'string') hasher.text(message.reasoning);
    feedContent(hasher, message.content);
    if (Array.isArray(message.tool_calls)) feedCalls(hasher, message.tool_calls);
    hasher.special(SPECIAL_END);
    hasher.text('\n');
  }
  hasher.special(SPECIAL_START);
  hasher.text('assist');
  hasher.text('\n');
}

// Words that are exactly one token each, space included: what workloads and simulated answers are written in.
const WORDS = 4096;
const words: string[] = [];
{
  const consonants = 'bcdfghjklmnprstvwz';
  const vowels = 'aeiou';
  const seen = new Set<string>();
  let state = 0x9e3779b9;
  const draw = (below: number): number => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5;
    return ((state ^ (state >>> 13)) >>> 0) % below;
  };
  while (words.length < WORDS) {
    const letters = 2 + draw(4);
    let word = ' ';
    for (let i = 0; i < letters; i++) word += i % 2 === 0 ? consonants[draw(18)]! : vowels[draw(5)]!;
    if (seen.has(word)) {
      // The short words run out; a longer one takes the place.
      word += vowels[draw(5)]!;
      if (seen.has(word)) continue;
    }
    seen.add(word);
    words.push(word);
  }
}

/** One word of one token, chosen by a number. */
export function wordOf(choice: number): string {
  return words[choice & (WORDS - 1)]!;
}

/** The next state of the small generator that texts and answers are drawn from. Never 0 for a nonzero state. */
export function nextState(state: number): number {
  let next = state === 0 ? 0x6d2b79f5 : state;
  next ^= next << 13;
  next ^= next >>> 17;
  next ^= next << 5;
  return next >>> 0;
}

/** Spreads a seed over 32 bits, so that seeds 1, 2, 3 give unrelated texts. */
export function spread(seed: number): number {
  let value = Math.imul((seed ^ 0x5bd1e995) | 0, 0x9e3779b1);
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}

/** A text of exactly so many tokens that depends on the seed alone. */
export function textOf(seed: number, tokens: number): string {
  let state = spread(seed);
  const parts: string[] = [];
  for (let i = 0; i < tokens; i++) {
    state = nextState(state);
    parts.push(words[(state >>> 9) & (WORDS - 1)]!);
  }
  return parts.join('');
}
