// What each step of the engine costs in the V8 it runs in: the same module (filter/nouns.ts) is configured in Node and in a real Envoy in turn,
// and tells the time of each round. A pick at 64 and at 1,000 pods is beside a full table of 400,000 blocks.
//
//   node bench/nouns.ts [--json] [--pods N,...] [--turns N] [--envoy VERSION] [--help]
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { wholeNumber } from '../cli/arguments.ts';
import { envoyVersionDefault } from '../envoy/fetch.ts';
import { startEnvoy } from '../envoy/run.ts';
import { machineText } from './measure.ts';
import { spread, type Spread } from './overhead/spread.ts';

const HOSTS = ['node', 'envoy'] as const;
type Host = (typeof HOSTS)[number];
const READY_MS = 300_000;
const wasmPath = fileURLToPath(new URL('../build/nouns.wasm', import.meta.url));

/** What the nouns do, in the order in which the module does them. Bodies have their bytes. */
const NOUNS: Record<string, { what: string; bytes?: number }> = {
  'body-1-KiB': { what: 'a body of 1 KiB, read, hashed and chained', bytes: 1024 },
  'body-16-KiB': { what: 'a body of 16 KiB', bytes: 16 * 1024 },
  'body-128-KiB': { what: 'a body of 128 KiB', bytes: 128 * 1024 },
  'lookup-hot': { what: 'lookup of 256 keys, the same each time' },
  'lookup-cold': { what: 'lookup of 256 keys, another chain each time' },
  'pick-hot': { what: 'pick, its lookup included, the same chain each time' },
  'pick-cold': { what: 'pick, its lookup included, another chain each time' },
  'touch-cold': { what: 'touch of 256 keys, another chain each time' },
  'answer-event': { what: 'an event of a streamed answer, searched for usage' },
};

export interface NounsRow {
  noun: string;
  pods: number;
  ns: Record<Host, Spread>;
  megabytesPerSecond: Record<Host, number> | null;
}

export interface NounsReport {
  bench: 'nouns';
  machine: string;
  versions: Record<string, string>;
  rows: NounsRow[];
}

type Rounds = Map<string, number[]>;

function take(text: string, rounds: Rounds): void {
  for (const [, noun = '', ns] of text.matchAll(/noun (\S+) (\d+)/g)) {
    rounds.set(noun, [...(rounds.get(noun) ?? []), Number(ns)]);
  }
}

/** The module in this process, with a clock and a log and nothing else of a host. */
function inNode(module: WebAssembly.Module, pods: number, rounds: Rounds): void {
  let memory = new DataView(new ArrayBuffer(0));
  const exported = (): Record<string, CallableFunction> => instance.exports as Record<string, CallableFunction>;
  const view = (): DataView => {
    const { buffer } = instance.exports['memory'] as WebAssembly.Memory;
    if (memory.buffer !== buffer) memory = new DataView(buffer);
    return memory;
  };
  const host: Record<string, (...numbers: number[]) => number> = {
    proxy_get_current_time_nanoseconds: (out = 0) => {
      view().setBigUint64(out >>> 0, process.hrtime.bigint(), true);
      return 0;
    },
    proxy_log: (_level, at = 0, bytes = 0) => {
      take(Buffer.from(view().buffer, at >>> 0, bytes).toString(), rounds);
      return 0;
    },
    proxy_get_buffer_bytes: (_buffer, _start, _bytes, outAt = 0, outBytes = 0) => {
      const text = new TextEncoder().encode(`${pods}`);
      const at = Number(exported()['proxy_on_memory_allocate']?.(text.length)) >>> 0;
      new Uint8Array(view().buffer).set(text, at);
      view().setUint32(outAt >>> 0, at, true);
      view().setUint32(outBytes >>> 0, text.length, true);
      return 0;
    },
  };
  const imports: WebAssembly.Imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    (imports[from] ??= {})[name] = host[name] ?? (() => 1);
  }
  const instance: WebAssembly.Instance = new WebAssembly.Instance(module, imports);
  exported()['_start']?.();
  if (exported()['proxy_on_configure']?.(1, `${pods}`.length) !== 1)
    throw new Error('the module refused its configuration');
}

/** The module in a real Envoy: its first VM, and the worker's. */
async function inEnvoy(version: string, pods: number, rounds: Rounds): Promise<void> {
  const listener = { name: 'nouns', cluster: 'pool', chain: 'empty' as const, wasmPath, pluginConfig: `${pods}` };
  const envoy = await startEnvoy({
    version,
    concurrency: 1,
    readyTimeoutMs: READY_MS,
    listeners: [listener],
    pools: [{ name: 'pool', endpoints: ['127.0.0.1:9'], balancing: 'round-robin' }],
  });
  try {
    take(await envoy.log(), rounds);
  } finally {
    await envoy.stop();
  }
}

export async function measureNouns(options: { pods: number[]; turns: number; envoy: string }): Promise<NounsReport> {
  const module = new WebAssembly.Module(readFileSync(wasmPath));
  const rows: NounsRow[] = [];
  for (const pods of options.pods) {
    const rounds: Record<Host, Rounds> = { node: new Map(), envoy: new Map() };
    for (let turn = 0; turn < options.turns; turn++) {
      inNode(module, pods, rounds.node);
      await inEnvoy(options.envoy, pods, rounds.envoy);
    }
    for (const [noun, { bytes }] of Object.entries(NOUNS)) {
      const [node, envoy] = HOSTS.map((host) => spread(rounds[host].get(noun) ?? []));
      const ns = { node: node!, envoy: envoy! };
      const rate = (median: number): number => Math.round(((bytes ?? 0) * 1000) / median);
      const megabytesPerSecond = bytes === undefined ? null : { node: rate(node!.median), envoy: rate(envoy!.median) };
      rows.push({ noun, pods, ns, megabytesPerSecond });
    }
  }
  const versions = { node: process.versions.node, v8: process.versions.v8, envoy: options.envoy };
  return { bench: 'nouns', machine: machineText(), versions, rows };
}

function textOf({ machine, versions, rows }: NounsReport): string {
  const names = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  const lines = [
    machine,
    names.join(', '),
    '',
    '| ns, median (range) | pods | in Node | in Envoy | Envoy / Node | MB/s in Envoy |',
    '| - | - | - | - | - | - |',
  ];
  const shown = ({ median, min, max }: Spread): string =>
    `${Math.round(median)} (${Math.round(min)} to ${Math.round(max)})`;
  for (const { noun, pods, ns, megabytesPerSecond } of rows) {
    const ratio = (ns.envoy.median / ns.node.median).toFixed(2);
    const cells = [NOUNS[noun]?.what, pods, shown(ns.node), shown(ns.envoy), ratio, megabytesPerSecond?.envoy ?? '-'];
    lines.push(`| ${cells.join(' | ')} |`);
  }
  return `${lines.join('\n')}\n`;
}

async function main(): Promise<void> {
  const list = (text: string): number[] => text.split(',').map((one) => wholeNumber(1, 1000)(one));
  const command = new Command('nouns')
    .description("times the engine's steps in Node's V8 and in Envoy's, in turn")
    .option('--json', 'one JSON document in place of the table', false)
    .option('--pods <N,...>', 'sizes of the pool', list, [64, 1000])
    .option('--turns <N>', 'how often each of the two is started', wholeNumber(1, 50), 3)
    .option('--envoy <VERSION>', 'version of Envoy', envoyVersionDefault);
  const options = command.parse().opts<{ json: boolean; pods: number[]; turns: number; envoy: string }>();
  const report = await measureNouns(options);
  process.stdout.write(options.json ? `${JSON.stringify(report, null, 2)}\n` : textOf(report));
}

if (import.meta.main) await main();
