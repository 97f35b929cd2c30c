// The naive form of filter/engine/load-told.ts: it keeps everything that was ever sent and told, and adds it up anew each time.

interface History {
  /** What stood before each first token, by how many means have been told since. */
  sent: { tokens: number; age: number }[];
  told: { ttftMs: number; requests: number; age: number }[];
  slowness: number;
}

export class NaiveTold {
  readonly #pods: History[];

  constructor(pods: number) {
    this.#pods = Array.from({ length: pods }, () => ({ sent: [], told: [], slowness: 0 }));
  }

  send(pod: number, tokens: number): void {
    this.#pods[pod]!.sent.push({ tokens, age: 0 });
  }

  tell(pod: number, ttftMs: number, requests: number): void {
    const history = this.#pods[pod]!;
    if (ttftMs <= 0 || requests <= 0) return;
    history.told.push({ ttftMs, requests, age: 0 });
    const own = secondsPerToken([history]);
    if (own > 0) history.slowness = secondsPerToken(this.#pods) ** 0.75 * own ** 0.25;
    for (const one of [...history.sent, ...history.told]) one.age += 1;
  }

  slowness(pod: number): number {
    return this.#pods[pod]!.slowness;
  }
}

function secondsPerToken(pods: readonly History[]): number {
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  const sent = pods.flatMap((pod) => pod.sent);
  const told = pods.flatMap((pod) => pod.told);
  const share = ({ age }: { age: number }): number => 0.9 ** age;
  if (sent.length === 0 || told.length === 0) return 0;
  const tokens = sum(sent.map((one) => one.tokens * share(one))) / sum(sent.map(share));
  const weights = told.map((one) => one.requests * share(one));
  const ttftMs = sum(told.map((one, i) => one.ttftMs * weights[i]!)) / sum(weights);
  return ttftMs / 1000 / (tokens + 400);
}
