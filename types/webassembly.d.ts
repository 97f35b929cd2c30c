// The part of the WebAssembly interface that this repository uses. TypeScript has it only in the DOM library, whose other
// names (window, document, name ...) do not exist in Node.

declare namespace WebAssembly {
  type ExportValue = Function | Global | Memory | Table;
  type Exports = Record<string, ExportValue>;
  type ModuleImports = Record<string, Function | Global | Memory | Table>;
  type Imports = Record<string, ModuleImports>;

  class Module {
    constructor(bytes: ArrayBufferView | ArrayBuffer);
    static exports(module: Module): { name: string; kind: string }[];
    static imports(module: Module): { module: string; name: string; kind: string }[];
  }

  class Instance {
    constructor(module: Module, imports?: Imports);
    readonly exports: Exports;
  }

  class Memory {
    constructor(descriptor: { initial: number; maximum?: number; shared?: boolean });
    readonly buffer: ArrayBuffer;
    grow(pages: number): number;
  }

  class Global {
    constructor(descriptor: { value: string; mutable?: boolean }, value?: unknown);
    value: unknown;
  }

  class Table {
    readonly length: number;
  }

  class RuntimeError extends Error {}
  class CompileError extends Error {}
  class LinkError extends Error {}

  function validate(bytes: ArrayBufferView | ArrayBuffer): boolean;
  function compile(bytes: ArrayBufferView | ArrayBuffer): Promise<Module>;
  function instantiate(module: Module, imports?: Imports): Promise<Instance>;
  function instantiate(
    bytes: ArrayBufferView | ArrayBuffer,
    imports?: Imports,
  ): Promise<{ module: Module; instance: Instance }>;
}
