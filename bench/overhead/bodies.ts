// Chat bodies of one size, in bytes: 64 groups that share three quarters of their prompt within the group, and a last quarter that no
// two requests share. The text is sentences of random words with a line feed about every 400 bytes.
import { Random } from '../../sim/random.ts';

const groups = 64;
const sharedShare = 0.75;
const digits = 12;
const variants = 2;
const words =
  'time year people way day man thing woman life child world school state family student group country problem hand part place case ' +
  'week company system program question work government number night point home water room mother area money story fact month lot ' +
  'right study book eye job word business issue side kind head house service friend father power hour game line end member law car';

/** About `bytes` of text, as JSON spells it. */
function prose(random: Random, bytes: number): string {
  const list = words.split(' ');
  const parts: string[] = [];
  let length = 0;
  let line = 0;
  while (length < bytes) {
    let part = list[random.below(list.length)] ?? '';
    line += part.length + 1;
    if (line > 400) {
      part += '.\\n';
      line = 0;
    } else part += ' ';
    parts.push(part);
    length += part.length;
  }
  // An escape is not to be cut in two.
  return parts.join('').slice(0, bytes).replace(/\\$/, ' ');
}

const head = '{"model":"qwen3-8b","messages":[{"role":"system","content":"';
const middle = '"},{"role":"user","content":"';
const tail = '"}],"max_tokens":256,"temperature":0.2,"stream":';

export class Bodies {
  readonly #bodies: Buffer[] = [];
  readonly #numberAt: number;
  #next = 0;

  constructor(sizeBytes: number) {
    const room = sizeBytes - head.length - middle.length - tail.length - 'false}'.length;
    if (room < 4 * digits) throw new Error(`a body of ${sizeBytes} bytes has no room for a prompt`);
    const shared = Math.floor(room * sharedShare);
    this.#numberAt = head.length + shared + middle.length;
    const random = new Random(sizeBytes);
    for (let group = 0; group < groups; group++) {
      const system = prose(random, shared);
      for (let i = 0; i < variants; i++) {
        const user = `${'0'.repeat(digits)}${prose(random, room - shared - digits)}`;
        this.#bodies.push(Buffer.from(`${head}${system}${middle}${user}${tail}false}`));
      }
    }
  }

  /** A body that was never sent before. It is good until a round of all bodies is over. */
  next(isStream: boolean): Buffer {
    const number = this.#next++;
    // Steps that have no divisor in common with the number of bodies visit them all.
    const body = this.#bodies[(number * 37) % this.#bodies.length]!;
    body.write(`${number}`.padStart(digits, '0'), this.#numberAt, 'latin1');
    body.write(isStream ? ' true}' : 'false}', body.length - 'false}'.length, 'latin1');
    return body;
  }
}
