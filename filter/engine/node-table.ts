export * from './residency';
export * from './residency-export';
export * from './random';
