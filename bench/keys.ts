// The request reader: how long a chat body takes from its first byte to its keys, by size and by what its text is made of, and how
// long a chunk of a streamed answer takes when it is searched for token counts. Bytes of text for one nanosecond are GB/s.
//
//   node bench/keys.ts [--json] [--tiny]
import { loadEngine } from '../control-plane/engine/instance.ts';
import { localSecret } from '../control-plane/engine/keys.ts';
import { main, type Case } from './measure.ts';

interface KeysBench {
  memory: { buffer: ArrayBuffer };
  keysInput(): number;
  secretSet(pool: number, pointer: number): void;
  scanInit(streams: number, digestPages: number): void;
  scanOpen(pool: number, api: number): number;
  scanFeed(slot: number, pointer: number, lengthBytes: number): void;
  scanEnd(slot: number): number;
  scanClose(slot: number): void;
  chainRun(slot: number, toolsPosition: number): number;
  usageInit(streams: number): void;
  usageOpen(slot: number): void;
  usageFeed(slot: number, pointer: number, lengthBytes: number): void;
}

const API_CHAT = 2;
const HEAD_BYTES = 1024;
const CHUNK_BYTES = 32 * 1024;

const line = 'the quick brown fox jumps over the lazy dog and runs along its path to the river bank';
const texts: [name: string, text: string][] = [
  ['one line', `${line} `],
  ['lines of 86', `${line}\n`],
  ['code', '    if (name === "abc") {\n      return values.length;\n    }\n'],
  ['Russian', 'воде то людях для мостах '],
];

/** JSON spelling of about `bytes` of a text, cut between its repetitions. */
function spelt(text: string, bytes: number, isAscii: boolean): string {
  let once = JSON.stringify(text).slice(1, -1);
  if (isAscii) once = once.replaceAll(/[^ -~]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return once.repeat(Math.max(1, Math.floor(bytes / new TextEncoder().encode(once).length)));
}

export async function keysCases(tiny: boolean): Promise<Case[]> {
  const { exports: engine } = await loadEngine<KeysBench>();
  const input = engine.keysInput();
  const put = (text: string, at: number): number => {
    const bytes = new TextEncoder().encode(text);
    new Uint8Array(engine.memory.buffer).set(bytes, at);
    return bytes.length;
  };
  new Uint8Array(engine.memory.buffer).set(localSecret, input);
  engine.secretSet(0, input);
  engine.scanInit(4, 1024);
  engine.usageInit(4);

  /** A body that is a head, the same chunk of text `chunks` times, and a tail. */
  const body = (name: string, text: string, chunks: number, operations: number): Case => {
    const head = '{"model": "qwen3-8b", "messages": [{"role": "system", "content": "';
    const tail = '"}, {"role": "user", "content": "And now?"}], "temperature": 0.2, "stream": true}';
    return {
      name,
      operations,
      run: (count) => {
        const headBytes = put(head, input);
        const tailBytes = put(tail, input + headBytes);
        const textBytes = put(text, input + HEAD_BYTES);
        for (let i = 0; i < count; i++) {
          const slot = engine.scanOpen(0, API_CHAT);
          engine.scanFeed(slot, input, headBytes);
          for (let chunk = 0; chunk < chunks; chunk++) engine.scanFeed(slot, input + HEAD_BYTES, textBytes);
          engine.scanFeed(slot, input + headBytes, tailBytes);
          if (engine.scanEnd(slot) !== 0 || engine.chainRun(slot, 0) === 0) throw new Error(`${name}: no keys`);
          engine.scanClose(slot);
        }
      },
    };
  };
  const oneLine = texts[0]?.[1] ?? '';
  const cases = [
    body('1 KB, one line', spelt(oneLine, 850, false), 1, 5000),
    body('16 KB, one line', spelt(oneLine, 16 * 1024, false), 1, 2000),
    ...texts.map(([name, text]) => body(`128 KB, ${name}`, spelt(text, CHUNK_BYTES, false), 4, tiny ? 2 : 300)),
    body('128 KB, Russian as escapes', spelt('воде то людях для мостах ', CHUNK_BYTES, true), 4, tiny ? 2 : 100),
  ];
  const event = `data: {"id":"chatcmpl-bc430bd7486ef447","object":"chat.completion.chunk","created":1795954438,"model":"tiny","choices":[{"index":0,"delta":{"content":"\\n"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n`;
  cases.push({
    name: `usage in a ${event.length} byte event`,
    operations: 10_000,
    run: (count) => {
      const bytes = put(event, input);
      engine.usageOpen(0);
      for (let i = 0; i < count; i++) engine.usageFeed(0, input, bytes);
    },
  });
  return cases;
}

if (import.meta.main) await main('keys', keysCases);
