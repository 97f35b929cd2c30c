// The two things a proxy-wasm host offers through WASI only: the VM's environment and random bytes. As in env.ts, the
// file's name is the name of the import module. A result of 0 means success.

/* eslint-disable @typescript-eslint/naming-convention -- these are the names of the ABI */

export declare function random_get(ptr: usize, bytes: usize): u32;
export declare function environ_sizes_get(countOut: usize, bytesOut: usize): u32;
export declare function environ_get(pointersPtr: usize, bytesPtr: usize): u32;
