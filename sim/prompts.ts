// From the body of each API to one chat: messages and tools in the shape of chat completions, which is what an engine's template renders. Requests
// of different APIs that mean the same chat therefore find each other's blocks in the prefix cache, as in a real engine.

import { objectsOf, type Body } from './body.ts';
import type { ChatMessage, ChatPrompt } from './tokens.ts';

/** A tool that the answer must call. */
export interface ForcedTool {
  name: string;
  /** Asked for by its name, rather than as any tool. */
  isNamed: boolean;
  parameters: unknown;
}

const BILLING_HEADER = 'x-anthropic-billing-header';

function recordOf(value: unknown): Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Body) : {};
}

function listOf(value: unknown): Body[] {
  return Array.isArray(value) ? (value as unknown[]).map(recordOf) : [];
}

function textOfField(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

export function chatPrompt(body: Body): ChatPrompt {
  return { messages: objectsOf(body, 'messages') as unknown as ChatMessage[], tools: body['tools'] };
}

/** The text of a system prompt in Anthropic's form. A block that only serves billing is left out: it changes with every request. */
function systemText(system: unknown): string {
  if (typeof system === 'string') return system;
  return listOf(system)
    .map(({ text }) => textOfField(text))
    .filter((text) => !text.startsWith(BILLING_HEADER))
    .join('');
}

function toolCall(name: unknown, input: unknown): object {
  const text = typeof input === 'string' ? input : JSON.stringify(input ?? {});
  return { type: 'function', function: { name, arguments: text } };
}

/** One of Anthropic's messages is several of chat's: results of tools stand in a user's message there, and for themselves here. */
function addAnthropic(messages: ChatMessage[], message: Body): void {
  const role = String(message['role']);
  const content = message['content'];
  if (!Array.isArray(content)) {
    messages.push({ role, content });
    return;
  }
  const parts: Body[] = [];
  const calls: object[] = [];
  let reasoning = '';
  for (const block of listOf(content)) {
    if (block['type'] === 'tool_result') {
      const result = block['content'];
      const text = typeof result === 'string' ? result : listOf(result).map((part) => textOfField(part['text']));
      messages.push({ role: 'tool', content: Array.isArray(text) ? text.join('\n') : text });
    } else if (block['type'] === 'tool_use') calls.push(toolCall(block['name'], block['input']));
    else if (block['type'] === 'thinking') reasoning += textOfField(block['thinking']);
    else if (block['type'] !== 'redacted_thinking') parts.push(block);
  }
  if (parts.length === 0 && calls.length === 0 && reasoning === '') return;
  messages.push({
    role,
    ...(reasoning === '' ? {} : { reasoning }),
    content: parts,
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  });
}

export function messagesPrompt(body: Body): ChatPrompt {
  const given = objectsOf(body, 'messages');
  const isSystem = ({ role }: Body): boolean => role === 'system';
  // System messages in the list go into the system text.
  const system =
    systemText(body['system']) +
    given
      .filter(isSystem)
      .map(({ content }) => systemText(content))
      .join('');
  const messages: ChatMessage[] = system === '' ? [] : [{ role: 'system', content: system }];
  for (const message of given) if (!isSystem(message)) addAnthropic(messages, message);
  const tools = listOf(body['tools']).map(({ name, description, input_schema: parameters }) => ({
    type: 'function',
    function: { name, description, parameters },
  }));
  return { messages, tools };
}

function addResponsesItem(messages: ChatMessage[], item: Body): void {
  switch (item['type']) {
    case 'function_call': {
      const call = toolCall(item['name'], item['arguments']);
      const last = messages.at(-1);
      // Calls of one answer follow each other as items; to the template they are one message.
      if (last?.role === 'assistant' && Array.isArray(last.tool_calls)) (last.tool_calls as object[]).push(call);
      else messages.push({ role: 'assistant', content: null, tool_calls: [call] });
      return;
    }
    case 'function_call_output':
      messages.push({ role: 'tool', content: item['output'] });
      return;
    case 'reasoning':
      return;
    default:
      messages.push({ role: String(item['role']), content: item['content'] });
  }
}

export function responsesPrompt(body: Body): ChatPrompt {
  const { instructions, input } = body;
  const messages: ChatMessage[] =
    typeof instructions === 'string' && instructions !== '' ? [{ role: 'system', content: instructions }] : [];
  if (typeof input === 'string') messages.push({ role: 'user', content: input });
  else for (const item of objectsOf(body, 'input')) addResponsesItem(messages, item);
  const tools = listOf(body['tools']).map((tool) => {
    const { name, description, parameters } = tool;
    return tool['type'] === 'function' ? { type: 'function', function: { name, description, parameters } } : tool;
  });
  return { messages, tools };
}

/** The tool that `tool_choice` forces, of any API: their words differ, but never mean different things. */
export function forcedTool(body: Body, prompt: ChatPrompt): ForcedTool | null {
  const tools = listOf(prompt.tools).map((tool) => recordOf(tool['function']));
  const choice = body['tool_choice'];
  const { type, name, function: inner } = recordOf(choice);
  const wanted = textOfField(recordOf(inner)['name']) || textOfField(name);
  const isAny = choice === 'required' || type === 'any';
  if (!isAny && wanted === '') return null;
  const tool = wanted === '' ? tools[0] : tools.find((one) => one['name'] === wanted);
  return tool === undefined
    ? null
    : { name: String(tool['name']), isNamed: wanted !== '', parameters: tool['parameters'] };
}
