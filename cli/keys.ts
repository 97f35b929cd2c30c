// `warmpath keys`: how the filter reads a request body, by the same engine, for whoever wonders why two prompts do or do not share a prefix.

import { Command, Option } from 'commander';
import { readFileSync } from 'node:fs';
import { keyHex, KeyReader, toolsPositions, type ToolsPosition } from '../control-plane/engine/keys.ts';
import { messageOf, UsageError } from './errors.ts';

const details = `
What it prints
  API and model as read, prompt bytes, tokens estimated from them, and the block keys: two prompts share keys exactly as far
  as they share a prefix. The secret is a fixed one here, so keys are comparable between runs but not with a gateway's.
  A body that cannot be read, or that is too short for a block, gets a reason in place of keys.

Examples
  $ npx warmpath keys docs/examples/chat.json
  $ npx warmpath keys --json request.json other.json
  $ npx warmpath keys --path /v1/messages anthropic.json
  $ cat request.json | npx warmpath keys -`;

/** What a gateway assumes until it has learned its pool's own ratio. */
const bytesPerToken = 4;
const pathDefault = '/v1/chat/completions';

export interface KeysRow {
  file: string;
  path: string;
  api: string;
  model: string;
  promptBytes: number;
  tokensEstimated: number;
  keys: string[];
  /** Why there are no keys; null when there are. */
  reason: string | null;
}

interface KeysFlags {
  path: string;
  toolsPosition: ToolsPosition;
  json?: boolean;
}

export function keysCommand(): Command {
  return new Command('keys')
    .summary('how the filter reads a request: model, tokens, block keys, or why it cannot be read')
    .description('Reads request bodies as the filter does and prints what it sees in them.')
    .argument('<file...>', 'files with one request body each, - for standard input')
    .option('--path <path>', 'the path that the requests are sent to', pathDefault)
    .addOption(
      new Option('--tools-position <where>', "where the model's template puts tools")
        .choices(toolsPositions)
        .default(toolsPositions[0]),
    )
    .option('--json', 'print one JSON document on standard output')
    .addHelpText('after', details)
    .action(async (files: string[], flags: KeysFlags) => {
      const bodies = files.map((file) => ({ file, body: readBody(file) }));
      const reader = await KeyReader.create();
      const rows = bodies.map(({ file, body }) => rowOf(reader, file, body, flags));
      process.stdout.write(flags.json ? `${JSON.stringify(rows, null, 2)}\n` : rows.map(shown).join('\n'));
    });
}

function rowOf(reader: KeyReader, file: string, body: Uint8Array, { path, toolsPosition }: KeysFlags): KeysRow {
  const { api, model, promptBytes, keys, reason } = reader.read(path, body, { toolsPosition });
  return {
    file,
    path,
    api,
    model,
    promptBytes,
    tokensEstimated: Math.ceil(promptBytes / bytesPerToken),
    keys: keys.map(keyHex),
    reason: keys.length > 0 ? null : reason,
  };
}

function readBody(file: string): Uint8Array {
  try {
    return readFileSync(file === '-' ? 0 : file);
  } catch (error) {
    throw new UsageError(`${file} cannot be read: ${messageOf(error)}`);
  }
}

function shown(row: KeysRow): string {
  const head = `${row.file}: ${row.api} ${row.path}\n`;
  if (row.reason !== null) return `${head}  not read: ${row.reason}\n`;
  const lines = [
    `model            ${row.model}`,
    `prompt           ${row.promptBytes} bytes, about ${row.tokensEstimated} tokens`,
    `block keys       ${row.keys.length}`,
    ...row.keys.map((key) => `  ${key}`),
  ];
  return head + lines.map((line) => `  ${line}\n`).join('');
}
