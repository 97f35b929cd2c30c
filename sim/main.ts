// One simulated replica from the command line: node sim/main.ts --engine L4-8B --port 8001

import { parseArgs } from 'node:util';
import { ENGINE_NAMES, engineConstants } from './constants.ts';
import { MODEL_DEFAULT, startReplica } from './server.ts';

const usage = `usage: node sim/main.ts [--engine ${ENGINE_NAMES.join('|')}] [--host H] [--port N] [--model NAME] [--slow FACTOR] [--queue-max N]`;

function number(name: string, value: string): number {
  const parsed = Number(value);
  if (!Number.isFinite(parsed) || parsed < 0)
    throw new Error(`${name} is ${JSON.stringify(value)}, expected a number of 0 or more`);
  return parsed;
}

try {
  const { values } = parseArgs({
    options: {
      engine: { type: 'string', default: 'L4-8B' },
      host: { type: 'string', default: '127.0.0.1' },
      port: { type: 'string', default: '0' },
      model: { type: 'string', default: MODEL_DEFAULT },
      slow: { type: 'string', default: '1' },
      'queue-max': { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(`${usage}\n`);
  } else {
    const queueMax = values['queue-max'];
    const replica = await startReplica({
      engine: engineConstants(values.engine).name,
      host: values.host,
      port: number('--port', values.port),
      model: values.model,
      slowFactor: number('--slow', values.slow),
      ...(queueMax === undefined ? {} : { queueMax: number('--queue-max', queueMax) }),
    });
    process.stdout.write(`${replica.url}\n`);
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void replica.close());
  }
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${usage}\n`);
  process.exitCode = 2;
}
