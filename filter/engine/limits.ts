// Every bound of the engine in one place. A table that is full degrades and counts; it never grows and never fails.

// Wire format (frame.ts).
// One frame of the sync or of a shared-data segment; a body may carry several frames.
export const FRAME_BYTES_MAX: u32 = 1 << 20;
// Keys of one touch record. A longer chain is sent as several touches, each naming its predecessor's last key.
export const FRAME_TOUCH_KEYS_MAX: u32 = 8192;
// A gateway's name, in visible ASCII.
export const FRAME_NAME_BYTES_MAX: u32 = 256;
