// The names of this plugin's values in shared data. Every plugin with the same vm_id sees the same store, and a gateway that
// is being upgraded runs two versions side by side, so each name starts with the wire version and the plugin's name.
//
//   "warmpath/" version "/" plugin "/" | kind u8 | index u16 |
//
//   C  claim of segment `index`                written by whoever holds or takes it
//   H  head of segment `index`                 load counters, number of the next ring record; written by its holder
//   R  ring record `index` = segment * RING + place     one touch; written by the segment's holder
//   O  totals by pod of segment `index`    how requests ended; written by its holder
//   L  claim of leadership
//   P  settings, secret and endpoints of the pool; M scraped metrics and other gateways' load; T ring of the control
//   plane's touches, N the number of the next one and how far the gateway is: written by the leader
//   W  the time at which some VM found its table empty and asked for a snapshot
import { FRAME_VERSION } from './engine/frame';
import { NAME_BYTES_MAX } from './engine/limits';
import { Bytes } from './bytes';

export const KEY_CLAIM: u8 = 0x43;
export const KEY_HEAD: u8 = 0x48;
export const KEY_RING: u8 = 0x52;
export const KEY_OUTCOMES: u8 = 0x4f;
export const KEY_LEADER: u8 = 0x4c;
export const KEY_POOL: u8 = 0x50;
export const KEY_METRICS: u8 = 0x4d;
export const KEY_TABLE: u8 = 0x54;
export const KEY_TABLE_NEXT: u8 = 0x4e;
export const KEY_WANT: u8 = 0x57;

/** Number of the next frame of touches; epoch and sequence of the control plane, and the hash of the pool that they are about. */
export const TABLE_NEXT_BYTES: u32 = 32;

const SUFFIX_BYTES: u32 = 3;

/** Makes the names of one plugin; `key` holds the last one made. */
export class Keyspace {
  key: Bytes;
  private prefixBytes: u32;

  constructor(plugin: Bytes) {
    this.key = new Bytes(NAME_BYTES_MAX + 32);
    this.prefixBytes = 0;
    this.rename(plugin);
  }

  /** From here on the names are those of another plugin. */
  rename(plugin: Bytes): void {
    const key = this.key;
    key.length = 0;
    key.appendString('warmpath/');
    key.appendNumber(FRAME_VERSION);
    key.append(0x2f);
    key.appendAll(plugin);
    key.append(0x2f);
    this.prefixBytes = key.length;
    key.length += SUFFIX_BYTES;
  }

  /** The name of value `index` of a kind; good until the next call. */
  of(kind: u8, index: u32): Bytes {
    const suffix = this.key.ptr + this.prefixBytes;
    store<u8>(suffix, kind);
    store<u8>(suffix + 1, <u8>index);
    store<u8>(suffix + 2, <u8>(index >> 8));
    return this.key;
  }
}
