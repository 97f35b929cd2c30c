// The states of the byte machine that scan.ts and strings.ts make up together.
import { AT_REASON } from './record';
import { REASON_NONE } from './reasons';

export const STATE_START: u32 = 0; // the first byte, which may begin a byte order mark
export const STATE_BOM_2: u32 = 1;
export const STATE_BOM_3: u32 = 2;
export const STATE_VALUE: u32 = 3;
export const STATE_FIRST_ELEMENT: u32 = 4;
export const STATE_FIRST_KEY: u32 = 5;
export const STATE_KEY: u32 = 6;
export const STATE_COLON: u32 = 7;
export const STATE_AFTER: u32 = 8;
export const STATE_STRING: u32 = 9;
export const STATE_ESCAPE: u32 = 10;
export const STATE_UNICODE: u32 = 11;
export const STATE_AFTER_HIGH: u32 = 12;
export const STATE_NUMBER: u32 = 13;
export const STATE_LITERAL: u32 = 14;

/** Stops the reading of a body; the first reason counts. */
export function fail(rec: usize, reason: u32): void {
  if (load<u32>(rec, AT_REASON) == REASON_NONE) store<u32>(rec, reason, AT_REASON);
}
