// What the control plane costs at full size: 1,000 pods scraped once a second and 100 gateways that report 10 requests a second each, with 45
// block keys a request. The pods and the gateways run in threads of this process; the control plane is the command that the Deployment
// runs, in a process of its own, whose CPU and memory are read from /proc.
//
//   node bench/control-plane.ts [--pods N] [--gateways N] [--seconds N] [--json] [--help]

import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import type { GatewaysResult, GatewaysTask } from './control-plane/gateways.ts';
import { startControlPlaneProcess, type ControlPlaneProcess } from './control-plane/process.ts';
import { machineText } from './measure.ts';
import { processMemory, processNs, waitedNs } from './overhead/proc.ts';

const usage = `node bench/control-plane.ts [OPTIONS]
  --pods N               simulated pods, scraped once a second (default: 1000)
  --gateways N           simulated gateways (default: 100)
  --requests-per-second N  of each gateway (default: 10)
  --keys N               block keys of a request that nobody knew (default: 45)
  --sync-interval MS     how often a gateway calls (default: 100)
  --seconds N            how long it is measured, after a warm-up of 5 s (default: 20)
  --rounds N             measured spans, for the spread (default: 3)
  --json                 one JSON document on standard output
  --help

Exit code: 0 all bounds hold, 1 a bound is broken, 2 used wrongly.
`;

/** What the design asks for at the default size. */
const BOUNDS = { cores: 2, memoryMiB: 512, syncP99Ms: 50 };

export interface Span {
  cores: number;
  /** Share of the time in which the control plane was ready to run and had no processor: what others on the machine take. */
  waited: number;
  memoryMiB: number;
  syncs: number;
  failed: number;
  syncP50Ms: number;
  syncP99Ms: number;
  /** How late the control plane's own event loop was, and how late that of the simulated gateways: what of a sync's time is whose. */
  loopP99Ms: number;
  gatewaysLateP99Ms: number;
  upMiBPerSecond: number;
  downMiBPerSecond: number;
}

export interface ControlPlaneReport {
  bench: 'control-plane';
  machine: string;
  versions: { node: string };
  load: { pods: number; gateways: number; requestsPerSecond: number; keys: number; syncIntervalMs: number };
  spans: Span[];
  bounds: typeof BOUNDS;
  broken: string[];
}

class UsageError extends Error {}

function whole(values: Record<string, unknown>, name: string): number {
  const number = Number(values[name]);
  if (!Number.isInteger(number) || number < 1) {
    throw new UsageError(`--${name} is "${String(values[name])}", expected a whole number from 1`);
  }
  return number;
}

function thread(file: string, data: unknown): Worker {
  return new Worker(new URL(`./control-plane/${file}`, import.meta.url), { workerData: data });
}

/** How late the control plane was since it was asked last. */
async function loopP99Ms(url: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^warmpath_event_loop_delay_seconds (\S+)/m.exec(text)?.[1]) * 1000;
}

/** How busy the control plane and the gateways were while `seconds` passed. */
async function measureSpan({ pid, url }: ControlPlaneProcess, gateways: Worker, seconds: number): Promise<Span> {
  gateways.postMessage('reset');
  const [beforeNs, waitedBeforeNs, startedMs] = [processNs(pid), waitedNs(pid), performance.now()];
  // Its metrics are read once in each span, as somebody will now and then.
  await loopP99Ms(url);
  await sleep(seconds * 1000);
  const passedMs = performance.now() - startedMs;
  const usedNs = processNs(pid) - beforeNs;
  const waitNs = waitedNs(pid) - waitedBeforeNs;
  gateways.postMessage('report');
  const [result] = (await once(gateways, 'message')) as [GatewaysResult];
  const loopMs = await loopP99Ms(url);
  const latencies = Float64Array.from(result.latenciesMs).toSorted();
  const at = (share: number): number => round(latencies[Math.floor((latencies.length - 1) * share)] ?? Number.NaN);
  const perSecond = (bytes: number): number => round(bytes / 2 ** 20 / (passedMs / 1000));
  return {
    cores: round(usedNs / 1e6 / passedMs),
    waited: round(waitNs / 1e6 / passedMs),
    memoryMiB: Math.round(processMemory(pid) / 2 ** 20),
    syncs: latencies.length,
    failed: result.failed,
    syncP50Ms: at(0.5),
    syncP99Ms: at(0.99),
    loopP99Ms: round(loopMs),
    gatewaysLateP99Ms: round(result.lateP99Ms),
    upMiBPerSecond: perSecond(result.upBytes),
    downMiBPerSecond: perSecond(result.downBytes),
  };
}

const round = (value: number): number => Math.round(value * 100) / 100;

function brokenIn(spans: Span[]): string[] {
  const broken: string[] = [];
  const check = (what: string, value: number, bound: number): void => {
    if (!(value < bound)) broken.push(`${what} ${value}, wanted below ${bound}`);
  };
  for (const span of spans) {
    check('cores', span.cores, BOUNDS.cores);
    check('memory in MiB', span.memoryMiB, BOUNDS.memoryMiB);
    check('sync p99 in ms', span.syncP99Ms, BOUNDS.syncP99Ms);
    if (span.failed > 0) broken.push(`${span.failed} syncs failed`);
  }
  return [...new Set(broken)];
}

export function textOf({ machine, versions, load, spans, broken }: ControlPlaneReport): string {
  const { pods, gateways, requestsPerSecond, keys, syncIntervalMs } = load;
  const lines = [
    'control plane',
    `${machine}\nnode ${versions.node}`,
    `${pods} pods each second, ${gateways} gateways x ${requestsPerSecond} requests/s x ${keys} keys, sync every ${syncIntervalMs} ms`,
    '',
    '  cores  waited  memory MiB  syncs  failed  sync p50 ms  p99 ms  loop late p99 ms  gateways late p99 ms  up MiB/s  down MiB/s',
  ];
  for (const s of spans) {
    lines.push(
      [
        s.cores.toFixed(2).padStart(7),
        s.waited.toFixed(2).padStart(8),
        String(s.memoryMiB).padStart(12),
        String(s.syncs).padStart(7),
        String(s.failed).padStart(8),
        s.syncP50Ms.toFixed(1).padStart(13),
        s.syncP99Ms.toFixed(1).padStart(8),
        s.loopP99Ms.toFixed(1).padStart(18),
        s.gatewaysLateP99Ms.toFixed(1).padStart(22),
        s.upMiBPerSecond.toFixed(1).padStart(10),
        s.downMiBPerSecond.toFixed(1).padStart(12),
      ].join(''),
    );
  }
  lines.push(broken.length === 0 ? 'all bounds hold' : `DOES NOT HOLD: ${broken.join('; ')}`);
  return `${lines.join('\n')}\n`;
}

async function measure(values: Record<string, unknown>): Promise<ControlPlaneReport> {
  const load = {
    pods: whole(values, 'pods'),
    gateways: whole(values, 'gateways'),
    requestsPerSecond: whole(values, 'requests-per-second'),
    keys: whole(values, 'keys'),
    syncIntervalMs: whole(values, 'sync-interval'),
  };
  const [seconds, rounds] = [whole(values, 'seconds'), whole(values, 'rounds')];
  const podsThread = thread('pods.ts', load.pods);
  let controlPlane: ControlPlaneProcess | undefined;
  try {
    const [endpoints] = (await once(podsThread, 'message')) as [string[]];
    const pool = { name: 'bench', endpoints, scrapeIntervalMs: 1_000, syncIntervalMs: load.syncIntervalMs };
    controlPlane = await startControlPlaneProcess({ port: 0, pools: [pool] });
    const task: GatewaysTask = { url: controlPlane.url, pool: 'bench', ...load };
    const gateways = thread('gateways.ts', task);
    const spans: Span[] = [];
    try {
      await sleep(5_000);
      for (let i = 1; i <= rounds; i++) {
        process.stderr.write(`span ${i} of ${rounds}, ${seconds} s\n`);
        spans.push(await measureSpan(controlPlane, gateways, seconds));
      }
    } finally {
      await gateways.terminate();
    }
    const { node } = process.versions;
    return {
      bench: 'control-plane',
      machine: machineText(),
      versions: { node },
      load,
      spans,
      bounds: BOUNDS,
      broken: brokenIn(spans),
    };
  } finally {
    await controlPlane?.kill();
    await podsThread.terminate();
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      pods: { type: 'string', default: '1000' },
      gateways: { type: 'string', default: '100' },
      'requests-per-second': { type: 'string', default: '10' },
      keys: { type: 'string', default: '45' },
      'sync-interval': { type: 'string', default: '100' },
      seconds: { type: 'string', default: '20' },
      rounds: { type: 'string', default: '3' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const report = await measure(values);
  process.stdout.write(values.json ? `${JSON.stringify(report, null, 2)}\n` : textOf(report));
  return report.broken.length === 0 ? 0 : 1;
}

if (import.meta.main) {
  try {
    process.exitCode = await main();
  } catch (error) {
    const isUsage = error instanceof UsageError || (error as { code?: string }).code?.startsWith('ERR_PARSE_ARGS');
    process.stderr.write(isUsage ? `${(error as Error).message}\n\n${usage}` : `${(error as Error).stack}\n`);
    process.exitCode = isUsage ? 2 : 1;
  }
}
