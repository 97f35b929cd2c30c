// The one table of annotations under warmpath.dev/: what there is, on which object, what it may say and what it does. The
// parser, `warmpath explain`, docs/ANNOTATIONS.md and the tests are all made from it; nothing else reads an annotation.
//
// Reading is strict. A key that is not in the table, a value that is not allowed, and values that contradict each other are
// faults: each is named, and the last good value of that key stays in force (the default, if there never was one).
import { parseSettings } from './annotation-values.ts';
import { POLICIES, POOL_MODES, TOOLS_POSITIONS } from './engine/frames.ts';
import type { PolicyName, PoolMode, ToolsPosition } from './engine/frames.ts';
import { PREFIX_HEADER_TYPE, readPrefixHeader, readSessionKey, SESSION_KEY_TYPE } from './engine/policies.ts';
import { KV_EVENTS_TYPE, readKvEvents } from './kv-events/sources.ts';
import { LIMITS } from './limits.ts';

export const ANNOTATION_PREFIX = 'warmpath.dev/';

/** What annotations of a pool's object can set. Whatever is not set is as the control plane was started with. */
export interface PoolSettings {
  mode: PoolMode;
  policy: PolicyName;
  weights: { prefix: number; queue: number; kv: number };
  sessionKey: string;
  prefixHeader: string;
  toolsPosition: ToolsPosition;
  blockBytes: number;
  windowBytes: number;
  bytesPerToken: number;
  capacityTokens: number;
  syncIntervalMs: number;
  scrapeIntervalMs: number;
  kvEvents: string;
}

/** What annotations of a pod can set, for all of its endpoints. */
export interface PodSettings {
  weight: number;
  drain: boolean;
  capacityTokens: number;
}

export type AnnotationObject = 'pool' | 'pod';

/** One row of the table. `field` is the setting that it sets. */
export interface Annotation<On extends AnnotationObject = AnnotationObject> {
  key: string;
  on: On;
  field: On extends 'pool' ? keyof PoolSettings : keyof PodSettings;
  /** What a value looks like, as documentation and messages say it: "... is not TYPE". */
  type: string;
  default: string;
  help: string;
  /** When and how a change takes effect. */
  applied: string;
  /** The value, or undefined when the text is not allowed. */
  parse(text: string): unknown;
  /** A setting as the text that would set it. */
  show(value: never): string;
}

const { oneOf, integer, real, durationMs, boolean, weights, showDuration, showWeights } = parseSettings;
const nextSync = 'with the next sync of each gateway';
const asText = (value: unknown): string => String(value);

export const POOL_ANNOTATIONS: readonly Annotation<'pool'>[] = [
  {
    key: 'mode',
    on: 'pool',
    field: 'mode',
    type: `one of ${POOL_MODES.join(', ')}`,
    default: 'active',
    help: 'off balances without looking at prompts; shadow decides and reports but steers nothing; active steers.',
    applied: nextSync,
    parse: oneOf(POOL_MODES),
    show: asText,
  },
  {
    key: 'policy',
    on: 'pool',
    field: 'policy',
    type: `one of ${POLICIES.join(', ')}`,
    default: 'prefill-cost',
    help: 'How a pod is chosen.',
    applied: nextSync,
    parse: oneOf(POLICIES),
    show: asText,
  },
  {
    key: 'weights',
    on: 'pool',
    field: 'weights',
    type: 'PREFIX:QUEUE:KV such as 3:3:2, numbers from 0 to 1000 and not all of them 0',
    default: '3:3:2',
    help: 'What the policy weighted gives for a held prompt, a short queue and free memory.',
    applied: nextSync,
    parse: weights,
    show: showWeights,
  },
  {
    key: 'session-header',
    on: 'pool',
    field: 'sessionKey',
    type: SESSION_KEY_TYPE,
    default: 'x-session-id',
    help: 'Where the policy session finds the name of the session. A request without one is picked for by prefill-cost.',
    applied: nextSync,
    parse: (text) => (readSessionKey(text) === undefined ? undefined : text),
    show: asText,
  },
  {
    key: 'prefix-hash-header',
    on: 'pool',
    field: 'prefixHeader',
    type: PREFIX_HEADER_TYPE,
    default: 'x-prefix-hash',
    help: "Where the policy prefix-header finds the client's own hash. A request without one is picked for by prefill-cost.",
    applied: nextSync,
    parse: (text) => (readPrefixHeader(text) === undefined ? undefined : text),
    show: asText,
  },
  {
    key: 'tools-position',
    on: 'pool',
    field: 'toolsPosition',
    type: `one of ${TOOLS_POSITIONS.join(', ')}`,
    default: 'auto',
    help: "Where the model's template puts tools: after the system text or first. auto goes by the model's name.",
    applied: `${nextSync}; keys of prompts with tools change`,
    parse: oneOf(TOOLS_POSITIONS),
    show: asText,
  },
  {
    key: 'block-bytes',
    on: 'pool',
    field: 'blockBytes',
    type: `a multiple of ${LIMITS.keyBlockBytesMin} from ${LIMITS.keyBlockBytesMin} to ${LIMITS.keyBlockBytesMax}`,
    default: '256',
    help: "Bytes of a prompt's first blocks; later blocks grow with their position.",
    applied: `${nextSync}; all keys change, so what is known of caches is learned anew`,
    parse: integer(LIMITS.keyBlockBytesMin, LIMITS.keyBlockBytesMax, LIMITS.keyBlockBytesMin),
    show: asText,
  },
  {
    key: 'window-bytes',
    on: 'pool',
    field: 'windowBytes',
    type: 'a whole number from 0 to 4294967295',
    default: '0',
    help: 'How many bytes of a prompt are looked at; 0 is the whole prompt.',
    applied: nextSync,
    parse: integer(0, 0xffff_ffff),
    show: asText,
  },
  {
    key: 'bytes-per-token',
    on: 'pool',
    field: 'bytesPerToken',
    type: 'a number from 0 to 64',
    default: '0',
    help: "Prompt bytes of a token until enough was learned from the answers' usage; 0 is 4.",
    applied: nextSync,
    parse: real(0, 64),
    show: asText,
  },
  {
    key: 'capacity-tokens',
    on: 'pool',
    field: 'capacityTokens',
    type: 'a whole number from 0 to 4294967295',
    default: '0',
    help: "Tokens that a pod's prefix cache holds; 0 is as each engine reports it.",
    applied: nextSync,
    parse: integer(0, 0xffff_ffff),
    show: asText,
  },
  {
    key: 'sync-interval',
    on: 'pool',
    field: 'syncIntervalMs',
    type: 'a duration from 1ms to 60s, such as 50ms or 1s',
    default: '50ms',
    help: 'How often a gateway reports and is told news, unless its plugin configuration says otherwise.',
    applied: nextSync,
    parse: durationMs(1, 60_000),
    show: showDuration,
  },
  {
    key: 'scrape-interval',
    on: 'pool',
    field: 'scrapeIntervalMs',
    type: 'a duration from 10ms to 10m, such as 500ms or 1s',
    default: '1s',
    help: "How often each engine's metrics are read.",
    applied: 'at once, in the control plane',
    parse: durationMs(10, 600_000),
    show: showDuration,
  },
  {
    key: 'kv-events',
    on: 'pool',
    field: 'kvEvents',
    type: KV_EVENTS_TYPE,
    default: 'off',
    help: "Listens to the engines' cache events over ZeroMQ; on asks each engine where it publishes them.",
    applied: 'at once, in the control plane',
    parse: (text) => (readKvEvents(text) === undefined ? undefined : text),
    show: asText,
  },
];

export const POD_ANNOTATIONS: readonly Annotation<'pod'>[] = [
  {
    key: 'weight',
    on: 'pod',
    field: 'weight',
    type: 'a number from 0.001 to 1000',
    default: '1',
    help: "The pod's share beside the others'; one twice as fast has 2.",
    applied: nextSync,
    parse: real(0.001, 1000),
    show: asText,
  },
  {
    key: 'drain',
    on: 'pod',
    field: 'drain',
    type: 'true or false',
    default: 'false',
    help: 'true: no new picks; requests under way end as usual.',
    applied: nextSync,
    parse: boolean,
    show: asText,
  },
  {
    key: 'capacity-tokens',
    on: 'pod',
    field: 'capacityTokens',
    type: 'a whole number from 0 to 4294967295',
    default: '0',
    help: "Tokens that this pod's prefix cache holds, before what the pool says; 0 is as the pool or the engine says.",
    applied: nextSync,
    parse: integer(0, 0xffff_ffff),
    show: asText,
  },
];

export const ANNOTATION_FAULTS = ['unknown-key', 'bad-value', 'conflict'] as const;

export interface AnnotationFault {
  /** With the prefix. */
  key: string;
  value: string;
  fault: (typeof ANNOTATION_FAULTS)[number];
  message: string;
}

/** One row of what is in force, for `explain`. */
export interface AnnotationStatus {
  key: string;
  /** What the object says, null when it says nothing. */
  value: string | null;
  inForce: string;
  source: 'annotation' | 'last-good' | 'default';
  fault: AnnotationFault['fault'] | null;
  message: string | null;
}

interface Rules<Settings> {
  rows: readonly Annotation[];
  /** Contradictions among values that are good each by itself: key of the one to refuse, and why. */
  conflicts(settings: Settings): { key: string; message: string }[];
}

const poolRules: Rules<PoolSettings> = {
  rows: POOL_ANNOTATIONS,
  conflicts: ({ windowBytes, blockBytes }) =>
    windowBytes > 0 && windowBytes < blockBytes
      ? [{ key: 'window-bytes', message: `${windowBytes} bytes are less than one block of ${blockBytes}` }]
      : [],
};
const podRules: Rules<PodSettings> = { rows: POD_ANNOTATIONS, conflicts: () => [] };

/** The annotations of one object, with the memory of what was good last. */
class Reading<Settings extends object> {
  readonly #rules: Rules<Settings>;
  readonly #defaults: Settings;
  #inForce: Settings;
  #faults: AnnotationFault[] = [];
  #status: AnnotationStatus[] = [];

  constructor(rules: Rules<Settings>, defaults: Settings) {
    this.#rules = rules;
    this.#defaults = defaults;
    this.#inForce = { ...defaults };
    this.take({});
  }

  get settings(): Settings {
    return this.#inForce;
  }

  get faults(): readonly AnnotationFault[] {
    return this.#faults;
  }

  /** A row for each key of the table, then one for each unknown key of the object. */
  get status(): readonly AnnotationStatus[] {
    return this.#status;
  }

  /** The annotations that are in force, whether the object still says so or not, as the object would say them. */
  get texts(): Record<string, string> {
    const inForce = this.#status.filter(({ source }) => source !== 'default');
    return Object.fromEntries(inForce.map(({ key, inForce: text }) => [key, text]));
  }

  /** Reads an object's annotations; keys without the prefix are not ours. */
  take(annotations: Readonly<Record<string, string>>): void {
    const before = this.#inForce as Record<string, unknown>;
    const next = { ...this.#defaults } as Record<string, unknown>;
    const faults = new Map<string, AnnotationFault>();
    const refuse = (key: string, fault: AnnotationFault['fault'], message: string): void => {
      const full = ANNOTATION_PREFIX + key;
      faults.set(key, { key: full, value: shortened(annotations[full] ?? ''), fault, message: `${full}: ${message}` });
    };
    for (const row of this.#rules.rows) {
      const text = annotations[ANNOTATION_PREFIX + row.key];
      if (text === undefined) continue;
      const value = row.parse(text);
      if (value === undefined) refuse(row.key, 'bad-value', `${JSON.stringify(shortened(text))} is not ${row.type}`);
      next[row.field] = value ?? before[row.field];
    }
    for (const { key, message } of this.#rules.conflicts(next as Settings)) {
      const row = this.#rules.rows.find((candidate) => candidate.key === key);
      if (row === undefined || faults.has(key)) continue;
      refuse(key, 'conflict', message);
      next[row.field] = before[row.field];
    }
    const unknown = Object.keys(annotations)
      .filter((key) => key.startsWith(ANNOTATION_PREFIX))
      .map((key) => key.slice(ANNOTATION_PREFIX.length))
      .filter((key) => !this.#rules.rows.some((row) => row.key === key))
      .slice(0, LIMITS.annotationsUnknown);
    const known = this.#rules.rows.map((row) => row.key).join(', ');
    for (const key of unknown) refuse(key, 'unknown-key', `there is no such annotation here; there are ${known}`);
    this.#inForce = next as Settings;
    this.#faults = [...faults.values()];
    this.#status = [
      ...this.#rules.rows.map((row) => this.#statusOf(row, annotations, faults.get(row.key))),
      ...unknown.map((key): AnnotationStatus => {
        const { value, fault, message } = faults.get(key) as AnnotationFault;
        return { key: ANNOTATION_PREFIX + key, value, inForce: '', source: 'default', fault, message };
      }),
    ];
  }

  #statusOf(row: Annotation, annotations: Readonly<Record<string, string>>, fault?: AnnotationFault): AnnotationStatus {
    const key = ANNOTATION_PREFIX + row.key;
    const value = annotations[key] ?? null;
    const show = (settings: Settings): string => row.show((settings as Record<string, unknown>)[row.field] as never);
    const inForce = show(this.#inForce);
    const isDefault = value === null || (fault !== undefined && inForce === show(this.#defaults));
    const source = isDefault ? 'default' : fault === undefined ? 'annotation' : 'last-good';
    const shown = value === null ? null : shortened(value);
    return { key, value: shown, inForce, source, fault: fault?.fault ?? null, message: fault?.message ?? null };
  }
}

/** Annotations can be 256 KiB long; what is shown of one is not. */
function shortened(text: string): string {
  return text.length > LIMITS.annotationShown ? `${text.slice(0, LIMITS.annotationShown)}...` : text;
}

/** The part of a pool's configuration that annotations may change. */
export function settingsOf(config: PoolSettings): PoolSettings {
  const { mode, policy, weights, toolsPosition, blockBytes, windowBytes, bytesPerToken, capacityTokens } = config;
  const { sessionKey, prefixHeader, syncIntervalMs, scrapeIntervalMs, kvEvents } = config;
  return {
    mode,
    policy,
    weights,
    sessionKey,
    prefixHeader,
    toolsPosition,
    blockBytes,
    windowBytes,
    bytesPerToken,
    capacityTokens,
    syncIntervalMs,
    scrapeIntervalMs,
    kvEvents,
  };
}

export class PoolAnnotations extends Reading<PoolSettings> {
  constructor(defaults: PoolSettings) {
    super(poolRules, defaults);
  }
}

export class PodAnnotations extends Reading<PodSettings> {
  constructor() {
    super(podRules, { weight: 1, drain: false, capacityTokens: 0 });
  }
}
