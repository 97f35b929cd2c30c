// Brings build/engine.wasm to life: compiled once per process, with a memory of its own for every caller.
//
// The engine has no host: no clock, no randomness and no I/O but what it is given. The one import is `abort`, which a
// failed check in the module would call; it becomes a JavaScript error. The facades (keys.ts, table.ts, frames.ts) name the exports
// that they use.
import { readFile } from 'node:fs/promises';

interface WasmModule {
  readonly wasmModule: unique symbol;
}

/** As much of the WebAssembly namespace as is needed here; neither TypeScript's es2024 library nor @types/node has it. */
declare const WebAssembly: {
  compile(bytes: Uint8Array): Promise<WasmModule>;
  instantiate(
    module: WasmModule,
    imports: Record<string, Record<string, (...values: number[]) => void>>,
  ): Promise<{ readonly exports: object }>;
};

export interface EngineMemory {
  /** It is replaced when the memory grows, so it must be read anew after each call that may allocate. */
  readonly buffer: ArrayBuffer;
}

/** One engine with its own memory. `exports` is what a facade's own interface says it is. */
export interface EngineInstance<Exports extends object = object> {
  readonly exports: Exports & { readonly memory: EngineMemory };
}

const path = new URL('../../build/engine.wasm', import.meta.url);

let compiled: Promise<WasmModule> | undefined;

async function compile(): Promise<WasmModule> {
  let bytes: Uint8Array;
  try {
    bytes = await readFile(path);
  } catch (error) {
    throw new Error('build/engine.wasm cannot be read; `npm run build` makes it', { cause: error });
  }
  return WebAssembly.compile(bytes);
}

/** A string of the engine's memory: UTF-16 with its length in bytes before it. */
function stringAt(memory: EngineMemory | undefined, pointer: number): string {
  const at = pointer >>> 0;
  if (memory === undefined || at === 0) return '';
  const lengthBytes = new DataView(memory.buffer).getUint32(at - 4, true);
  return new TextDecoder('utf-16le').decode(new Uint8Array(memory.buffer, at, lengthBytes));
}

/** A new engine. `Exports` names the functions that the caller will use. */
export async function loadEngine<Exports extends object = object>(): Promise<EngineInstance<Exports>> {
  compiled ??= compile();
  let module: WasmModule;
  try {
    module = await compiled;
  } catch (error) {
    compiled = undefined;
    throw error;
  }
  const own: { memory?: EngineMemory } = {};
  const abort = (message: number, file: number, line: number, column: number): void => {
    throw new Error(`engine.wasm: ${stringAt(own.memory, message)} at ${stringAt(own.memory, file)}:${line}:${column}`);
  };
  const instance = await WebAssembly.instantiate(module, { env: { abort } });
  const exports = instance.exports as Exports & { readonly memory: EngineMemory };
  own.memory = exports.memory;
  return { exports };
}
