// The texts of annotations and the values they stand for. Each parser takes exactly one spelling of a value and gives undefined for
// anything else: what is nearly right was meant otherwise.

type Parser<T> = (text: string) => T | undefined;

function oneOf<T extends string>(names: readonly T[]): Parser<T> {
  return (text) => names.find((name) => name === text);
}

function integer(min: number, max: number, step = 1): Parser<number> {
  return (text) => {
    const value = /^(0|[1-9]\d{0,9})$/.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max && value % step === 0 ? value : undefined;
  };
}

const plainNumber = /^(0|[1-9]\d{0,9})(\.\d{1,6})?$/;

function real(min: number, max: number): Parser<number> {
  return (text) => {
    const value = plainNumber.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max ? value : undefined;
  };
}

const unitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000 };

function durationMs(min: number, max: number): Parser<number> {
  return (text) => {
    const parts = /^([1-9]\d{0,7})(ms|s|m)$/.exec(text);
    const value = Number(parts?.[1]) * (unitsMs[parts?.[2] ?? ''] ?? Number.NaN);
    return value >= min && value <= max ? value : undefined;
  };
}

function showDuration(ms: number): string {
  const unit = ms % 60_000 === 0 ? 'm' : ms % 1_000 === 0 ? 's' : 'ms';
  return `${ms / (unitsMs[unit] as number)}${unit}`;
}

const boolean: Parser<boolean> = (text) => (text === 'true' ? true : text === 'false' ? false : undefined);

interface Weights {
  prefix: number;
  queue: number;
  kv: number;
}

/** PREFIX:QUEUE:KV; not all of them 0, because then nothing would decide. */
const weights: Parser<Weights> = (text) => {
  const parts = text.split(':').map(real(0, 1000));
  const [prefix, queue, kv] = parts;
  if (parts.length !== 3 || prefix === undefined || queue === undefined || kv === undefined) return undefined;
  return prefix + queue + kv > 0 ? { prefix, queue, kv } : undefined;
};

const showWeights = ({ prefix, queue, kv }: Weights): string => `${prefix}:${queue}:${kv}`;

export const parseSettings = { oneOf, integer, real, durationMs, boolean, weights, showDuration, showWeights };
