// What a request's pick goes by beside its prompt: the key of the policies session and prefix-header, and the asked model.
//
// The key is a header or a cookie, hashed with the pool's secret. It is read while the request's headers pass, only when the pool's
// policy asks for it, and kept beside the request's record until the body has ended.
import { adapterHashOf } from './engine/adapters';
import { chainKeys } from './engine/chain';
import { secretHash } from './engine/digest';
import { KEY_SOURCE_COOKIE } from './engine/frame';
import { policyPick } from './engine/policy';
import { policyHasKey } from './engine/pool';
import { REASON_NONE } from './engine/reasons';
import { scanModelBytes, scanModelPtr } from './engine/scan';
import { subsetEnd } from './engine/subset';
import { headerFindBytes, headerFindFrom, valueBytes, valuePtr } from './headers';
import { Text, text, textBytes, textPtr } from './proxy-wasm/text';
import { Plugin } from './plugin';
import { asksCount, subsetRead, subsetRefuse } from './subset';
import { flags, plugins, promptBytes, reasons, releaseMs, SCANS, scans } from './slots';

const HEADER_COOKIE: Text = text('cookie');

const SPACE: u8 = 0x20;
const SEMICOLON: u8 = 0x3b;
const EQUALS: u8 = 0x3d;

/** The request at hand was answered here: its callback has to say so to the host. */
export let pickRefused: bool = false;

/** Reads from the headers that pass what the pick will go by: the key, if the policy goes by one. */
export function pickKeyRead(slot: i32, plugin: Plugin): void {
  const settings = plugin.settings;
  asksCount(plugin.counters);
  setKey(slot, 0);
  const source = policyHasKey(settings.policy) ? settings.keySource : 0;
  if (source == 0) return;
  const name = settings.keyName;
  if (source == KEY_SOURCE_COOKIE) readCookies(slot, name);
  else if (headerFindBytes(textPtr(name), <u32>textBytes(name)) && valueBytes > 0) {
    setKey(slot, secretHash(plugins[slot], valuePtr, valueBytes));
  }
}

/** Picks for a request whose chain of `length` keys was looked up last; returns how many pods, 0 also while the table is waited for. */
export function pickFor(slot: i32, plugin: Plugin, length: u32, nowMs: f64): u32 {
  const settings = plugin.settings;
  const isBound = plugin.config.hasSubsetHint && subsetRead(plugin.pool);
  // Bound to some pods, a request is better picked for blindly among them than left to Envoy, which knows of no bound.
  if (settings.awaitsTable && !isBound) return 0;
  const isRead = flags[slot] & SCANS && reasons[slot] == REASON_NONE;
  const adapter = isRead ? adapterHashOf(scanModelPtr(scans[slot]), scanModelBytes(scans[slot])) : 0;
  const first: u64 = length > 0 ? chainKeys()[0] : 0;
  const key = policyHasKey(settings.policy) ? reinterpret<u64>(releaseMs[slot]) : first;
  const picks = policyPick(plugins[slot], settings.policy, promptBytes[slot], key, adapter, nowMs);
  if (isBound) {
    subsetEnd();
    if (picks == 0 && settings.isActive) refuse(plugin);
  }
  return picks;
}

function refuse(plugin: Plugin): void {
  pickRefused = true;
  plugin.counters.countSubsetRefused();
  subsetRefuse();
}

/** Whether the request was answered here during this callback; forgets it. */
export function pickRefusedTake(): bool {
  const refused = pickRefused;
  pickRefused = false;
  return refused;
}

/** A request that is not sent yet has no other use for this place, and the VM no room for one more number a request. */
function setKey(slot: i32, key: u64): void {
  releaseMs[slot] = reinterpret<f64>(key);
}

/** Looks for a cookie in every header of cookies: HTTP/2 may send each in one of its own. */
function readCookies(slot: i32, name: Text): void {
  const header = textPtr(HEADER_COOKIE);
  const bytes = <u32>textBytes(HEADER_COOKIE);
  for (let at = headerFindFrom(header, bytes, 0); at != 0; at = headerFindFrom(header, bytes, at)) {
    if (readCookie(slot, name)) return;
  }
}

/** Finds `name=value` among the cookies of the header at hand: pairs with a semicolon and blanks between them. */
function readCookie(slot: i32, name: Text): bool {
  const end = valuePtr + valueBytes;
  let at = valuePtr;
  while (at < end) {
    while (at < end && load<u8>(at) == SPACE) at++;
    let next = at;
    while (next < end && load<u8>(next) != SEMICOLON) next++;
    const value = at + textBytes(name) + 1;
    if (value < next && load<u8>(value - 1) == EQUALS && memory.compare(at, textPtr(name), textBytes(name)) == 0) {
      setKey(slot, secretHash(plugins[slot], value, <u32>(next - value)));
      return true;
    }
    at = next + 1;
  }
  return false;
}
