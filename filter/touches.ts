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
import { residencyPodClear, residencyTouchAt } from './engine/residency';
import { podOfId } from './pods';

/** Applies the current touch of the frame that was checked last. A pod that is not known (any more) is left out. */
export function applyTouch(pool: u32): void {
  const pod = podOfId(pool, touchPodId());
  if (pod < 0) return;
  if (touchFlags() & TOUCH_CLEAR) {
    residencyPodClear(pod, touchTimeMs());
    return;
  }
  residencyTouchAt(pod, touchTimeMs(), touchParentKey(), touchKeys(), touchWeights(), touchCount());
}
