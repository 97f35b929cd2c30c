// The outcomes of a frame as plain objects: what gateways count of each pod, and of each kind of request, which is an API and a
// language. Read and written by the engine itself, like all of a frame (frames.ts).
import type { FrameExports } from './frame-exports.ts';

export const OUTCOME_COUNTERS = [
  'ok',
  'clientErrors',
  'serverErrors',
  'elsewhere',
  'promptBytes',
  'promptTokens',
  'predictedCachedTokens',
  'actualCachedTokens',
  'completionTokens',
  'ttftCount',
  'confirmed',
  'contradicted',
  'exceeded',
] as const;
export type OutcomeCounter = (typeof OUTCOME_COUNTERS)[number];
export type OutcomeRecord = { podId: number; resets: number; ttftMsSum: number } & Record<OutcomeCounter, number>;

export const KIND_APIS = ['chat', 'completions', 'responses', 'messages'] as const;
/** By the script of most of the prompt's letters; `other` is any further one, and a prompt without letters. */
export const LANGUAGES = ['other', 'latin', 'cyrillic', 'cjk'] as const;

/** Upper bounds of the buckets of predicted minus actual cached tokens; a last bucket takes what is above all of them. */
export const ERROR_BOUNDS = [-4096, -1024, -256, -64, -16, 16, 64, 256, 1024, 4096] as const;

export const KIND_COUNTERS = [
  'requests',
  'promptBytes',
  'promptTokens',
  'estimatedTokens',
  'predictedCachedTokens',
  'actualCachedTokens',
  'close',
] as const;
export type KindCounter = (typeof KIND_COUNTERS)[number];
export type OutcomeKindRecord = {
  api: (typeof KIND_APIS)[number];
  language: (typeof LANGUAGES)[number];
  /** Requests by their error, one for each of ERROR_BOUNDS and the last. */
  errors: number[];
} & Record<KindCounter, number>;

/** Totals of one sender since its incarnation began, and what it has learned of bytes per token, 0 = nothing. */
export interface OutcomesRecord {
  bytesPerToken: number;
  /** Tokens of usage behind that ratio. */
  ratioTokens: number;
  pods: OutcomeRecord[];
  kinds: OutcomeKindRecord[];
}

/** One shape for all: hundreds of thousands of these are kept and compared. */
const NO_OUTCOME: OutcomeRecord = {
  podId: 0,
  resets: 0,
  ttftMsSum: 0,
  ok: 0,
  clientErrors: 0,
  serverErrors: 0,
  elsewhere: 0,
  promptBytes: 0,
  promptTokens: 0,
  predictedCachedTokens: 0,
  actualCachedTokens: 0,
  completionTokens: 0,
  ttftCount: 0,
  confirmed: 0,
  contradicted: 0,
  exceeded: 0,
};

const total = (value: bigint): number => Number(BigInt.asUintN(64, value));

export function readOutcomes(wasm: FrameExports): OutcomesRecord {
  return {
    bytesPerToken: wasm.outcomesBytesPerToken(),
    ratioTokens: wasm.outcomesRatioTokens() >>> 0,
    pods: Array.from({ length: wasm.outcomeCount() }, (_, i) => readPod(wasm, i)),
    kinds: Array.from({ length: wasm.outcomeKindCount() }, (_, i) => readKind(wasm, i)),
  };
}

function readPod(wasm: FrameExports, i: number): OutcomeRecord {
  const record: OutcomeRecord = { ...NO_OUTCOME };
  record.podId = wasm.outcomePodId(i) >>> 0;
  record.resets = wasm.outcomeResets(i) >>> 0;
  record.ttftMsSum = wasm.outcomeTtftMsSum(i);
  for (let index = 0; index < OUTCOME_COUNTERS.length; index++) {
    record[OUTCOME_COUNTERS[index] as OutcomeCounter] = total(wasm.outcomeTotal(i, index));
  }
  return record;
}

function readKind(wasm: FrameExports, i: number): OutcomeKindRecord {
  const at = (index: number): number => total(wasm.outcomeKindTotal(i, index));
  const totals = Object.fromEntries(KIND_COUNTERS.map((counter, index) => [counter, at(index)])) as Record<
    KindCounter,
    number
  >;
  return {
    api: KIND_APIS[wasm.outcomeKindApi(i)] ?? 'chat',
    language: LANGUAGES[wasm.outcomeKindLanguage(i)] ?? 'other',
    errors: Array.from({ length: ERROR_BOUNDS.length + 1 }, (_, bucket) => at(KIND_COUNTERS.length + bucket)),
    ...totals,
  };
}

/** Writes the section; false when the frame has no room for all of it. */
export function writeOutcomes(wasm: FrameExports, outcomes: OutcomesRecord): boolean {
  if (wasm.writeOutcomes(outcomes.bytesPerToken, outcomes.ratioTokens) === 0) return false;
  return outcomes.pods.every((pod) => writePod(wasm, pod)) && outcomes.kinds.every((kind) => writeKind(wasm, kind));
}

function writePod(wasm: FrameExports, pod: OutcomeRecord): boolean {
  if (wasm.writeOutcome(pod.podId, pod.resets, pod.ttftMsSum) === 0) return false;
  OUTCOME_COUNTERS.forEach((counter, index) => {
    wasm.writeOutcomeTotal(index, BigInt(pod[counter]));
  });
  return true;
}

function writeKind(wasm: FrameExports, kind: OutcomeKindRecord): boolean {
  if (wasm.writeOutcomeKind(KIND_APIS.indexOf(kind.api), LANGUAGES.indexOf(kind.language)) === 0) return false;
  [...KIND_COUNTERS.map((counter) => kind[counter]), ...kind.errors].forEach((value, index) => {
    wasm.writeOutcomeTotal(index, BigInt(value));
  });
  return true;
}
