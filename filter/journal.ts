// What the filter says in Envoy's log about one pool: what changed, and each kind of trouble once. How often it happens is what
// the counters are for; a line for every request would bury the one that matters.
import { REASONS, reasonName } from './engine/reasons';
import { podAddressBytes, podAddressPtr } from './pods';
import { lineBytesOf, lineLog, lineNumber, lineStart, lineText } from './proxy-wasm/line';
import { LOG_INFO, LOG_WARN } from './proxy-wasm/status';
import { text, Text, TEXT_EMPTY, textFree } from './proxy-wasm/text';

const START: Text = text('warmpath: pool ');
const UNREAD: Text = text(': a request is balanced by load only, further ones are counted as fallbacks; reason ');
const UNPICKED: Text = text(
  ': no pod to pick, Envoy balances; nothing has come from the control plane, or no pod is ready',
);
const SILENT: Text = text(
  ': a pod takes requests and answers none; it gets no more until it shows a sign of life. Pod: ',
);
const SUBSET: Text = text(
  ': a request is bound to pods none of which is ready, and answered 503; further ones are counted as subset_refused',
);
const LOST: Text = text(': touches of a sibling were overwritten before they were read, further ones are counted');
const UNHEARD: Text = text(
  ': more VMs than limits.ts has segments for (SEGMENTS_MAX); what this one picks and has in hand its siblings do not know',
);
const ELECTED: Text = text(': this VM speaks for the gateway now');
const SYNC_FAILED: Text = text(
  ': no good answer from the control plane; routing goes on from what is known. Failed calls: ',
);
const SYNC_STATUS: Text = text(
  ', last HTTP status (0: no call could be made, 503 and 504: it was not reached, others are in docs/ERRORS.md): ',
);
const SYNC_REFUSED: Text = text(': an answer of the control plane is refused; docs/WIRE.md names frame error ');
const SYNC_WORKS: Text = text(': the control plane answers again');
const SETTINGS: Text = text(': settings in force, version ');
const PODS: Text = text(', pods ');
const OVERFLOW: Text = text(': more pods than bounds.pods allows; not picked for: ');

const reasonTexts: StaticArray<Text> = new StaticArray<Text>(REASONS);
for (let i: u32 = 0; i < REASONS; i++) reasonTexts[i] = text(reasonName(i));

export class Journal {
  private pool: Text = TEXT_EMPTY;
  private hasTold: StaticArray<bool> = new StaticArray<bool>(REASONS);
  private hasToldUnpicked: bool = false;
  private hasToldSubset: bool = false;
  private hasToldLost: bool = false;
  private hasToldUnheard: bool = false;
  private isSyncBroken: bool = false;

  /** Allocates: on configuration only. */
  name(pool: string): void {
    textFree(this.pool);
    this.pool = text(pool);
  }

  unread(reason: u32): void {
    if (reason >= REASONS || this.hasTold[reason]) return;
    this.hasTold[reason] = true;
    this.start(UNREAD);
    lineText(reasonTexts[reason]);
    lineLog(LOG_INFO);
  }

  unpicked(): void {
    if (this.hasToldUnpicked) return;
    this.hasToldUnpicked = true;
    this.start(UNPICKED);
    lineLog(LOG_WARN);
  }

  silent(pod: u32): void {
    this.start(SILENT);
    lineBytesOf(podAddressPtr(pod), podAddressBytes(pod));
    lineLog(LOG_WARN);
  }

  subsetRefused(): void {
    if (this.hasToldSubset) return;
    this.hasToldSubset = true;
    this.start(SUBSET);
    lineLog(LOG_WARN);
  }

  lost(): void {
    if (this.hasToldLost) return;
    this.hasToldLost = true;
    this.start(LOST);
    lineLog(LOG_WARN);
  }

  /** This VM found no free segment; it looks for one at every tick. */
  unheard(): void {
    if (this.hasToldUnheard) return;
    this.hasToldUnheard = true;
    this.start(UNHEARD);
    lineLog(LOG_WARN);
  }

  elected(): void {
    this.start(ELECTED);
    lineLog(LOG_INFO);
  }

  /** Calls that failed one after the other; told when it begins to look like more than a hiccup. */
  syncFailed(failures: u32, status: u32): void {
    if (this.isSyncBroken || failures < 3) return;
    this.isSyncBroken = true;
    this.start(SYNC_FAILED);
    lineNumber(failures);
    lineText(SYNC_STATUS);
    lineNumber(status);
    lineLog(LOG_WARN);
  }

  syncRefused(error: u32): void {
    if (this.isSyncBroken) return;
    this.isSyncBroken = true;
    this.start(SYNC_REFUSED);
    lineNumber(error);
    lineLog(LOG_WARN);
  }

  syncWorks(): void {
    if (!this.isSyncBroken) return;
    this.isSyncBroken = false;
    this.start(SYNC_WORKS);
    lineLog(LOG_INFO);
  }

  /** Settings were taken over; `overflowed` pods found no slot. */
  settings(version: u32, pods: u32, overflowed: u32): void {
    this.hasToldUnpicked = false;
    this.start(SETTINGS);
    lineNumber(version);
    lineText(PODS);
    lineNumber(pods);
    lineLog(LOG_INFO);
    if (overflowed == 0) return;
    this.start(OVERFLOW);
    lineNumber(overflowed);
    lineLog(LOG_WARN);
  }

  private start(what: Text): void {
    lineStart();
    lineText(START);
    lineText(this.pool);
    lineText(what);
  }
}
