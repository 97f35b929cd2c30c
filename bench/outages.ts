// What a user sees while something is broken: for each outage of the control plane, the metrics and a replica, how requests end with the
// filter and in a plain Envoy beside it, under the same load and with the same retries, and how soon picks are right again.
//
//   node bench/outages.ts [--only NAME,...] [--seconds N] [--runs N] [--json] [--help]

import { parseArgs } from 'node:util';
import { outages } from './outages/cases.ts';
import type { Result, RunOptions } from './outages/run.ts';

const usage = `node bench/outages.ts [OPTIONS]
  --only NAME,...   these outages only; part of a name is enough
  --seconds N       how long an outage lasts; it is watched 3 s longer after its end (default: 5)
  --runs N          runs of each, with other seeds (default: 1)
  --clients N       clients in a closed loop, for each of the two arms (default: 32)
  --plain POLICY    how plain Envoy balances: round-robin (default) or least-request
  --envoy VERSION   another Envoy
  --trace           the course of each run on standard error, in windows of 500 ms, and Envoy's log
  --list            names of the outages
  --json            one JSON document on standard output
  --help

Exit code: 0 all bounds hold, 1 a bound is broken, 2 used wrongly.
`;

class UsageError extends Error {}

function whole(name: string, value: string, min: number): number {
  const number = Number(value);
  if (!Number.isInteger(number) || number < min) {
    throw new UsageError(`--${name} is "${value}", expected a whole number from ${min}`);
  }
  return number;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', default: '' },
      seconds: { type: 'string', default: '5' },
      runs: { type: 'string', default: '1' },
      clients: { type: 'string', default: '32' },
      plain: { type: 'string', default: 'round-robin' },
      envoy: { type: 'string' },
      trace: { type: 'boolean', default: false },
      list: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return say(usage);
  if (values.list) return say(outages.map(({ name, what }) => `${name.padEnd(26)}${what}\n`).join(''));
  const { plain } = values;
  if (plain !== 'round-robin' && plain !== 'least-request') {
    throw new UsageError(`--plain is "${plain}", expected round-robin or least-request`);
  }
  const wanted = values.only === '' ? [''] : values.only.split(',');
  for (const part of wanted) {
    if (!outages.some(({ name }) => name.includes(part))) throw new UsageError(`--only: no outage is called "${part}"`);
  }
  const options: Omit<RunOptions, 'seed'> = {
    seconds: whole('seconds', values.seconds, 2),
    clients: whole('clients', values.clients, 1),
    plain,
    ...(values.trace ? { onTrace: (text: string) => void process.stderr.write(`\n${text}`) } : {}),
    ...(values.envoy === undefined ? {} : { version: values.envoy }),
  };
  const runs = whole('runs', values.runs, 1);
  const { conditions, runOutage } = await import('./outages/run.ts');
  const results: Result[][] = [];
  for (const outage of outages.filter(({ name }) => wanted.some((part) => name.includes(part)))) {
    const several: Result[] = [];
    for (let seed = 1; seed <= runs; seed++) {
      process.stderr.write(`${outage.name}${runs > 1 ? `, run ${seed} of ${runs}` : ''} ... `);
      const result = await runOutage(outage, { ...options, seed });
      process.stderr.write(`${result.broken.length === 0 ? 'ok' : result.broken.join('; ')}\n`);
      several.push(result);
    }
    results.push(several);
  }
  const { documentOf, tableOf } = await import('./outages/table.ts');
  const document = documentOf(results, { ...conditions, ...options });
  process.stdout.write(values.json ? `${JSON.stringify(document, null, 2)}\n` : tableOf(document));
  return document.broken.length === 0 ? 0 : 1;
}

function say(text: string): number {
  process.stdout.write(text);
  return 0;
}

// Ending by process.exit lets the children be ended, too.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
try {
  process.exitCode = await main();
} catch (error) {
  const isUsage = error instanceof UsageError || (error as { code?: string }).code?.startsWith('ERR_PARSE_ARGS');
  process.stderr.write(isUsage ? `${(error as Error).message}\n\n${usage}` : `${(error as Error).stack}\n`);
  process.exitCode = isUsage ? 2 : 1;
}
