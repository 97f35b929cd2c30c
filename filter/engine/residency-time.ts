// Times as the table keeps them: whole numbers of 1/64 ms.
import { TIME_UNITS_MAX } from './limits';

const TIME_UNITS_PER_MS: f64 = 64;

export function timeUnits(timeMs: f64): u64 {
  const units = timeMs * TIME_UNITS_PER_MS;
  if (!(units > 0)) return 0;
  return units >= TIME_UNITS_MAX ? <u64>TIME_UNITS_MAX : <u64>units;
}
export function timeMsOf(units: u64): f64 {
  return <f64>units / TIME_UNITS_PER_MS;
}
