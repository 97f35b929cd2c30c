// When memory that nobody uses any more is given back: when the VM has started, and at the end of a callback that allocated, which is one that
// brought a configuration or found new pods. The compiler's `minimal` runtime leaves that to the program; in return no function has to tell the collector which objects
// it has in hand, which every call on the request path would pay for.
let isLeft: bool = true;

/** Something was allocated that may be of no use when the callback ends. */
export function garbageLeft(): void {
  isLeft = true;
}

/** Gives it back. Called last in a callback, since objects that only a caller still has in hand would go, too. */
export function garbageCollect(): void {
  if (!isLeft) return;
  isLeft = false;
  __collect();
}
