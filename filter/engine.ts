// Entry of engine.wasm: the same engine that runs in the filter, without a host, for Node.
export * from './engine/node-keys';
export * from './engine/node-table';
export * from './engine/node-frame';
