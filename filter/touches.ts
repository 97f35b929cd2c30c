// Applying a touch that somebody else made, a sibling worker or another gateway, to this VM's table, and how whoever missed one finds it.
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
import { WHOLE_EVERY } from './engine/limits';
import { loadCold } from './engine/load';
import { poolBytesPerToken } from './engine/pool';
import { mix64 } from './engine/random';
import { residencyAnswerKey, residencyOrphans, residencyPodClear, residencyTouchAt } from './engine/residency';
import { podOfId } from './pods';

/** A clock ahead of ours by more than this does not get to keep its blocks the newest. */
const AHEAD_MS_MAX: f64 = 1000;

/**
 * Applies the current touch of the frame that was checked last. A pod that is not known (any more) is left out. Returns false where the
 * block that the touch stands behind is not known here: its chain is found when it is told from the first block on.
 */
export function applyTouch(pool: u32, nowMs: f64): bool {
  const pod = podOfId(pool, touchPodId());
  if (pod < 0) return true;
  const timeMs = min(touchTimeMs(), nowMs + AHEAD_MS_MAX);
  if (touchFlags() & TOUCH_CLEAR) {
    residencyPodClear(pod, timeMs);
    return true;
  }
  const orphans = residencyOrphans();
  const bytes = residencyTouchAt(pod, timeMs, touchParentKey(), touchKeys(), touchWeights(), touchCount());
  // Nobody prefills an answer.
  const isAnswer = touchCount() == 1 && load<u64>(touchKeys()) == residencyAnswerKey(touchParentKey());
  if (!isAnswer) loadCold(pod, <f64>bytes / poolBytesPerToken(pool), timeMs);
  return residencyOrphans() == orphans;
}

/**
 * Whether a chain that has been told up to a key a moment ago is told from its first block on all the same, as one in WHOLE_EVERY is. As long as
 * its answers keep a chain new here, whoever missed its beginning would else never hear of it.
 */
export function tellsWhole(key: u64, timeMs: f64): bool {
  return mix64(key + reinterpret<u64>(timeMs)) % WHOLE_EVERY == 0;
}
