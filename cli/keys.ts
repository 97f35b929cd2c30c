// `warmpath keys`: how the filter reads a request body, by the same engine, for whoever wonders why two prompts do or do not share a prefix.

import { Command, Option } from 'commander';
import { readFileSync } from 'node:fs';
import { TOOLS_POSITIONS, type ToolsPosition } from '../control-plane/engine/frames.ts';
import { CommandError, messageOf, UsageError } from './errors.ts';

const details = `
What it prints
  API and model as read, prompt bytes, tokens estimated from them, and the block keys: two prompts share keys exactly as far
  as they share a prefix. The secret is a fixed one here, so keys are comparable between runs but not with a gateway's.
  A body that cannot be read gets a reason in place of keys, and the exit code is 1.

Examples
  $ npx warmpath keys docs/examples/chat.json
  $ npx warmpath keys --json request.json other.json
  $ npx warmpath keys --path /v1/messages anthropic.json
  $ cat request.json | npx warmpath keys -`;

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
        .choices(TOOLS_POSITIONS)
        .default(TOOLS_POSITIONS[0]),
    )
    .option('--json', 'print one JSON document on standard output')
    .addHelpText('after', details)
    .action(async (files: string[], flags: KeysFlags) => {
      const bodies = files.map((file) => ({ file, body: readBody(file) }));
      const rows = await readRequests(bodies, flags);
      process.stdout.write(flags.json ? `${JSON.stringify(rows, null, 2)}\n` : rows.map(shown).join('\n'));
      const unread = rows.filter((row) => row.reason !== null).map((row) => `${row.file} (${row.reason})`);
      if (unread.length > 0) throw new CommandError(`no keys for ${unread.join(', ')}`);
    });
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
