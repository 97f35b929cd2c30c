// Requests that go on while something happens to the cluster, through Warmpath's route and, beside it, through a route that knows nothing of
// Warmpath: what fails on the second fails by Envoy's own nature.

import { setTimeout as sleep } from 'node:timers/promises';
import { promptOf } from './world.ts';
import type { World } from './world.ts';

export interface LoadEntry {
  host: string;
  startedMs: number;
  status: number;
  pod: string;
  error: string;
}

export class Load {
  readonly entries: LoadEntry[] = [];
  readonly #workers: Promise<void>[];
  readonly #end = new AbortController();

  constructor(world: World, hosts: readonly string[], { workers = 2, pauseMs = 40 } = {}) {
    this.#workers = hosts.flatMap((host) =>
      Array.from({ length: workers }, async (_, worker) => {
        for (let n = 0; !this.#end.signal.aborted; n++) {
          const entry: LoadEntry = { host, startedMs: Date.now(), status: 0, pod: '', error: '' };
          try {
            // Two of three have been seen before and stay where they are cached; the third is new, and goes where least is done.
            const group = n % 3 === 2 ? 1_000 + n * workers + worker : (n * workers + worker) % 12;
            const answer = await world.ask(promptOf(group), { host, turn: `turn ${n}` });
            entry.status = answer.status;
            entry.pod = answer.pod;
            if (answer.status !== 200) entry.error = answer.text.slice(0, 200);
          } catch (error) {
            entry.error = String(error);
          }
          this.entries.push(entry);
          await sleep(pauseMs);
        }
      }),
    );
  }

  /** Requests on a host that began after a moment. */
  since(startedMs: number, host: string): LoadEntry[] {
    return this.entries.filter((entry) => entry.host === host && entry.startedMs >= startedMs);
  }

  failed(host: string): LoadEntry[] {
    return this.entries.filter((entry) => entry.host === host && entry.status !== 200);
  }

  /** Lets it run on for so many more requests on each host. */
  async more(requests: number): Promise<void> {
    const target = this.entries.length + requests;
    while (this.entries.length < target) await sleep(20);
  }

  async stop(): Promise<void> {
    this.#end.abort();
    await Promise.all(this.#workers);
  }
}
