// Claims: how VMs that know nothing of each other share out segments and elect a leader.
//
// A claim is one shared-data value. Whoever holds it renews it before its lease runs out; a claim whose lease ran out may
// be taken by anybody. All changes are compare-and-set, so that of two takers one wins, and a holder that slept too
// long (a stopped thread, a trapped VM) finds out at its next renewal that it is no longer the holder.
//
//   0      4      8            16           24
//   | ver  | 0    | nonce u64  | expiry f64 ms |
import { sharedData, sharedDataCreate, sharedDataSwap, resultBytes, resultCas, resultPtr } from './proxy-wasm/host';
import { STATUS_NOT_FOUND, STATUS_OK } from './proxy-wasm/status';
import { Bytes } from './bytes';

const CLAIM_VERSION: u32 = 1;
const CLAIM_BYTES: usize = 24;

const value: usize = memory.data(24, 8);

/** One claim as seen by one VM. */
export class Claim {
  held: bool = false;
  /** When the lease that this VM holds runs out, Unix ms. */
  expiryMs: f64 = 0;

  /** Takes the claim named `key` if it is free, or renews it if it is held. Returns whether it is held now. */
  hold(key: Bytes, nonce: u64, nowMs: f64, leaseMs: f64): bool {
    const status = sharedData(key.ptr, key.length);
    if (status == STATUS_NOT_FOUND) {
      this.write(nonce, nowMs + leaseMs);
      this.held = sharedDataCreate(key.ptr, key.length, value, CLAIM_BYTES) == STATUS_OK;
    } else if (status == STATUS_OK && this.free(nonce, nowMs, leaseMs)) {
      const cas = resultCas;
      this.write(nonce, nowMs + leaseMs);
      this.held = sharedDataSwap(key.ptr, key.length, value, CLAIM_BYTES, cas) == STATUS_OK;
    } else {
      this.held = false;
    }
    if (this.held) this.expiryMs = nowMs + leaseMs;
    return this.held;
  }

  /** The clock was set back: what is left of the lease is not known, so it is to be renewed. */
  restartClock(): void {
    this.expiryMs = 0;
  }

  /** Gives the claim up, so that the next taker need not wait for the lease to run out. */
  release(key: Bytes, nonce: u64): void {
    if (!this.held) return;
    this.held = false;
    if (sharedData(key.ptr, key.length) != STATUS_OK || resultBytes != CLAIM_BYTES) return;
    if (load<u64>(resultPtr + 8) != nonce) return;
    const cas = resultCas;
    this.write(nonce, 0);
    sharedDataSwap(key.ptr, key.length, value, CLAIM_BYTES, cas);
  }

  /**
   * Whether the value that was just read may be taken: ours, run out, or unreadable. A lease that ends later than any could was
   * written before the clock was set back.
   */
  private free(nonce: u64, nowMs: f64, leaseMs: f64): bool {
    if (resultBytes != CLAIM_BYTES || load<u32>(resultPtr) != CLAIM_VERSION) return true;
    const left = load<f64>(resultPtr + 16) - nowMs;
    return load<u64>(resultPtr + 8) == nonce || !(left > 0 && left <= 2 * leaseMs);
  }

  private write(nonce: u64, expiryMs: f64): void {
    store<u32>(value, CLAIM_VERSION);
    store<u32>(value + 4, 0);
    store<u64>(value + 8, nonce);
    store<f64>(value + 16, expiryMs);
  }
}
