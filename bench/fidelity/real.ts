// One run on real engines behind the real gateway, with what a replay of it needs: every prompt as the engine's own tokens, when it was sent, and which
// engine got it.

import { drive } from '../../sim/drive.ts';
import type { DriveSummary } from '../../sim/summary.ts';
import type { Session, Workload, WorkloadRequest } from '../../sim/workload.ts';
import { chatTokens } from './text.ts';

export interface Played {
  sentMs: number;
  replica: number;
  tokens: number[];
  outputTokens: number;
  measured: boolean;
  /** What the engine said. */
  cachedTokens: number;
  ttftMs: number;
}

export interface RealRun {
  summary: DriveSummary;
  played: Played[];
  lagMs: number;
}

export interface Target {
  baseUrl: string;
  /** `ip:port` of the engines, in their order. */
  endpoints: readonly string[];
  model: string;
  podHeader: string;
}

export async function resetCaches(endpoints: readonly string[]): Promise<void> {
  for (const endpoint of endpoints) {
    const response = await fetch(`http://${endpoint}/reset_prefix_cache`, { method: 'POST' });
    await response.arrayBuffer();
    if (!response.ok) throw new Error(`${endpoint}: the prefix cache was not reset (${response.status})`);
  }
}

/** The same sessions, with what each has asked kept in order. */
function listening(workload: Workload, asked: Map<string, WorkloadRequest[]>): Workload {
  const listen = (session: Session): Session => {
    const requests: WorkloadRequest[] = [];
    asked.set(session.id, requests);
    return {
      ...session,
      next: (answer) => {
        const request = session.next(answer);
        if (request !== null) requests.push(request);
        return request;
      },
    };
  };
  return { ...workload, sessions: () => workload.sessions().map(listen) };
}

export async function playReal(target: Target, workload: Workload): Promise<RealRun> {
  const { baseUrl, endpoints, model, podHeader } = target;
  await resetCaches(endpoints);
  const asked = new Map<string, WorkloadRequest[]>();
  const { summary, records, lagMs } = await drive({ baseUrl, workload: listening(workload, asked), model, podHeader });
  const failed = records.filter((record) => record.failed);
  if (failed.length > 0) throw new Error(`${workload.id}: ${failed.length} requests failed: ${failed[0]!.error}`);
  const at = new Map<string, number>();
  const played: Played[] = [];
  for (const record of records.toSorted((a, b) => a.sentMs - b.sentMs)) {
    const index = at.get(record.session) ?? 0;
    at.set(record.session, index + 1);
    const request = asked.get(record.session)![index]!;
    const replica = endpoints.indexOf(record.pod ?? '');
    if (replica < 0)
      throw new Error(`${workload.id}: a request went to ${record.pod}, which is none of ${endpoints.join(', ')}`);
    played.push({
      sentMs: record.sentMs,
      replica,
      tokens: await chatTokens(`http://${endpoints[0]}`, model, request.messages),
      outputTokens: request.outputTokens,
      measured: request.measured,
      cachedTokens: record.cachedTokens ?? 0,
      ttftMs: record.ttftMs ?? 0,
    });
  }
  return { summary, played, lagMs: lagMs.p99 };
}

/** A prompt of token ids, answered by one engine alone; gives how many of its tokens were cached. */
export async function completeAlone(
  endpoint: string,
  model: string,
  tokens: number[],
  output: number,
): Promise<number> {
  const response = await fetch(`http://${endpoint}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model, prompt: tokens, max_tokens: output, ignore_eos: true, temperature: 0 }),
  });
  if (!response.ok) throw new Error(`${endpoint} answers ${response.status}`);
  const { usage } = (await response.json()) as { usage: { prompt_tokens_details: { cached_tokens: number } } };
  return usage.prompt_tokens_details.cached_tokens;
}
