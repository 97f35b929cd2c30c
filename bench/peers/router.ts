// One of the other routers as a child process, started as its documentation says, and ready when it serves a request.
import { freePort } from '../../envoy/ports.ts';
import { startChild, type Child } from './child.ts';

export const PEER_NAMES = ['sglang-router', 'vllm-router'] as const;
export type PeerName = (typeof PEER_NAMES)[number];

const moduleOf: Record<PeerName, string> = {
  'sglang-router': 'sglang_router.launch_router',
  'vllm-router': 'vllm_router.launch_router',
};

export interface RunningRouter extends Child {
  port: number;
}

export interface RouterOptions {
  name: PeerName;
  python: string;
  workers: readonly string[];
  /** More options of its command line, for example of its policy's tuning. */
  args?: readonly string[];
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
  const child = await startChild({
    name,
    command: python,
    args: ['-m', moduleOf[name], '--worker-urls', ...urls, ...Object.entries(flags).flat(), ...args],
    isReady: () => isReady(port),
  });
  return { port, ...child };
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
