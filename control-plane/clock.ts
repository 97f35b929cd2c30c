// Time as a parameter: whatever asks for the time is given a clock, so that a test can hold it still.
export interface Clock {
  nowMs(): number;
}

export const systemClock: Clock = { nowMs: () => Date.now() };
