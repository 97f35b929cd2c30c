// The pods of this VM's pools and their addresses: what the engine calls a slot, Envoy calls "10.0.0.1:8000".
//
// A slot is a small number that lives as long as its pod; an id never comes back for another pod. A stream remembers both,
// so that what ends after its pod has gone is not counted against the slot's next tenant.
import { ADDRESS_BYTES_MAX, PODS_MAX } from './engine/limits';
import {
  endpointAddress,
  endpointCapacityTokens,
  endpointCount,
  endpointFlags,
  endpointPodId,
  endpointPort,
  endpointWeight,
  ENDPOINT_DRAIN,
  ENDPOINT_READY,
} from './engine/frame';
import { podIdOf, POD_DRAIN, POD_READY } from './engine/load';
import { podFind, podRemove, podSet } from './engine/pods';
import { residencyPodPool, residencyPods, residencyPodWords, residencyPoolWord } from './engine/residency';
import { Bytes } from './bytes';

const marks: StaticArray<u8> = new StaticArray<u8>(PODS_MAX);
const lengths: StaticArray<u8> = new StaticArray<u8>(PODS_MAX);
let addresses: usize = 0;

/** Reserves room for the addresses of all pod slots. */
export function podsInit(): void {
  addresses = heap.alloc(<usize>residencyPods() * ADDRESS_BYTES_MAX);
}

export function podSlots(): u32 {
  return residencyPods();
}

/** The control plane's id of the pod that a slot stands for, also while it is only kept for its last requests. */
export function podId(slot: i32): u32 {
  return podIdOf(slot);
}

export function podInPool(slot: u32, pool: u32): bool {
  return residencyPodPool(slot) == pool;
}

/** Words of 64 slots each, for podsOfPool(). */
export function podWords(): u32 {
  return residencyPodWords();
}

/** The pods of a pool among the 64 slots from 64 * word on, one bit each. */
export function podsOfPool(pool: u32, word: u32): u64 {
  return residencyPoolWord(pool, word);
}

export function podOfId(pool: u32, id: u32): i32 {
  return podFind(pool, id);
}

export function podAddressPtr(slot: u32): usize {
  return addresses + <usize>slot * ADDRESS_BYTES_MAX;
}

export function podAddressBytes(slot: u32): u32 {
  return slot < PODS_MAX ? lengths[slot] : 0;
}

/** The slot of the pool's pod with this address as Envoy writes it ("10.0.0.1:8000", "[fd00::1]:8000"), or -1. `likely` is looked at first. */
export function podOfAddress(pool: u32, ptr: usize, length: u32, likely: i32 = -1): i32 {
  if (likely >= 0 && hasAddress(likely, pool, ptr, length)) return likely;
  const slots = podSlots();
  for (let slot: u32 = 0; slot < slots; slot++) {
    if (hasAddress(slot, pool, ptr, length)) return <i32>slot;
  }
  return -1;
}

function hasAddress(slot: u32, pool: u32, ptr: usize, length: u32): bool {
  if (podAddressBytes(slot) != length || !podInPool(slot, pool)) return false;
  return memory.compare(podAddressPtr(slot), ptr, length) == 0;
}

/**
 * Makes the pool's pods those of the frame that was checked last: new ones start empty, missing ones go. Returns how many found no
 * free slot; their traffic is balanced by Envoy.
 */
export function podsApply(pool: u32): u32 {
  let overflowed: u32 = 0;
  const slots = podSlots();
  for (let slot: u32 = 0; slot < slots; slot++) marks[slot] = 0;
  const count = endpointCount();
  for (let i: u32 = 0; i < count; i++) {
    const slot = podFind(pool, endpointPodId(i));
    if (slot >= 0) marks[slot] = 1;
  }
  for (let slot: u32 = 0; slot < slots; slot++) {
    if (podInPool(slot, pool) && marks[slot] == 0) podRemove(slot);
  }
  for (let i: u32 = 0; i < count; i++) {
    const ready = endpointFlags(i) & ENDPOINT_READY ? POD_READY : 0;
    const drain = endpointFlags(i) & ENDPOINT_DRAIN ? POD_DRAIN : 0;
    const slot = podSet(pool, endpointPodId(i), endpointCapacityTokens(i), endpointWeight(i), ready | drain);
    if (slot < 0) overflowed++;
    else writeAddress(slot, endpointAddress(i), endpointPort(i));
  }
  return overflowed;
}

/** Lets go of every pod of a pool whose plugin was removed. */
export function podsDrop(pool: u32): void {
  const slots = podSlots();
  for (let slot: u32 = 0; slot < slots; slot++) {
    if (podInPool(slot, pool)) podRemove(slot);
  }
}

const text: Bytes = new Bytes(ADDRESS_BYTES_MAX);

function writeAddress(slot: u32, address: usize, port: u16): void {
  text.length = 0;
  if (isMappedIpv4(address)) {
    for (let i: usize = 12; i < 16; i++) {
      if (i > 12) text.append(0x2e);
      text.appendNumber(load<u8>(address + i));
    }
  } else {
    text.append(0x5b);
    appendIpv6(address);
    text.append(0x5d);
  }
  text.append(0x3a);
  text.appendNumber(port);
  memory.copy(podAddressPtr(slot), text.ptr, text.length);
  lengths[slot] = <u8>text.length;
}

function isMappedIpv4(address: usize): bool {
  return load<u64>(address) == 0 && load<u16>(address + 8) == 0 && load<u16>(address + 10) == 0xffff;
}

function group(address: usize, index: u32): u32 {
  return ((<u32>load<u8>(address + index * 2)) << 8) | load<u8>(address + index * 2 + 1);
}

/** RFC 5952: lower case, no leading zeros, the first longest run of two or more zero groups as "::". */
function appendIpv6(address: usize): void {
  let bestStart: u32 = 8;
  let bestLength: u32 = 1;
  for (let start: u32 = 0; start < 8; start++) {
    let length: u32 = 0;
    while (start + length < 8 && group(address, start + length) == 0) length++;
    if (length > bestLength) {
      bestStart = start;
      bestLength = length;
    }
  }
  for (let i: u32 = 0; i < 8;) {
    if (i == bestStart) {
      text.append(0x3a);
      text.append(0x3a);
      i += bestLength;
      continue;
    }
    if (i > 0 && i != bestStart + bestLength) text.append(0x3a);
    appendHex(group(address, i));
    i++;
  }
}

function appendHex(value: u32): void {
  let shift: i32 = 12;
  while (shift > 0 && value >> shift == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) {
    const digit = (value >> shift) & 15;
    text.append(<u8>(digit < 10 ? 0x30 + digit : 0x57 + digit));
  }
}
