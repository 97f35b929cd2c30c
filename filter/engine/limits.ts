// Every bound of the engine in one place. A table that is full degrades and counts; it never grows and never fails.

// Wire format (frame.ts).
// One frame of the sync or of a shared-data segment; a body may carry several frames.
export const FRAME_BYTES_MAX: u32 = 1 << 20;
// Keys of one touch record. A longer chain is sent as several touches, each naming its predecessor's last key.
export const FRAME_TOUCH_KEYS_MAX: u32 = 8192;
// A gateway's name, in visible ASCII.
export const FRAME_NAME_BYTES_MAX: u32 = 256;

// Pools and pods (residency.ts, load.ts, policy.ts).
// Pools of one VM. Several plugins may share a VM, each with its own pool.
export const POOLS_MAX: u32 = 8;
// Pod slots of one VM, over all pools.
export const PODS_MAX: u32 = 1024;
// Blocks that all pods together may hold. The control plane asks for more than a gateway does.
export const NODES_MAX: u32 = 1 << 24;
// Blocks from the first one of a prompt to a block of it; a chain is not followed further.
export const CHAIN_BLOCKS_MAX: u32 = 8192;
// What one block may weigh; a heavier one counts as this heavy.
export const BLOCK_BYTES_MAX: u32 = (1 << 19) - 1;
// Steps that one touch may take to find its place by time. Beyond them it is put where the search stands.
export const TOUCH_STEPS_MAX: i32 = 1 << 15;
// Who tells of load beside this VM: sibling workers and other gateways.
export const LOAD_SOURCES_MAX: u32 = 40;
// Pods that a pick names, best first.
export const PICKS_MAX: u32 = 3;
