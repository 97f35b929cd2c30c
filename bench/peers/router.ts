// One of the other routers as a child process, started as its documentation says, and ready when it serves a request.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../envoy/run.ts';
import { processMemory, processNs } from '../overhead/proc.ts';

export const PEER_NAMES = ['sglang-router', 'vllm-router'] as const;
export type PeerName = (typeof PEER_NAMES)[number];

const READY_MS = 60_000;

const moduleOf: Record<PeerName, string> = {
  'sglang-router': 'sglang_router.launch_router',
  'vllm-router': 'vllm_router.launch_router',
};

export interface RunningRouter {
  port: number;
  /** CPU so far of the router and its children. */
  cpuNs(): number;
  memoryBytes(): number;
  stop(): Promise<void>;
}

export interface RouterOptions {
  name: PeerName;
  python: string;
  workers: readonly string[];
  /** More options of its command line, for example of its policy's tuning. */
  args?: readonly string[];
}

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** The process and what it started. */
function family(pid: number): number[] {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
  );
  return [pid, ...children.flatMap(family)];
}

export async function startRouter({ name, python, workers, args = [] }: RouterOptions): Promise<RunningRouter> {
  const [port, metricsPort] = [await freePort(), await freePort()];
  const urls = workers.map((endpoint) => `http://${endpoint}`);
  const flags = {
    '--host': '127.0.0.1',
    '--port': String(port),
    '--policy': 'cache_aware',
    '--log-level': 'error',
    '--prometheus-host': '127.0.0.1',
    '--prometheus-port': String(metricsPort),
  };
  const child = spawn(
    python,
    ['-m', moduleOf[name], '--worker-urls', ...urls, ...Object.entries(flags).flat(), ...args],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  running.add(child);
  let log = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (part: Buffer) => void (log = (log + part.toString()).slice(-4_000)));
  }
  child.once('exit', () => running.delete(child));
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    for (const pid of family(child.pid as number).reverse()) process.kill(pid, 'SIGKILL');
    await ended;
  };
  const endMs = Date.now() + READY_MS;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`${name} ended:\n${log}`);
    if (await isReady(port)) break;
    if (Date.now() > endMs) {
      await stop();
      throw new Error(`${name} was not ready after ${READY_MS / 1000} s:\n${log}`);
    }
    await sleep(100);
  }
  const pid = child.pid as number;
  return {
    port,
    cpuNs: () => family(pid).reduce((sum, one) => sum + processNs(one), 0),
    memoryBytes: () => family(pid).reduce((sum, one) => sum + processMemory(one), 0),
    stop,
  };
}

async function isReady(port: number): Promise<boolean> {
  const body = JSON.stringify({ model: 'sim-8b', max_tokens: 1, messages: [{ role: 'user', content: 'ready?' }] });
  const headers = { 'content-type': 'application/json' };
  try {
    const signal = AbortSignal.timeout(2_000);
    const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: 'POST',
      headers,
      body,
      signal,
    });
    await answer.arrayBuffer();
    return answer.status === 200;
  } catch {
    return false;
  }
}
