// Faults of annotations as Kubernetes Events on their objects, where `kubectl describe` shows them. Written by the active replica
// only, once for each fault and again now and then while it stays.
import type { ReplicaConfig } from '../config.ts';
import { LIMITS } from '../limits.ts';
import type { Log } from '../log.ts';
import { KubeError, reasonOf } from './api.ts';
import type { KubeApi } from './api.ts';
import type { ObjectFaults } from './pool-source.ts';

interface Waiting {
  object: ObjectFaults;
  message: string;
}

const RETRY_MS = 1_000;
const REASON = 'WarmpathAnnotation';

export class FaultEvents {
  readonly #api: KubeApi;
  readonly #instance: string;
  readonly #log: Log;
  /** When each fault that is there now was written last, by object and message. */
  readonly #toldMs = new Map<string, number>();
  #waiting: Waiting[] = [];
  #isWriting = false;
  #isClosed = false;

  constructor(api: KubeApi, replica: ReplicaConfig | null, log: Log) {
    this.#api = api;
    this.#instance = replica?.podName ?? 'warmpath';
    this.#log = log;
  }

  /** Takes all objects as they are now; called again and again, it writes what is new or was written long ago. */
  tell(objects: ObjectFaults[]): void {
    const nowMs = performance.now();
    const present = new Set<string>();
    for (const object of objects) {
      for (const { message } of object.faults) {
        const key = `${object.uid} ${message}`;
        present.add(key);
        const toldMs = this.#toldMs.get(key);
        if (toldMs !== undefined && nowMs - toldMs < LIMITS.kubeEventRepeatMs) continue;
        if (this.#waiting.length >= LIMITS.kubeEventsWaiting) continue;
        this.#toldMs.set(key, nowMs);
        this.#waiting.push({ object, message });
      }
    }
    for (const key of this.#toldMs.keys()) if (!present.has(key)) this.#toldMs.delete(key);
    if (!this.#isWriting) void this.#writeAll();
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true;
    for (let next = this.#waiting[0]; next !== undefined && !this.#isClosed; next = this.#waiting[0]) {
      try {
        await this.#write(next);
        this.#waiting.shift();
      } catch (error) {
        // Refused for good, for instance because the namespace is being removed: the log and the metric have it all the same.
        const isFinal = error instanceof KubeError && error.status >= 400 && error.status < 500 && error.status !== 429;
        if (isFinal) this.#waiting.shift();
        this.#log.warn('an event cannot be written', { reason: reasonOf(error), error: String(error) });
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    this.#isWriting = false;
  }

  async #write({ object, message }: Waiting): Promise<void> {
    const { apiVersion, kind, namespace, name, uid } = object;
    const now = new Date().toISOString();
    const unique = `${Date.now().toString(16)}${Math.floor(Math.random() * 0xffff).toString(16)}`;
    await this.#api.request(
      'POST',
      `/api/v1/namespaces/${namespace}/events`,
      {},
      {
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { name: `${name.slice(0, 200)}.${unique}`, namespace },
        involvedObject: { apiVersion, kind, namespace, name, uid },
        type: 'Warning',
        reason: REASON,
        message: `${message}. The last good value stays in force.`.slice(0, 1024),
        source: { component: 'warmpath' },
        reportingComponent: 'warmpath.dev/control-plane',
        reportingInstance: this.#instance,
        firstTimestamp: now,
        lastTimestamp: now,
        count: 1,
      },
    );
  }

  close(): void {
    this.#isClosed = true;
  }
}
