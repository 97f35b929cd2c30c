// Under which names engines serve their models. An engine that was started with several names for one model keeps one cache for all of them;
// gateways are told which names are one, so that a prompt is found under each. Asked of each engine once in its life, at GET /v1/models.
// Nothing is told before all have answered or given up: half of the names would take back what gateways know from an earlier control plane.
//
// Only what the engine loaded itself counts: an adapter names its parent, and has a cache of its own under each of its names.
import type { AliasRecord } from './engine/records.ts';
import { FetchError } from './fetch-page.ts';
import { LIMITS } from './limits.ts';
import type { Log } from './log.ts';
import { adapterHash } from './scrape.ts';

interface Asked {
  /** The start time of the process that was asked. */
  startedSeconds: number;
  /** Good scrapes in this life. */
  looks: number;
  tries: number;
  isBusy: boolean;
  /** Names that are one model, null until it has answered. */
  groups: string[][] | null;
}

export interface ModelNamesEvents {
  /** A page of an engine; fails with FetchError. */
  fetch(endpoint: string, path: string): Promise<string>;
  /** What `records` gives is something else now. */
  changed(): void;
  asked(outcome: 'ok' | 'failed'): void;
}

/** Groups of two or more names in what an engine answers, sorted; none when it is no such answer. */
export function readModels(text: string): string[][] {
  let data: unknown;
  try {
    ({ data } = (JSON.parse(text) ?? {}) as { data?: unknown });
  } catch {
    return [];
  }
  const byRoot = new Map<string, Set<string>>();
  for (const entry of Array.isArray(data) ? (data as unknown[]) : []) {
    const { id, root, parent } = (entry ?? {}) as { id?: unknown; root?: unknown; parent?: unknown };
    if (typeof id !== 'string' || typeof root !== 'string' || (parent !== null && parent !== undefined)) continue;
    const names = byRoot.get(root) ?? new Set();
    if (names.size < LIMITS.aliasesPerPool) byRoot.set(root, names.add(id));
  }
  const groups = [...byRoot.values()].filter((names) => names.size > 1).slice(0, LIMITS.aliasesPerPool);
  return groups.map((names) => [...names].toSorted());
}

/** Groups that have a name in common are one. */
export function mergeGroups(lists: string[][]): string[][] {
  let groups: Set<string>[] = [];
  for (const names of new Map(lists.map((list) => [JSON.stringify(list), list])).values()) {
    const touching = groups.filter((group) => names.some((name) => group.has(name)));
    const all = new Set([...names, ...touching.flatMap((group) => [...group])]);
    groups = [...groups.filter((group) => !touching.includes(group)), all];
  }
  return groups.map((group) => [...group].toSorted()).toSorted(([a = ''], [b = '']) => (a < b ? -1 : 1));
}

export class ModelNames {
  readonly #pool: string;
  readonly #log: Log;
  readonly #events: ModelNamesEvents;
  readonly #asked = new Map<string, Asked>();
  #endpoints: readonly string[] = [];
  #groups: string[][] | null = null;

  constructor(pool: string, log: Log, events: ModelNamesEvents) {
    this.#pool = pool;
    this.#log = log;
    this.#events = events;
  }

  /** Groups of names that are one model; null while no engine has answered, when what was told before holds. */
  get groups(): string[][] | null {
    return this.#groups;
  }

  /** The same as gateways are told it. */
  get records(): AliasRecord[] | null {
    const records = this.#groups?.flatMap((names) => {
      const group = adapterHash(names[0] ?? '');
      return names.map((name) => ({ name: adapterHash(name), group }));
    });
    return records?.slice(0, LIMITS.aliasesPerPool) ?? null;
  }

  /** An engine answers: it is asked, unless this life of it was asked before. */
  look(endpoint: string, startedSeconds: number | null): void {
    const life = startedSeconds ?? 0;
    let asked = this.#asked.get(endpoint);
    if (asked === undefined || asked.startedSeconds !== life) {
      asked = { startedSeconds: life, looks: 0, tries: 0, isBusy: false, groups: null };
      this.#asked.set(endpoint, asked);
    }
    asked.looks++;
    if (asked.groups !== null || asked.isBusy) {
      if (asked.looks === LIMITS.modelsLooks && this.#groups === null) this.#merge();
      return;
    }
    // One that gave up is asked again now and then: it may have been refused for a reason that ends.
    if (asked.tries >= LIMITS.modelsTries && asked.looks % LIMITS.modelsAgainLooks !== 0) return;
    asked.tries++;
    asked.isBusy = true;
    void this.#ask(endpoint, asked);
  }

  /** An engine has begun another life without telling so. */
  restarted(endpoint: string): void {
    this.#asked.delete(endpoint);
  }

  /** Forgets engines that are gone. */
  set(endpoints: string[]): void {
    this.#endpoints = endpoints;
    const wanted = new Set(endpoints);
    for (const endpoint of this.#asked.keys()) if (!wanted.has(endpoint)) this.#asked.delete(endpoint);
    this.#merge();
  }

  async #ask(endpoint: string, asked: Asked): Promise<void> {
    try {
      asked.groups = readModels(await this.#events.fetch(endpoint, '/v1/models'));
      this.#events.asked('ok');
    } catch (error) {
      this.#events.asked('failed');
      if (asked.tries === LIMITS.modelsTries) {
        const reason = error instanceof FetchError ? error.reason : String(error);
        this.#log.info('engine does not tell its models', { pool: this.#pool, endpoint, reason });
      }
    } finally {
      asked.isBusy = false;
    }
    if (this.#asked.get(endpoint) === asked) this.#merge();
  }

  /** Every engine has answered or given up; those that are away are not waited for when another has been there for a while. */
  get #isSettled(): boolean {
    const all = [...this.#asked.values()];
    if (all.some(({ looks }) => looks >= LIMITS.modelsLooks)) return true;
    const isOver = ({ groups, tries, isBusy }: Asked): boolean =>
      groups !== null || (tries >= LIMITS.modelsTries && !isBusy);
    return all.every(isOver) && this.#endpoints.every((endpoint) => this.#asked.has(endpoint));
  }

  #merge(): void {
    if (this.#groups === null && !this.#isSettled) return;
    const known = [...this.#asked.values()].flatMap(({ groups }) => (groups === null ? [] : [groups]));
    // While all engines are away nothing is known that would change anything.
    if (known.length === 0) return;
    const groups = mergeGroups(known.flat());
    if (JSON.stringify(groups) === JSON.stringify(this.#groups)) return;
    const isNews = this.#groups !== null || groups.length > 0;
    this.#groups = groups;
    const names = groups.flat().length;
    if (isNews) this.#log.info('names that are one model', { pool: this.#pool, groups: JSON.stringify(groups) });
    if (names > LIMITS.aliasesPerPool) {
      this.#log.warn('too many names', { pool: this.#pool, names, max: LIMITS.aliasesPerPool });
    }
    // That there are none is news to a gateway that knew some from an earlier control plane.
    this.#events.changed();
  }
}
