// Where gateways find the active replica: the EndpointSlice of a Service without a selector, with the active replica's address and no other.
// The standby is ready like any pod, so that rolling updates work, and gets no sync all the same.
import type { ReplicaConfig } from '../config.ts';
import type { Log } from '../log.ts';
import { isIPv6 } from 'node:net';
import { KubeError, reasonOf } from './api.ts';
import type { KubeApi } from './api.ts';

/** The slice is written again so often, in case somebody removed it. */
const AGAIN_MS = 30_000;
const RETRY_MS = 500;

export class ActiveSlice {
  readonly #api: KubeApi;
  readonly #replica: ReplicaConfig;
  readonly #port: number;
  readonly #log: Log;
  #timer: NodeJS.Timeout | undefined;
  #isHeld = false;
  #failuresInRow = 0;

  constructor(api: KubeApi, replica: ReplicaConfig, port: number, log: Log) {
    this.#api = api;
    this.#replica = replica;
    this.#port = port;
    this.#log = log;
  }

  hold(): void {
    this.#isHeld = true;
    void this.#write();
  }

  /** Leaves the slice to whoever is active now. */
  letGo(): void {
    this.#isHeld = false;
    clearTimeout(this.#timer);
  }

  async #write(): Promise<void> {
    clearTimeout(this.#timer);
    const { namespace, name, podName, podUid, podIp } = this.#replica;
    const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
    const slice = {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        name: `${name}-active`,
        namespace,
        labels: {
          'kubernetes.io/service-name': name,
          'endpointslice.kubernetes.io/managed-by': 'warmpath.dev',
        },
        // It goes with the pod that it names, unless another replica has taken it over by then.
        ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: podName, uid: podUid }],
      },
      addressType: isIPv6(podIp) ? 'IPv6' : 'IPv4',
      ports: [{ name: 'http', port: this.#port, protocol: 'TCP' }],
      endpoints: [
        {
          addresses: [podIp],
          conditions: { ready: true, serving: true, terminating: false },
          targetRef: { kind: 'Pod', namespace, name: podName, uid: podUid },
        },
      ],
    };
    let againMs = AGAIN_MS;
    try {
      await this.#api.request('PUT', `${path}/${name}-active`, {}, slice).catch(async (error: unknown) => {
        if (!(error instanceof KubeError) || error.status !== 404) throw error;
        await this.#api.request('POST', path, {}, slice);
      });
      this.#failuresInRow = 0;
    } catch (error) {
      this.#failuresInRow++;
      if (this.#failuresInRow === 1) {
        this.#log.warn('the endpoint slice cannot be written', { reason: reasonOf(error), error: String(error) });
      }
      againMs = RETRY_MS;
    }
    if (this.#isHeld) this.#timer = setTimeout(() => void this.#write(), againMs);
  }
}
