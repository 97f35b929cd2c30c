// How many bytes of prompt make a token, as one pool's engines count. Capacities are told in tokens and the table counts bytes, so everything
// that is held depends on it. It is learned from usage; a configured ratio is only what is taken until enough has been seen.

/** Tokens counted with their bytes before the ratio is believed. */
const TOKENS_MIN = 1_000;
/** With more than so many, both sums are halved: the newer half of the traffic counts as much as all before it. */
const TOKENS_MAX = 100_000_000;
/** What another control plane's gateways have learned counts like so many tokens of each of them. */
const ADOPTED_TOKENS_MAX = 100_000;
const RATIO_MIN = 0.25;
const RATIO_MAX = 64;
/** Gateways learn by themselves; they are told when what they all see together has moved by so much. */
const DRIFT_MAX = 0.05;

export class Ratio {
  #bytes = 0;
  #tokens = 0;
  #told = 0;

  /** Bytes per token as learned, 0 = too little has been seen. */
  get learned(): number {
    if (this.#tokens < TOKENS_MIN) return 0;
    return Math.min(Math.max(this.#bytes / this.#tokens, RATIO_MIN), RATIO_MAX);
  }

  learn(bytes: number, tokens: number): void {
    this.#bytes += bytes;
    this.#tokens += tokens;
    if (this.#tokens <= TOKENS_MAX) return;
    this.#bytes /= 2;
    this.#tokens /= 2;
  }

  /** Takes over what a gateway knows from the time before this control plane. */
  adopt(bytesPerToken: number, tokens: number): void {
    const weight = Math.min(tokens, ADOPTED_TOKENS_MAX);
    if (bytesPerToken > 0) this.learn(bytesPerToken * weight, weight);
  }

  /** Whether the ratio has moved so far that gateways must hear of it; it then counts as told. */
  moved(): boolean {
    const { learned } = this;
    if (learned === 0 || Math.abs(learned / this.#told - 1) <= DRIFT_MAX) return false;
    this.#told = learned;
    return true;
  }
}
