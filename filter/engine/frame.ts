// THE wire format: every byte that passes between filters, workers and the control plane has the layout given here.
//
// It exists once so that a gateway, its sibling workers and the control plane cannot disagree. docs/WIRE.md draws it.
// A frame is little-endian, a multiple of 8 bytes long, and looks like this:
//
//    0          4     6     8         12        16                  24                  32
//   +----------+-----+-----+---------+---------+-------------------+-------------------+
//   | magic    | ver | kind| bytes   | check   | epoch             | sequence          |
//   +----------+-----+-----+---------+---------+---------+---------+-------------------+
//   | pool hash            | settings| flags   | sections ...                            |
//   +----------------------+---------+---------+-----------------------------------------+
//   32                     40        44        48
//
//   section = u16 type, u16 zero, u32 payload bytes, payload. Types ascend, so none stands twice.
//
// Reading: frameCheck() in frame-check.ts validates every length, count and value once; afterwards no accessor of
// frame-read.ts can fail. Writing: frame-write.ts, which never goes past the region given to it. Nothing allocates.
export * from './frame-layout';
export * from './frame-check';
export * from './frame-read';
export * from './frame-write';
