// A VM's memory: it is reserved when the first configuration comes and never grows. The filter runs in the Node host of the tests, with the
// default bounds or others, and serves requests of many kinds; its memory is read all along.
//
//   node bench/memory.ts [--json] [--requests N] [--pods N] [--capacity-tokens N] [--help]
import { Command } from 'commander';
import { wholeNumber } from '../cli/arguments.ts';
import { Random } from '../sim/random.ts';
import { chat, Gateway, PATH, words } from '../test/filter/gateway.ts';
import { commandMain, machineText } from './measure.ts';

/** What the design asks for, at 64 pods of 400,000 tokens. */
const BOUND_BYTES = 32 * 1024 * 1024;
/** Bytes of a token and of a block, as a pool begins. */
const TOKEN_BYTES = 4;
const BLOCK_BYTES = 256;
/** So many readings are kept. */
const READINGS = 20;

export interface MemoryOptions {
  requests: number;
  pods: number;
  capacityTokens: number;
}

export interface MemoryReport {
  bench: 'memory';
  machine: string;
  versions: Record<string, string>;
  options: MemoryOptions;
  /** Bytes of the VM's memory after the given number of requests; 0: configured and synced, before the first. */
  readings: { requests: number; bytes: number }[];
  picked: number;
  slopeBytesPerRequest: number;
  boundBytes: number;
  broken: string[];
}

const answerText =
  '{"usage":{"prompt_tokens":600,"completion_tokens":90,"prompt_tokens_details":{"cached_tokens":512}}}';

/** Requests as they come: conversations that grow, prompts nobody saw before, what cannot be read, answers of every end. */
class Traffic {
  readonly #random = new Random(1);
  readonly #gateway: Gateway;
  readonly #systems = Array.from({ length: 64 }, (_, i) => words(`system${i}`, 1500));
  picked = 0;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  one(number: number): void {
    const random = this.#random;
    const kind = random.below(100);
    const isStream = kind < 50;
    const system = this.#systems[random.below(this.#systems.length)] as string;
    const fresh = `${number} `.repeat(1 + random.below(200));
    const body =
      kind < 90 ? { ...chat(system, fresh), stream: isStream } : kind < 95 ? '{"messages":[{"role' : 'no JSON';
    const headers = kind === 99 ? { ':path': '/v1/models', ':method': 'GET' } : { ':path': PATH };
    const stream = this.#gateway.request(0, body, headers);
    if (this.#gateway.picks(stream).length > 0) this.picked++;
    if (kind % 10 === 7) stream.finish();
    else if (isStream) this.#gateway.answer(stream, { usage: JSON.parse(answerText).usage as object });
    else {
      const served = this.#gateway.picks(stream)[0] ?? '10.0.0.1:8000';
      const status = kind % 10 === 8 ? '503' : '200';
      stream.responseHeaders({
        ':status': status,
        'content-type': 'application/json',
        'x-gateway-destination-endpoint-served': served,
      });
      stream.responseBody(answerText, true);
      stream.finish();
    }
  }
}

export async function measureMemory(options: MemoryOptions, say: (line: string) => void): Promise<MemoryReport> {
  const { requests, pods, capacityTokens } = options;
  const blocks = Math.ceil((pods * capacityTokens * TOKEN_BYTES) / BLOCK_BYTES);
  const config = { bounds: { pods, blocks, streams: 4096 } };
  const gateway = (await Gateway.start({ pods, config })).settle(3000);
  const bytes = (): number => gateway.host.vm('worker-1').memory.bytes;
  const readings = [{ requests: 0, bytes: bytes() }];
  const traffic = new Traffic(gateway);
  for (let i = 1; i <= requests; i++) {
    traffic.one(i);
    gateway.host.advance(1);
    // The fake control plane keeps what it was told.
    if (i % 1000 === 0) gateway.reports.length = 0;
    if (i % Math.ceil(requests / READINGS) !== 0 && i !== requests) continue;
    readings.push({ requests: i, bytes: bytes() });
    say(`${i} of ${requests} requests, ${bytes()} bytes`);
  }
  const [first, last] = [readings[0]!, readings.at(-1)!];
  const broken: string[] = [];
  if (readings.some((reading) => reading.bytes !== first.bytes)) broken.push('the memory grew after the start');
  if (last.bytes >= BOUND_BYTES) broken.push(`${last.bytes} bytes, wanted below ${BOUND_BYTES}`);
  return {
    bench: 'memory',
    machine: machineText(),
    versions: { node: process.versions.node },
    options,
    readings,
    picked: traffic.picked,
    slopeBytesPerRequest: (last.bytes - first.bytes) / requests,
    boundBytes: BOUND_BYTES,
    broken,
  };
}

export function textOf({ machine, versions, options, readings, picked, broken, ...report }: MemoryReport): string {
  const mib = (value: number): string => (value / 2 ** 20).toFixed(2);
  const lines = [
    'memory of a VM',
    `${machine}\nnode ${versions['node']}`,
    `${options.pods} pods of ${options.capacityTokens} tokens, ${options.requests} requests, ${picked} of them picked for`,
    '',
    `  requests  MiB`,
    ...readings.map((reading) => `${String(reading.requests).padStart(10)}  ${mib(reading.bytes)}`),
    `slope ${report.slopeBytesPerRequest} bytes a request`,
    broken.length === 0
      ? `bound ${mib(report.boundBytes)} MiB holds, and nothing grew`
      : `DOES NOT HOLD: ${broken.join('; ')}`,
  ];
  return `${lines.join('\n')}\n`;
}

const whole = wholeNumber(1, 100_000_000);

async function main(): Promise<number> {
  const command = new Command('memory')
    .description("A VM's memory over many requests.")
    .option('--requests <n>', 'how many', whole, 1_000_000)
    .option('--pods <n>', 'pods of the pool', wholeNumber(1, 64), 64)
    .option('--capacity-tokens <n>', 'of each pod', whole, 400_000);
  return commandMain(command, measureMemory, textOf);
}

if (import.meta.main) process.exitCode = await main();
