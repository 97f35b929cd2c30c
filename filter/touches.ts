// Applying a touch that somebody else made, a sibling worker or another gateway, to this VM's table.
import {
  touchCount,
  touchFlags,
  touchKeys,
  touchParentKey,
  touchPodId,
  touchTimeMs,
  touchWeights,
  TOUCH_CLEAR,
} from './engine/frame';
import { loadCold } from './engine/load';
import { poolBytesPerToken } from './engine/pool';
import { residencyPodClear, residencyTouchAt } from './engine/residency';
import { podOfId } from './pods';

/** A clock ahead of ours by more than this does not get to keep its blocks the newest. */
const AHEAD_MS_MAX: f64 = 1000;

/** Applies the current touch of the frame that was checked last. A pod that is not known (any more) is left out. */
export function applyTouch(pool: u32, nowMs: f64): void {
  const pod = podOfId(pool, touchPodId());
  if (pod < 0) return;
  const timeMs = min(touchTimeMs(), nowMs + AHEAD_MS_MAX);
  if (touchFlags() & TOUCH_CLEAR) {
    residencyPodClear(pod, timeMs);
    return;
  }
  const bytes = residencyTouchAt(pod, timeMs, touchParentKey(), touchKeys(), touchWeights(), touchCount());
  // What stands behind a known block is a prompt's answer, which nobody prefills.
  if (touchParentKey() == 0) loadCold(pod, <f64>bytes / poolBytesPerToken(pool), timeMs);
}
