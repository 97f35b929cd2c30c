// Block keys a second time, slowly: JSON.parse, every text in one piece, BigInt arithmetic. It follows docs/KEYS.md and shares nothing
// with the engine, which must make the same keys of every body, however it is cut.
//
// What JSON.parse cannot tell is tested without it: duplicate keys, keys that look like array indexes (JavaScript moves them to the
// front) and bytes that are not UTF-8.

const M = (1n << 64n) - 1n;
const M32 = 0xffffffffn;
const encoder = new TextEncoder();
const rotl = (x: bigint, r: bigint): bigint => ((x << r) | (x >> (64n - r))) & M;

export interface OracleSettings {
  toolsPosition?: 'auto' | 'after-system' | 'first' | undefined;
  blockBytes?: number | undefined;
  windowBytes?: number | undefined;
}

export interface OracleKeys {
  keys: bigint[];
  ends: number[];
  promptBytes: number;
  stream: boolean;
  model: string;
  reason: string | null;
}

class Sip {
  v0: bigint;
  v1: bigint;
  v2: bigint;
  v3: bigint;
  constructor(k0: bigint, k1: bigint) {
    this.v0 = 0x736f6d6570736575n ^ k0;
    this.v1 = 0x646f72616e646f6dn ^ k1;
    this.v2 = 0x6c7967656e657261n ^ k0;
    this.v3 = 0x7465646279746573n ^ k1;
  }
  rounds(count: number): void {
    for (let i = 0; i < count; i++) {
      this.v0 = (this.v0 + this.v1) & M;
      this.v1 = rotl(this.v1, 13n) ^ this.v0;
      this.v0 = rotl(this.v0, 32n);
      this.v2 = (this.v2 + this.v3) & M;
      this.v3 = rotl(this.v3, 16n) ^ this.v2;
      this.v0 = (this.v0 + this.v3) & M;
      this.v3 = rotl(this.v3, 21n) ^ this.v0;
      this.v2 = (this.v2 + this.v1) & M;
      this.v1 = rotl(this.v1, 17n) ^ this.v2;
      this.v2 = rotl(this.v2, 32n);
    }
  }
  absorb(word: bigint, rounds: number): void {
    this.v3 ^= word;
    this.rounds(rounds);
    this.v0 ^= word;
  }
  finish(rounds: number): bigint {
    this.v2 ^= 0xffn;
    this.rounds(rounds);
    return this.v0 ^ this.v1 ^ this.v2 ^ this.v3;
  }
}

const view = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** SipHash-c-d as published. */
export function sipHash(k0: bigint, k1: bigint, bytes: Uint8Array, c: number, d: number): bigint {
  const sip = new Sip(k0, k1);
  const padded = new Uint8Array((bytes.length >> 3) * 8 + 8);
  padded.set(bytes);
  padded[padded.length - 1] = bytes.length & 255;
  for (let at = 0; at < padded.length; at += 8) sip.absorb(view(padded).getBigUint64(at, true), c);
  return sip.finish(d);
}

export interface PoolKeys {
  words: bigint[];
  nh: bigint[];
}

export function deriveKeys(secret: Uint8Array): PoolKeys {
  const secretView = view(secret);
  const message = new Uint8Array(32);
  message.set(secret.subarray(16, 32));
  message.set(encoder.encode('warmpath'), 16);
  const words: bigint[] = [];
  for (let i = 0; i < 38; i++) {
    view(message).setBigUint64(24, BigInt(i), true);
    words.push(sipHash(secretView.getBigUint64(0, true), secretView.getBigUint64(8, true), message, 2, 4));
  }
  const nh = words.slice(0, 34).flatMap((word) => [word & M32, word >> 32n]);
  return { words, nh };
}

/** NH over a stripe whose length is a multiple of 32 bytes, with the key `shift` words on. */
export function nhSum(nh: bigint[], stripe: Uint8Array, shift: number): bigint {
  const word = (i: number): bigint => BigInt(view(stripe).getUint32(i * 4, true)) + (nh[i + shift] ?? 0n);
  let sum = 0n;
  for (let unit = 0; unit < stripe.length / 4; unit += 8) {
    for (let i = unit; i < unit + 4; i++) sum += (word(i) & M32) * (word(i + 4) & M32);
  }
  return sum & M;
}

/** The digest of one block of text. */
export function digest(keys: PoolKeys, text: Uint8Array): bigint {
  const sip = new Sip(keys.words[34]!, keys.words[35]!);
  for (let at = 0; at < text.length; at += 256) {
    const rest = text.subarray(at, at + 256);
    const stripe = new Uint8Array(Math.ceil(rest.length / 32) * 32);
    stripe.set(rest);
    sip.absorb(nhSum(keys.nh, stripe, 0), 1);
    sip.absorb(nhSum(keys.nh, stripe, 4), 1);
  }
  sip.absorb(BigInt(text.length), 1);
  return sip.finish(3);
}

function chainStep(keys: PoolKeys, state: bigint, value: bigint, tag: bigint): bigint {
  const message = new Uint8Array(24);
  view(message).setBigUint64(0, state, true);
  view(message).setBigUint64(8, value, true);
  view(message).setBigUint64(16, tag, true);
  return sipHash(keys.words[36]!, keys.words[37]!, message, 1, 3);
}

/** A number as it was written. */
class Num {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
}
type Json = null | boolean | string | Num | Json[] | { [key: string]: Json };

function parse(text: string): Json {
  const parseWithSource = JSON.parse as (
    text: string,
    reviver: (key: string, value: unknown, context: { source: string }) => unknown,
  ) => Json;
  return parseWithSource(text, (_key, value, context) => (typeof value === 'number' ? new Num(context.source) : value));
}

type JsonObject = { [key: string]: Json };
const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Num);

function depthOf(value: Json): number {
  if (Array.isArray(value)) return 1 + Math.max(0, ...value.map(depthOf));
  return isObject(value) ? 1 + Math.max(0, ...Object.values(value).map(depthOf)) : 0;
}

/** Bytes of a run. Those that do not count bear the mark UNCOUNTED. */
type Text = Uint16Array;
const UNCOUNTED = 0x100;
const bytesOf = (text: Text): Uint8Array => Uint8Array.from(text);
const counted = (text: Text): number => text.filter((byte) => byte < UNCOUNTED).length;

function join(...parts: Text[]): Text {
  const all = new Uint16Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
const utf8 = (text: string): Text => Uint16Array.from(encoder.encode(text));
const BEGIN = Uint16Array.of(0xff);
const END = Uint16Array.of(0xfe);
const framed = (text: string): Text => join(BEGIN, utf8(text), END);
const framedStart = (text: string): Text => join(BEGIN, utf8(text).subarray(0, 64), END);

const MEDIA_KEYS = ['url', 'image_url', 'video_url', 'audio_url', 'data', 'file_data', 'b64_json'];
MEDIA_KEYS.push('image', 'audio', 'video', 'image_embeds', 'audio_embeds');

/** A string that may be media: of those behind its first 1,024 bytes every 64th counts. */
function framedMedia(text: string): Text {
  if (!/^[!-~]{64}/.test(text)) return framed(text);
  const bytes = utf8(text).map((byte, i) => (i < 1024 || (i + 1) % 64 === 0 ? byte : byte | UNCOUNTED));
  return join(BEGIN, bytes, END);
}

/** JSON as minified structure. In entries (objects right in the outermost array) labels are left out. Parts have media. */
function structure(value: Json, where: 'part' | 'entries' | 'plain', key?: string): Text {
  const isMedia = where === 'part' && key !== undefined && MEDIA_KEYS.includes(key);
  if (typeof value === 'string') return isMedia ? framedMedia(value) : framed(value);
  if (value instanceof Num) return utf8(value.source);
  const inside = where === 'part' ? 'part' : 'plain';
  if (Array.isArray(value)) {
    const items = value.map((item) => (where === 'entries' && isObject(item) ? entry(item) : structure(item, inside)));
    return join(utf8('['), ...items.flatMap((item, i) => (i === 0 ? [item] : [utf8(','), item])), utf8(']'));
  }
  if (!isObject(value)) return utf8(String(value));
  const members = Object.entries(value).flatMap(([name, member]) => [framed(name), structure(member, inside, name)]);
  return join(utf8('{'), ...members, utf8('}'));
}

function entry(value: JsonObject): Text {
  const members = Object.entries(value)
    .filter(([key]) => !['id', 'index', 'cache_control'].includes(key))
    .flatMap(([key, member]) => [framedStart(key), structure(member, 'plain')]);
  return join(utf8('{'), ...members, utf8('}'));
}

const TEXT_TYPES = ['text', 'input_text', 'output_text', 'summary_text', 'reasoning_text'];
const PART_LABELS = ['annotations', 'logprobs', 'citations', 'signature', 'tool_use_id', 'status', 'call_id'];
PART_LABELS.push('cache_control', 'id', 'index');

function partText(part: Json, dropsBilling: boolean): Text {
  if (typeof part === 'string') return utf8(part);
  if (!isObject(part)) return new Uint16Array();
  const pieces: Text[] = [];
  let isMarked = false;
  for (const [key, value] of Object.entries(part)) {
    if (key === 'type' || PART_LABELS.includes(key)) continue;
    if (key === 'text') {
      const dropped = dropsBilling && typeof value === 'string' && value.startsWith('x-anthropic-billing-header');
      if (typeof value === 'string' && !dropped) pieces.push(utf8(value));
      continue;
    }
    isMarked = true;
    pieces.push(framedStart(key), structure(value, 'part', key));
  }
  const type = part['type'];
  const typeText = typeof type === 'string' ? type : '';
  if (isMarked || (typeText !== '' && !TEXT_TYPES.includes(typeText))) {
    pieces.push(join(END, utf8(typeText).subarray(0, 64), END));
  }
  return join(...pieces);
}

interface Run {
  kind: number;
  text: Text;
}
interface Message {
  role: bigint;
  runs: Run[];
}

const ROLES: Record<string, bigint> = { system: 1n, developer: 2n, user: 3n, assistant: 4n, tool: 5n, function: 6n };
const ROLE_PROMPT = 255n;
const CONTENT = 3;
const CALLS = 4;
const KINDS: Record<string, number> = {
  name: 1,
  reasoning: 2,
  reasoning_content: 2,
  thinking: 2,
  summary: 2,
  content: CONTENT,
  output: CONTENT,
  tool_calls: CALLS,
  function_call: CALLS,
  arguments: CALLS,
  input: CALLS,
};

function roleCode(keys: PoolKeys, role: string): bigint {
  const known = Object.hasOwn(ROLES, role) ? ROLES[role] : undefined;
  if (known !== undefined) return known;
  const bytes = encoder.encode(role).subarray(0, 64);
  const padded = new Uint8Array(64);
  padded.set(bytes);
  let hash = BigInt(bytes.length);
  for (let at = 0; at < bytes.length; at += 8)
    hash = chainStep(keys, hash, view(padded).getBigUint64(at, true), 0x200n);
  return hash | (1n << 63n);
}

function fieldText(kind: number, value: Json): Text {
  if (typeof value === 'string') return utf8(value);
  if (value instanceof Num || typeof value !== 'object' || value === null || kind === 1) return new Uint16Array();
  if (Array.isArray(value) && kind !== CALLS) return join(...value.map((part) => partText(part, false)));
  const whole = structure(value, kind === CALLS ? 'entries' : 'part');
  return whole.length === 2 ? new Uint16Array() : whole;
}

function readMessage(keys: PoolKeys, message: JsonObject, isItem: boolean): Message {
  const runs = Object.entries(message)
    .filter(([key]) => Object.hasOwn(KINDS, key))
    .map(([key, value]) => ({ kind: KINDS[key]!, text: fieldText(KINDS[key]!, value) }))
    .filter((run) => run.text.length > 0)
    .sort((a, b) => a.kind - b.kind);
  let role = typeof message['role'] === 'string' ? roleCode(keys, message['role']) : 0n;
  const type = message['type'];
  if (role === 0n && isItem && typeof type === 'string' && type !== 'message') role = roleCode(keys, type);
  return { role, runs };
}

const oneRun = (kind: number, role: bigint, text: Text): Message => ({
  role,
  runs: text.length > 0 ? [{ kind, text }] : [],
});

function idText(ids: Num[]): Text {
  const bytes = new Uint8Array(ids.length * 4);
  ids.forEach((id, i) => {
    let value = 0;
    for (const c of id.source) value = (Math.imul(value, 10) + c.charCodeAt(0) - 0x30) >>> 0;
    view(bytes).setUint32(i * 4, value, true);
  });
  return Uint16Array.from(bytes);
}

function readPrompts(prompt: Json | undefined): Message[] {
  if (typeof prompt === 'string') return [oneRun(5, ROLE_PROMPT, utf8(prompt))];
  if (!Array.isArray(prompt)) return [];
  const messages: Message[] = [];
  let flat: Num[] = [];
  const closeFlat = (): void => {
    if (flat.length > 0) messages.push(oneRun(6, ROLE_PROMPT, idText(flat)));
    flat = [];
  };
  for (const item of prompt) {
    if (item instanceof Num) flat.push(item);
    else if (typeof item === 'string' || Array.isArray(item) || isObject(item)) closeFlat();
    if (typeof item === 'string') messages.push(oneRun(5, ROLE_PROMPT, utf8(item)));
    if (Array.isArray(item)) messages.push(oneRun(6, ROLE_PROMPT, idText(item.filter((id) => id instanceof Num))));
  }
  closeFlat();
  return messages;
}

/** All messages in order, the top-level system text among them first. */
function readMessages(keys: PoolKeys, path: string, body: JsonObject): Message[] {
  if (path === '/v1/completions') return readPrompts(body['prompt']);
  const system = path === '/v1/messages' ? body['system'] : path === '/v1/responses' ? body['instructions'] : null;
  const list = path === '/v1/responses' ? body['input'] : body['messages'];
  const messages: Message[] = [];
  let systemText: Text = new Uint16Array();
  if (typeof system === 'string') systemText = utf8(system);
  if (Array.isArray(system)) {
    systemText = join(...system.map((part) => partText(part, path === '/v1/messages')));
  }
  if (systemText.length > 0) messages.push(oneRun(CONTENT, 1n, systemText));
  if (typeof list === 'string' && path === '/v1/responses') messages.push(oneRun(CONTENT, 3n, utf8(list)));
  if (Array.isArray(list)) {
    messages.push(...list.filter(isObject).map((item) => readMessage(keys, item, path === '/v1/responses')));
  }
  return messages;
}

type Step = { silent: true; value: bigint; tag: bigint } | { silent: false; value: bigint; tag: bigint; bytes: number };

function messageSteps(keys: PoolKeys, message: Message, blockBytes: number): Step[] {
  const steps: Step[] = [{ silent: true, value: message.role, tag: 0x300n }];
  for (const run of message.runs) {
    for (let offset = 0; offset < run.text.length;) {
      const size = Math.max(blockBytes, Math.floor(offset / 16 / 256) * 256);
      const block = run.text.subarray(offset, offset + size);
      const tag = BigInt(run.kind) | (offset === 0 ? 0x100n : 0n);
      const value = digest(keys, bytesOf(block));
      steps.push({ silent: false, value, tag, bytes: counted(block) });
      offset += size;
    }
  }
  return steps;
}

export function oracleKeys(secret: Uint8Array, path: string, body: string, settings: OracleSettings = {}): OracleKeys {
  const none = { keys: [] as bigint[], ends: [] as number[], promptBytes: 0, stream: false, model: '' };
  let parsed: Json;
  try {
    parsed = parse(body.replace(/^\ufeff/, ''));
  } catch {
    return { ...none, reason: 'not-json' };
  }
  if (depthOf(parsed) > 64) return { ...none, reason: 'too-deep' };
  if (!isObject(parsed)) return { ...none, reason: 'no-prompt' };
  const keys = deriveKeys(secret);
  const messages = readMessages(keys, path, parsed);
  const toolsValue = path === '/v1/completions' ? null : (parsed['tools'] ?? null);
  let tools: Text = new Uint16Array();
  if (Array.isArray(toolsValue) || isObject(toolsValue)) tools = structure(toolsValue, 'entries');
  if (tools.length === 2) tools = new Uint16Array();

  const promptBytes =
    tools.length + messages.flatMap((message) => message.runs).reduce((sum, run) => sum + counted(run.text), 0);
  const modelText = typeof parsed['model'] === 'string' ? parsed['model'] : null;
  const modelBytes = encoder.encode(modelText ?? '');
  const model = modelBytes.length < 256 ? new TextDecoder().decode(modelBytes.subarray(0, 128)) : '';
  const result = { ...none, promptBytes, model, stream: parsed['stream'] === true };
  if (promptBytes === 0) return { ...result, reason: 'no-prompt' };

  const position = settings.toolsPosition ?? 'auto';
  const isToolsFirst = position === 'first' || (position === 'auto' && /llama/i.test(model));
  let leading = 0;
  while (!isToolsFirst && [1n, 2n].includes(messages[leading]?.role ?? 0n)) leading += 1;
  const blockBytes = settings.blockBytes ?? 256;
  const toolsStep: Step = {
    silent: false,
    value: digest(keys, bytesOf(tools)),
    tag: 0x107n,
    bytes: tools.length,
  };
  const steps = [
    ...messages.slice(0, leading).flatMap((message) => messageSteps(keys, message, blockBytes)),
    ...(tools.length > 0 ? [toolsStep] : []),
    ...messages.slice(leading).flatMap((message) => messageSteps(keys, message, blockBytes)),
  ];

  const salt = parsed['cache_salt'];
  const modelDigest = modelText === null ? 0n : digest(keys, modelBytes);
  const saltDigest = typeof salt === 'string' ? digest(keys, encoder.encode(salt)) : 0n;
  let state = chainStep(keys, modelDigest, saltDigest, 0x697461706d726177n);
  let end = 0;
  const window = settings.windowBytes ?? 0;
  for (const step of steps) {
    state = chainStep(keys, state, step.value, step.tag);
    if (step.silent) continue;
    end += step.bytes;
    if (window !== 0 && end > window) continue;
    result.keys.push(state === 0n ? 1n : state);
    result.ends.push(end);
  }
  return { ...result, reason: result.keys.length === 0 ? 'too-short' : null };
}
