// What the simulated engines are: roofline estimates of a model on a card. The replica model, the planner and the comparison read them here.

export type EngineName = 'L4-8B' | 'H100-8B' | '2xH100-32B' | 'H100-32B';

/** A step takes overhead + max(weights, perToken * tokens) + perAttention * attention work + perContext * context tokens of decodes. */
export interface EngineConstants {
  overheadSeconds: number;
  weightsSeconds: number;
  perTokenSeconds: number;
  perAttentionSeconds: number;
  perContextSeconds: number;
  /** Most tokens that one step computes, prefill and decode together. */
  budgetTokens: number;
  sequencesMax: number;
  kvTokens: number;
  /** The longest prompt and answer together; longer ones are refused. */
  modelTokensMax: number;
}

export interface NamedEngine extends EngineConstants {
  name: EngineName;
}

/** A real engine as it was measured (sim/fit.ts): what its steps cost, and what a request costs before and after them. */
export interface FittedEngine {
  constants: EngineConstants;
  blockTokens: number;
  /** Milliseconds from the client to the engine's queue and back, gateway and HTTP server included. */
  frontMs: number;
}

export const ENGINES: Record<EngineName, NamedEngine> = {
  'L4-8B': {
    name: 'L4-8B',
    overheadSeconds: 0.004,
    weightsSeconds: 0.06,
    perTokenSeconds: 270e-6,
    perAttentionSeconds: 1.0e-8,
    perContextSeconds: 0.5e-6,
    budgetTokens: 2048,
    sequencesMax: 128,
    kvTokens: 31_000,
    modelTokensMax: 24_576,
  },
  'H100-8B': {
    name: 'H100-8B',
    overheadSeconds: 0.0025,
    weightsSeconds: 0.006,
    perTokenSeconds: 40e-6,
    perAttentionSeconds: 1.3e-9,
    perContextSeconds: 49e-9,
    budgetTokens: 8192,
    sequencesMax: 256,
    kvTokens: 400_000,
    modelTokensMax: 131_072,
  },
  '2xH100-32B': {
    name: '2xH100-32B',
    overheadSeconds: 0.004,
    weightsSeconds: 0.012,
    perTokenSeconds: 71e-6,
    perAttentionSeconds: 1.9e-9,
    perContextSeconds: 49e-9,
    budgetTokens: 8192,
    sequencesMax: 256,
    kvTokens: 300_000,
    modelTokensMax: 131_072,
  },
  'H100-32B': {
    name: 'H100-32B',
    overheadSeconds: 0.004,
    weightsSeconds: 0.013,
    perTokenSeconds: 107e-6,
    perAttentionSeconds: 3.7e-9,
    perContextSeconds: 97e-9,
    budgetTokens: 8192,
    sequencesMax: 256,
    kvTokens: 130_000,
    modelTokensMax: 65_536,
  },
};

export const ENGINE_NAMES = Object.keys(ENGINES) as EngineName[];

export function engineConstants(name: string): NamedEngine {
  const found = ENGINES[name as EngineName] as NamedEngine | undefined;
  if (found === undefined)
    throw new Error(`engine: unknown name ${JSON.stringify(name)}, expected one of ${ENGINE_NAMES.join(', ')}`);
  return found;
}
