// The host calls of the ABI over plain JavaScript objects. Each one decodes its arguments, asks the context that is
// current in its VM, and writes the answer back as Envoy does.

import { Status, decodePairs, encodePairs, fromUtf8, logLevels, propertyBytes } from './abi.ts';
import type { LogLevel } from './abi.ts';
import type { Context, StreamState } from './context.ts';
import type { VmMemory } from './memory.ts';
import type { Metrics, SharedData } from './store.ts';

/** What the imports need of their VM. */
export interface VmState {
  readonly memory: VmMemory;
  readonly shared: SharedData;
  readonly metrics: Metrics;
  readonly environment: Record<string, string>;
  readonly logLevel: LogLevel;
  /** The context whose callback runs, or the one that proxy_set_effective_context named. */
  readonly context: Context & Partial<StreamState>;
  nowMs(): number;
  random(bytes: number): Uint8Array;
  log(level: LogLevel, message: string): void;
  act(contextId: number): boolean;
  call(cluster: string, headers: [string, string][], body: Uint8Array, timeoutMs: number): number | undefined;
  contextDone(): boolean;
}

type HostCall = (...args: number[]) => number;

export function envImports(vm: VmState): Record<string, unknown> {
  const text = (ptr: number, bytes: number): string | undefined => {
    const region = vm.memory.read(ptr, bytes);
    return region && fromUtf8(region);
  };
  // Keys of shared data may hold any byte: one character each, so that ASCII keys read as they are.
  const binary = (ptr: number, bytes: number): string | undefined => {
    const region = vm.memory.read(ptr, bytes);
    return region && Buffer.from(region).toString('latin1');
  };
  const done = (isWritten: boolean): number => (isWritten ? Status.ok : Status.invalidMemoryAccess);
  const parts = (path: string): string => path.split('\0').join('.');

  const calls: Record<string, HostCall> = {
    proxy_log(level, ptr, bytes) {
      const name = logLevels[level!];
      const message = text(ptr!, bytes!);
      if (name === undefined) return Status.badArgument;
      if (message === undefined) return Status.invalidMemoryAccess;
      vm.log(name, message);
      return Status.ok;
    },
    proxy_get_log_level: (out) => done(vm.memory.writeU32(out!, logLevels.indexOf(vm.logLevel))),
    proxy_get_current_time_nanoseconds: (out) =>
      done(vm.memory.writeU64(out!, BigInt(Math.round(vm.nowMs() * 1e3)) * 1000n)),
    proxy_set_tick_period_milliseconds(periodMs) {
      vm.context.root.tick(periodMs!);
      return Status.ok;
    },
    proxy_set_effective_context: (id) => (vm.act(id!) ? Status.ok : Status.badArgument),
    proxy_done: () => (vm.contextDone() ? Status.ok : Status.notFound),

    proxy_get_property(ptr, bytes, ptrOut, bytesOut) {
      const path = text(ptr!, bytes!);
      if (path === undefined) return Status.invalidMemoryAccess;
      const value = vm.context.property(parts(path));
      return value === undefined ? Status.notFound : vm.memory.answer(propertyBytes(value), ptrOut!, bytesOut!);
    },
    proxy_set_property(ptr, bytes, valuePtr, valueBytes) {
      const path = text(ptr!, bytes!);
      const value = vm.memory.read(valuePtr!, valueBytes!);
      if (path === undefined || value === undefined) return Status.invalidMemoryAccess;
      return vm.context.setProperty(path, value) ? Status.ok : Status.notFound;
    },

    proxy_get_header_map_value(kind, ptr, bytes, ptrOut, bytesOut) {
      const name = text(ptr!, bytes!);
      if (name === undefined) return Status.invalidMemoryAccess;
      const found = vm.context.maps.get(kind!)?.filter(([key]) => key === name.toLowerCase());
      if (!found || found.length === 0) return Status.notFound;
      const value = found.map(([, one]) => one).join(',');
      return vm.memory.answer(propertyBytes(value), ptrOut!, bytesOut!);
    },
    proxy_get_header_map_pairs(kind, ptrOut, bytesOut) {
      const map = vm.context.maps.get(kind!);
      return map ? vm.memory.answer(encodePairs(map), ptrOut!, bytesOut!) : Status.notFound;
    },
    proxy_get_header_map_size(kind, out) {
      const map = vm.context.maps.get(kind!);
      if (!map) return Status.notFound;
      return done(
        vm.memory.writeU32(
          out!,
          map.flat().reduce((sum, part) => sum + Buffer.byteLength(part), 0),
        ),
      );
    },
    proxy_add_header_map_value: (kind, ...args) => changeMap(kind!, args, 'add'),
    proxy_replace_header_map_value: (kind, ...args) => changeMap(kind!, args, 'replace'),
    proxy_remove_header_map_value: (kind, ...args) => changeMap(kind!, [...args, 0, 0], 'remove'),

    proxy_get_buffer_bytes(kind, start, bytesMax, ptrOut, bytesOut) {
      const buffer = vm.context.buffers.get(kind!);
      if (!buffer) return Status.notFound;
      const from = start! >>> 0;
      if (from > buffer.length) return Status.invalidMemoryAccess;
      const value = buffer.subarray(from, from + (bytesMax! >>> 0));
      // For no bytes Envoy writes nothing at all.
      return value.length === 0 ? Status.ok : vm.memory.answer(value, ptrOut!, bytesOut!);
    },
    proxy_get_buffer_status(kind, bytesOut, flagsOut) {
      const buffer = vm.context.buffers.get(kind!);
      if (!buffer) return Status.notFound;
      return done(vm.memory.writeU32(bytesOut!, buffer.length) && vm.memory.writeU32(flagsOut!, 0));
    },
    // Warmpath never changes a body; a test that meets this has found a mistake.
    proxy_set_buffer_bytes: () => Status.unimplemented,

    proxy_continue_stream(stream) {
      if (!vm.context.resume) return Status.unimplemented;
      vm.context.resume(stream!);
      return Status.ok;
    },
    proxy_close_stream: () => Status.unimplemented,
    proxy_send_local_response(status, detailsPtr, detailsBytes, bodyPtr, bodyBytes, pairsPtr, pairsBytes) {
      const details = text(detailsPtr!, detailsBytes!);
      const body = text(bodyPtr!, bodyBytes!);
      const headers = vm.memory.read(pairsPtr!, pairsBytes!);
      if (details === undefined || body === undefined || !headers) return Status.invalidMemoryAccess;
      if (!vm.context.respondLocally) return Status.unimplemented;
      vm.context.respondLocally({ status: status!, details, body, headers: decodePairs(headers) });
      return Status.ok;
    },

    proxy_get_shared_data(ptr, bytes, ptrOut, bytesOut, casOut) {
      const key = binary(ptr!, bytes!);
      if (key === undefined) return Status.invalidMemoryAccess;
      const value = vm.shared.get(key);
      if (!value) return Status.notFound;
      const status = vm.memory.answer(value.bytes, ptrOut!, bytesOut!);
      return status === Status.ok ? done(vm.memory.writeU32(casOut!, value.cas)) : status;
    },
    proxy_set_shared_data(ptr, bytes, valuePtr, valueBytes, cas) {
      const key = binary(ptr!, bytes!);
      const value = vm.memory.read(valuePtr!, valueBytes!);
      if (key === undefined || !value) return Status.invalidMemoryAccess;
      return vm.shared.set(key, value, cas! >>> 0);
    },

    proxy_http_call(
      clusterPtr,
      clusterBytes,
      pairsPtr,
      pairsBytes,
      bodyPtr,
      bodyBytes,
      _tPtr,
      _tBytes,
      timeoutMs,
      out,
    ) {
      const cluster = text(clusterPtr!, clusterBytes!);
      const headers = vm.memory.read(pairsPtr!, pairsBytes!);
      const body = vm.memory.read(bodyPtr!, bodyBytes!);
      if (cluster === undefined || !headers || !body) return Status.invalidMemoryAccess;
      const id = vm.call(cluster, decodePairs(headers), body, timeoutMs! >>> 0);
      vm.memory.writeU32(out!, id ?? 0);
      return id === undefined ? Status.badArgument : Status.ok;
    },

    proxy_define_metric(kind, ptr, bytes, out) {
      const name = text(ptr!, bytes!);
      if (name === undefined) return Status.invalidMemoryAccess;
      const id = vm.metrics.define(kind!, name);
      return id === undefined ? Status.badArgument : done(vm.memory.writeU32(out!, id));
    },
    proxy_get_metric(id, out) {
      const value = vm.metrics.read(id!);
      return value === undefined ? Status.notFound : done(vm.memory.writeU64(out!, BigInt.asUintN(64, value)));
    },
  };

  function changeMap(kind: number, args: number[], how: 'add' | 'replace' | 'remove'): number {
    const name = text(args[0]!, args[1]!)?.toLowerCase();
    const value = text(args[2]!, args[3]!);
    if (name === undefined || value === undefined) return Status.invalidMemoryAccess;
    const map = vm.context.maps.get(kind);
    if (!map) return Status.notFound;
    if (how !== 'add') map.splice(0, map.length, ...map.filter(([key]) => key !== name));
    if (how !== 'remove') map.push([name, value]);
    return Status.ok;
  }

  return {
    ...calls,
    proxy_increment_metric: (id: number, offset: bigint) => vm.metrics.add(id, offset),
    proxy_record_metric: (id: number, value: bigint) => vm.metrics.record(id, BigInt.asUintN(64, value)),
  };
}

export function wasiImports(vm: VmState): Record<string, unknown> {
  const lines = Object.entries(vm.environment).map(([name, value]) => Buffer.from(`${name}=${value}\0`));
  return {
    random_get: (ptr: number, bytes: number) => (vm.memory.write(ptr, vm.random(bytes)) ? 0 : 21),
    environ_sizes_get(countOut: number, bytesOut: number) {
      const bytes = lines.reduce((sum, line) => sum + line.length, 0);
      return vm.memory.writeU32(countOut, lines.length) && vm.memory.writeU32(bytesOut, bytes) ? 0 : 21;
    },
    environ_get(pointersPtr: number, bytesPtr: number) {
      let at = bytesPtr;
      for (const [i, line] of lines.entries()) {
        if (!vm.memory.writeU32(pointersPtr + i * 4, at) || !vm.memory.write(at, line)) return 21;
        at += line.length;
      }
      return 0;
    },
  };
}
