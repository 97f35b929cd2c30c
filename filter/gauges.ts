// Requests in flight of each pod as Envoy's statistics show them, over all workers: set, not added up, so that a worker that died leaves no rest.
// The leader does; but when a pod goes each VM says so, since the leader may go with it.
import { Counters } from './counters';
import { SEGMENTS_MAX } from './engine/limits';
import { loadForeignN, loadOwnN } from './engine/load';
import { podAddressBytes, podAddressPtr, podId, podInPool, podSlots } from './pods';

export class Gauges {
  private gauges: StaticArray<u32> = new StaticArray<u32>(podSlots());
  /** The pod that a gauge was defined for. */
  private ids: StaticArray<u32> = new StaticArray<u32>(podSlots());

  constructor(
    private pool: u32,
    private counters: Counters,
  ) {}

  /** Allocates: when pods change. */
  record(isLeader: bool): void {
    for (let pod: u32 = 0; pod < podSlots(); pod++) {
      const id = podInPool(pod, this.pool) ? podId(pod) : 0;
      if (this.ids[pod] != id) {
        if (this.ids[pod] != 0) this.counters.setGauge(this.gauges[pod], 0);
        this.ids[pod] = id;
        if (id != 0) this.gauges[pod] = this.counters.podGauge(podAddressPtr(pod), podAddressBytes(pod));
      }
      if (id == 0 || !isLeader) continue;
      let inFlight = loadOwnN(pod);
      for (let source = 0; source < SEGMENTS_MAX; source++) inFlight += loadForeignN(source, pod);
      this.counters.setGauge(this.gauges[pod], <u64>inFlight);
    }
  }
}
