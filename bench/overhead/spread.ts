// What is told of a figure that was measured in several rounds.

export interface Spread {
  min: number;
  median: number;
  max: number;
}

export function spread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const round = (value = 0): number => Math.round(value * 1000) / 1000;
  const half = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
  return { min: round(sorted[0]), median: round(median), max: round(sorted.at(-1)) };
}
