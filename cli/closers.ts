// Whatever a command opens it closes again, in reverse order, on every way out. One failing or hanging close does not keep the others from
// happening.

/** Longer than Envoy is given before it is killed. */
const closeMsMax = 8_000;

export class Closers {
  readonly #open: { name: string; close: () => unknown }[] = [];

  add(name: string, close: () => unknown): void {
    this.#open.push({ name, close });
  }

  /** Closes everything, last opened first; gives the names of what could not be closed. */
  async closeAll(): Promise<string[]> {
    const stuck: string[] = [];
    for (let entry = this.#open.pop(); entry !== undefined; entry = this.#open.pop()) {
      const { name, close } = entry;
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error('too slow')), closeMsMax);
      });
      try {
        await Promise.race([close(), late]);
      } catch {
        stuck.push(name);
      } finally {
        clearTimeout(timer);
      }
    }
    return stuck;
  }
}
