// A pool's policy to a pick: which pod a prompt goes to, and which two come next if that one cannot be reached.
//
// Policies are plain functions over the candidates (policy-candidates.ts), one file a family. Each gives every candidate a
// cost, and the lowest wins. All randomness comes from random.ts, so the same seed gives the same picks.
//
// residencyLookup() for the same pool must have run before: policies read matchBytes().
import { POOLS_MAX } from './limits';
import { collect, picked, pickedCount, pickNone, takeCheapest } from './policy-candidates';
import { rendezvous, rendezvousBounded } from './policy-hash';
import { leastRequest, roundRobin, roundRobinTake } from './policy-plain';
import { prefillCost, SPREAD_TOKENS } from './policy-prefill-cost';
import { prefillCostFirst } from './policy-prefill-cost-first';
import { uncachedOf } from './policy-tokens';
import { weighted } from './policy-weighted';
import {
  POLICY_FIRST_BLOCK_HASH,
  POLICY_LEAST_REQUEST,
  POLICY_PREFILL_COST,
  POLICY_PREFILL_COST_FIRST,
  POLICY_PREFIX_HEADER,
  POLICY_ROUND_ROBIN,
  POLICY_SESSION,
  POLICY_WEIGHTED,
  policyHasKey,
  poolBytesPerToken,
} from './pool';

let pickedPool: u32 = 0;
let pickedBytes: u32 = 0;

/** What stands in for a policy that goes by a key, for a request that brings none. */
function policyFor(policy: u32, key: u64): u32 {
  if (key != 0) return policy;
  if (policy == POLICY_FIRST_BLOCK_HASH) return POLICY_LEAST_REQUEST;
  return policyHasKey(policy) ? POLICY_PREFILL_COST : policy;
}

/**
 * Picks for a prompt of so many bytes, by a policy: up to three pods, best first, then the next best by cost. Returns how
 * many, 0 when no pod is ready. `key` is what the policy goes by: the first block's key, or what came with the request; 0 =
 * there is none. `adapter` is adapterHashOf() the asked model, 0 = not known.
 */
export function policyPick(pool: u32, policy: u32, promptBytes: u32, key: u64, adapter: u32, nowMs: f64): u32 {
  pickNone();
  if (pool >= POOLS_MAX) return 0;
  pickedPool = pool;
  pickedBytes = promptBytes;
  if (collect(pool, nowMs) == 0) return 0;
  switch (policyFor(policy, key)) {
    case POLICY_ROUND_ROBIN:
      roundRobin();
      takeCheapest(0);
      roundRobinTake();
      break;
    case POLICY_LEAST_REQUEST:
      leastRequest(nowMs);
      takeCheapest(0);
      break;
    case POLICY_FIRST_BLOCK_HASH:
    case POLICY_SESSION:
      rendezvous(key);
      takeCheapest(0);
      break;
    case POLICY_PREFIX_HEADER:
      rendezvousBounded(key, nowMs);
      takeCheapest(0);
      break;
    case POLICY_WEIGHTED:
      weighted(pool, promptBytes, nowMs);
      takeCheapest(0);
      break;
    case POLICY_PREFILL_COST_FIRST:
      prefillCostFirst(pool, promptBytes, nowMs);
      takeCheapest(SPREAD_TOKENS);
      break;
    default:
      prefillCost(pool, promptBytes, adapter, nowMs);
      takeCheapest(0);
  }
  return pickedCount;
}

/** Slot of the i-th best pod of the last pick. */
export function pickedPod(i: u32): u32 {
  return i < pickedCount ? picked[i] : 0;
}
/** How many tokens of the prompt it must compute: what loadDispatch() is to be given. */
export function pickedUncached(i: u32): u32 {
  return i < pickedCount ? <u32>uncachedOf(picked[i], pickedBytes, poolBytesPerToken(pickedPool)) : 0;
}
