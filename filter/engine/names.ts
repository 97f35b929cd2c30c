// The names that mean something in a request body, and what they mean.
//
// A body may have any keys; only these few bear on the prompt. They are found by length and up to three 64-bit words of the capture buffer,
// which the scanner fills with the decoded key, so an escaped spelling of a key is the same key.

// APIs, by path (scan.ts, apiOfPath).
export const API_NONE: u32 = 0;
export const API_OTHER: u32 = 1;
export const API_CHAT: u32 = 2;
export const API_COMPLETIONS: u32 = 3;
export const API_RESPONSES: u32 = 4;
export const API_MESSAGES: u32 = 5;

// Roles, as the chain mixes them in. An unknown role has a hash with its highest bit set instead.
export const ROLE_NONE: u32 = 0;
export const ROLE_SYSTEM: u32 = 1;
export const ROLE_DEVELOPER: u32 = 2;
export const ROLE_USER: u32 = 3;
export const ROLE_ASSISTANT: u32 = 4;
export const ROLE_TOOL: u32 = 5;
export const ROLE_FUNCTION: u32 = 6;
/** Not a role of any message: a prompt that is used as it is, without a template. */
export const ROLE_PROMPT: u32 = 255;

// Kinds of runs, in the order in which templates render them inside a message.
export const KIND_NAME: u32 = 1;
export const KIND_REASONING: u32 = 2;
export const KIND_CONTENT: u32 = 3;
export const KIND_CALLS: u32 = 4;
export const KIND_PROMPT_TEXT: u32 = 5;
export const KIND_PROMPT_IDS: u32 = 6;
export const KIND_TOOLS: u32 = 7;
export const KIND_LAST: u32 = 7;

// Keys. Zero is every key that has no meaning; each code is also its bit in the masks of keys seen.
export const KEY_NONE: u32 = 0;
// In the outermost object.
export const KEY_MODEL: u32 = 1;
export const KEY_STREAM: u32 = 2;
export const KEY_SALT: u32 = 3;
export const KEY_MESSAGES: u32 = 4;
export const KEY_SYSTEM: u32 = 5;
export const KEY_INPUT: u32 = 6;
export const KEY_PROMPT: u32 = 7;
export const KEY_TOOLS: u32 = 8;
// In a message. From KEY_NAME on, the value is text of the kind that `kindOfKey` tells.
export const KEY_ROLE: u32 = 1;
export const KEY_TYPE: u32 = 2;
export const KEY_NAME: u32 = 3;
export const KEY_CONTENT: u32 = 4;
export const KEY_OUTPUT: u32 = 5;
export const KEY_REASONING: u32 = 6;
export const KEY_REASONING_CONTENT: u32 = 7;
export const KEY_THINKING: u32 = 8;
export const KEY_SUMMARY: u32 = 9;
export const KEY_TOOL_CALLS: u32 = 10;
export const KEY_FUNCTION_CALL: u32 = 11;
export const KEY_ARGUMENTS: u32 = 12;
export const KEY_CALL_INPUT: u32 = 13;
// In a content part, and in the entries of tools and tool_calls.
export const KEY_TEXT: u32 = 1;
export const KEY_PART_TYPE: u32 = 2;
export const KEY_SKIPPED: u32 = 3;
export const KEY_GENERIC: u32 = 4;
// Also inside a part's structure: its string may be a picture, a sound or a file.
export const KEY_MEDIA: u32 = 5;

const ENTRY_BYTES: usize = 32; // length u32, code u32, three words
const ENTRIES: usize = 64;
const entries: usize = memory.data(2048, 16);
let entriesUsed: usize = 0;

function word(name: string, from: i32): u64 {
  let value: u64 = 0;
  for (let i = 0; i < 8 && from + i < name.length; i++) value |= (<u64>name.charCodeAt(from + i)) << (i << 3);
  return value;
}

/** Adds a name while the module starts; a name is at most 24 bytes of ASCII. */
function add(name: string, code: u32): void {
  if (entriesUsed >= ENTRIES) return;
  const at = entries + entriesUsed * ENTRY_BYTES;
  store<u32>(at, name.length);
  store<u32>(at, code, 4);
  store<u64>(at, word(name, 0), 8);
  store<u64>(at, word(name, 8), 16);
  store<u64>(at, word(name, 16), 24);
  entriesUsed++;
}

/** The code of the name in a capture buffer, looked for in entries `from` to `to`; 0 when it is none of them. */
function find(from: usize, to: usize, capture: usize, length: u32): u32 {
  if (length == 0 || length > 24) return 0;
  const w0 = load<u64>(capture);
  for (let at = entries + from * ENTRY_BYTES; at < entries + to * ENTRY_BYTES; at += ENTRY_BYTES) {
    if (load<u64>(at, 8) != w0 || load<u32>(at) != length) continue;
    if (load<u64>(at, 16) == load<u64>(capture, 8) && load<u64>(at, 24) == load<u64>(capture, 16))
      return load<u32>(at, 4);
  }
  return 0;
}

add('model', KEY_MODEL);
add('stream', KEY_STREAM);
add('cache_salt', KEY_SALT);
const TOP_COMMON: usize = entriesUsed;
add('messages', KEY_MESSAGES);
add('tools', KEY_TOOLS);
const TOP_CHAT: usize = entriesUsed;
add('system', KEY_SYSTEM);
const TOP_MESSAGES: usize = entriesUsed;
add('tools', KEY_TOOLS);
add('instructions', KEY_SYSTEM);
add('input', KEY_INPUT);
const TOP_RESPONSES: usize = entriesUsed;
add('prompt', KEY_PROMPT);
const TOP_COMPLETIONS: usize = entriesUsed;
add('role', KEY_ROLE);
add('content', KEY_CONTENT);
add('type', KEY_TYPE);
add('name', KEY_NAME);
add('output', KEY_OUTPUT);
add('reasoning', KEY_REASONING);
add('reasoning_content', KEY_REASONING_CONTENT);
add('thinking', KEY_THINKING);
add('summary', KEY_SUMMARY);
add('tool_calls', KEY_TOOL_CALLS);
add('function_call', KEY_FUNCTION_CALL);
add('arguments', KEY_ARGUMENTS);
add('input', KEY_CALL_INPUT);
const MESSAGE_END: usize = entriesUsed;
add('text', KEY_TEXT);
add('type', KEY_PART_TYPE);
add('annotations', KEY_SKIPPED);
add('logprobs', KEY_SKIPPED);
add('citations', KEY_SKIPPED);
add('signature', KEY_SKIPPED);
add('tool_use_id', KEY_SKIPPED);
add('status', KEY_SKIPPED);
add('call_id', KEY_SKIPPED);
const ENTRY_SKIPPED: usize = entriesUsed;
add('cache_control', KEY_SKIPPED);
add('id', KEY_SKIPPED);
add('index', KEY_SKIPPED);
const PART_END: usize = entriesUsed;
add('system', ROLE_SYSTEM);
add('developer', ROLE_DEVELOPER);
add('user', ROLE_USER);
add('assistant', ROLE_ASSISTANT);
add('tool', ROLE_TOOL);
add('function', ROLE_FUNCTION);
const ROLES_END: usize = entriesUsed;
add('text', 1);
add('input_text', 1);
add('output_text', 1);
add('summary_text', 1);
add('reasoning_text', 1);
const TYPES_END: usize = entriesUsed;
add('url', KEY_MEDIA);
add('data', KEY_MEDIA);
add('image_url', KEY_MEDIA);
add('video_url', KEY_MEDIA);
add('audio_url', KEY_MEDIA);
add('file_data', KEY_MEDIA);
add('b64_json', KEY_MEDIA);
add('image', KEY_MEDIA);
add('audio', KEY_MEDIA);
add('video', KEY_MEDIA);
add('image_embeds', KEY_MEDIA);
add('audio_embeds', KEY_MEDIA);
const MEDIA_END: usize = entriesUsed;

/** A key of the outermost object, as the API understands it. */
export function topKey(api: u32, capture: usize, length: u32): u32 {
  const code = find(0, TOP_COMMON, capture, length);
  if (code != 0) return code;
  switch (api) {
    case API_CHAT:
      return find(TOP_COMMON, TOP_CHAT, capture, length);
    case API_MESSAGES:
      return find(TOP_COMMON, TOP_MESSAGES, capture, length);
    case API_RESPONSES:
      return find(TOP_MESSAGES, TOP_RESPONSES, capture, length);
    case API_COMPLETIONS:
      return find(TOP_RESPONSES, TOP_COMPLETIONS, capture, length);
    default:
      return KEY_NONE;
  }
}

export function messageKey(capture: usize, length: u32): u32 {
  return find(TOP_COMPLETIONS, MESSAGE_END, capture, length);
}

export function partKey(capture: usize, length: u32): u32 {
  const code = find(MESSAGE_END, PART_END, capture, length);
  if (code != 0) return code;
  return isMediaKey(capture, length) ? KEY_MEDIA : KEY_GENERIC;
}

/** Whether the string of this key may be a picture, a sound or a file. */
export function isMediaKey(capture: usize, length: u32): bool {
  return find(TYPES_END, MEDIA_END, capture, length) != 0;
}

/** Whether a key of a tool or a tool call is a label that no template renders. */
export function isSkippedInEntry(capture: usize, length: u32): bool {
  return find(ENTRY_SKIPPED, PART_END, capture, length) != 0;
}

export function roleKnown(capture: usize, length: u32): u32 {
  return find(PART_END, ROLES_END, capture, length);
}

/** Whether a part of this type is its text and nothing else. A part without a type is taken for one. */
export function isTextType(capture: usize, length: u32): bool {
  return length == 0 || find(ROLES_END, TYPES_END, capture, length) != 0;
}

export function kindOfKey(key: u32): u32 {
  if (key == KEY_NAME) return KIND_NAME;
  if (key <= KEY_OUTPUT) return KIND_CONTENT;
  return key <= KEY_SUMMARY ? KIND_REASONING : KIND_CALLS;
}

/** The API of a request's path. The query is cut off; everything else must be exactly one of the known paths. */
export function apiOfPath(ptr: usize, length: u32): u32 {
  let bytes: u32 = 0;
  while (bytes < length && load<u8>(ptr + bytes) != 0x3f) bytes++;
  if (isPath(ptr, bytes, '/v1/chat/completions')) return API_CHAT;
  if (isPath(ptr, bytes, '/v1/completions')) return API_COMPLETIONS;
  if (isPath(ptr, bytes, '/v1/responses')) return API_RESPONSES;
  if (isPath(ptr, bytes, '/v1/messages')) return API_MESSAGES;
  return bytes >= 4 && load<u32>(ptr) == 0x2f31762f ? API_OTHER : API_NONE;
}

function isPath(ptr: usize, length: u32, path: string): bool {
  if (length != <u32>path.length) return false;
  for (let i: u32 = 0; i < length; i++) {
    if (<i32>load<u8>(ptr + i) != path.charCodeAt(i)) return false;
  }
  return true;
}
