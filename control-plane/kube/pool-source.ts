// One pool as Kubernetes has it: follows the pool's object (in whichever version it is there) and the pods that it selects, and
// hands on endpoints and settings whenever they change.
import { PodAnnotations, PoolAnnotations } from '../annotations.ts';
import type { AnnotationFault, AnnotationStatus, PoolSettings } from '../annotations.ts';
import type { EndpointConfig, PoolObject } from '../config.ts';
import { LIMITS } from '../limits.ts';
import type { Log } from '../log.ts';
import type { KubeApi } from './api.ts';
import { endpointsOf, RESOURCES, shapeOf } from './pool-object.ts';
import type { PodData, PoolObjectData, PoolShape } from './pool-object.ts';
import { Reflector, reflectorTimes } from './reflector.ts';
import type { KubeObject, ReflectorTimes } from './reflector.ts';

/** Faults of the annotations of one object. */
export interface ObjectFaults {
  apiVersion: string;
  kind: string;
  namespace: string;
  name: string;
  uid: string;
  faults: readonly AnnotationFault[];
}

export interface PoolSourceEvents {
  endpoints(endpoints: EndpointConfig[]): void;
  /** `texts`: the annotations in force, null when there is no object. */
  settings(settings: PoolSettings, texts: Record<string, string> | null): void;
  /** All objects with annotations of ours, with or without faults. */
  faults(objects: ObjectFaults[]): void;
  failed(resource: string, reason: string): void;
}

/** What /v1/state shows of a pool's object, for `explain`. */
export interface PoolSourceState {
  kind: PoolObject['kind'];
  namespace: string;
  name: string;
  /** null: there is no such object. */
  apiVersion: string | null;
  /** Why the object makes no pool, null when it does. */
  unusable: string | null;
  selector: string | null;
  ports: (number | string)[];
  annotations: readonly AnnotationStatus[];
  /** Pods with annotations of ours. */
  pods: { name: string; annotations: readonly AnnotationStatus[] }[];
}

/** What is known of the object in one of its versions: undefined until the API server has answered, null when it is not there. */
type Found = PoolObjectData | null | undefined;

export class PoolSource {
  readonly #api: KubeApi;
  readonly #object: PoolObject;
  readonly #events: PoolSourceEvents;
  readonly #log: Log;
  readonly #times: ReflectorTimes;
  readonly #versions: { apiVersion: string; found: Found; reflector: Reflector<PoolObjectData> }[];
  readonly #settings: PoolAnnotations;
  #apiVersion: string | null = null;
  #data: PoolObjectData | null = null;
  #shape: PoolShape | null = null;
  #unusable: string | null = null;
  #pods: Reflector<PodData> | null = null;
  #podList: PodData[] = [];
  #podSettings = new Map<string, PodAnnotations>();
  #known: () => void = () => undefined;
  /** Resolves when object and pods have been read for the first time, or the object is known to be absent. */
  readonly synced: Promise<void>;

  constructor(
    api: KubeApi,
    object: PoolObject,
    defaults: PoolSettings,
    lastGood: Readonly<Record<string, string>>,
    events: PoolSourceEvents,
    log: Log,
    times: ReflectorTimes = reflectorTimes,
  ) {
    this.#api = api;
    this.#object = object;
    this.#events = events;
    this.#log = log;
    this.#times = times;
    this.#settings = new PoolAnnotations(defaults);
    this.#settings.take(lastGood);
    this.synced = new Promise((resolve) => (this.#known = resolve));
    this.#versions = RESOURCES[object.kind].map(({ apiVersion, path }) => {
      const version: { apiVersion: string; found: Found; reflector: Reflector<PoolObjectData> } = {
        apiVersion,
        found: undefined,
        reflector: this.#reflect<PoolObjectData>(
          pathOf(apiVersion, object.namespace, path),
          { fieldSelector: `metadata.name=${object.name}` },
          path,
          (objects) => {
            version.found = objects.find(({ metadata }) => metadata.name === object.name) ?? null;
            this.#objectChanged();
          },
          () => {
            // Right after its own start the API server may not serve a custom kind yet: what was there stays.
            if (version.found !== undefined) return;
            version.found = null;
            this.#objectChanged();
          },
        ),
      };
      return version;
    });
  }

  start(): void {
    for (const { reflector } of this.#versions) reflector.start();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#versions.map(({ reflector }) => reflector.close()), this.#pods?.close()]);
  }

  #reflect<T extends KubeObject>(
    path: string,
    query: Record<string, string>,
    resource: string,
    changed: (objects: T[]) => void,
    absent?: () => void,
  ): Reflector<T> {
    const failed = (reason: string): void => this.#events.failed(resource, reason);
    const events = { changed, failed, ...(absent === undefined ? {} : { absent }) };
    return new Reflector<T>(this.#api, path, query, events, this.#log, this.#times);
  }

  #objectChanged(): void {
    // An older version is looked at only when it is certain that the newer one has no such object.
    const version = this.#versions.find(({ found }) => found !== null);
    if (version?.found === undefined && version !== undefined) return;
    this.#apiVersion = version?.apiVersion ?? null;
    this.#data = version?.found ?? null;
    const shape =
      this.#data === null ? 'there is no such object' : shapeOf(this.#object.kind, this.#apiVersion ?? '', this.#data);
    const before = this.#shape;
    this.#shape = typeof shape === 'string' ? null : shape;
    const unusable = typeof shape === 'string' ? shape : null;
    if (unusable !== null && unusable !== this.#unusable)
      this.#log.warn('no pool', { ...this.#object, reason: unusable });
    this.#unusable = unusable;
    // An object that is not there says nothing: it may only not be served yet, and what was good last has to outlast that.
    if (this.#data !== null) this.#settings.take(this.#data.metadata.annotations ?? {});
    this.#events.settings(this.#settings.settings, this.#data === null ? null : this.#settings.texts);
    this.#tellFaults();
    if (this.#shape === null) {
      this.#setPods(null);
      this.#events.endpoints([]);
      this.#known();
    } else if (before?.selector !== this.#shape.selector) {
      this.#setPods(this.#shape.selector);
    } else {
      this.#podsChanged(this.#podList);
    }
  }

  #setPods(selector: string | null): void {
    // It is not waited for: whatever an old watch still brings is dropped by the check in the callback.
    void this.#pods?.close();
    this.#pods = null;
    if (selector === null) {
      this.#podList = [];
      return;
    }
    const path = pathOf('v1', this.#object.namespace, 'pods');
    const reflector: Reflector<PodData> = this.#reflect<PodData>(path, { labelSelector: selector }, 'pods', (pods) => {
      if (this.#pods !== reflector) return;
      this.#podsChanged(pods);
      this.#known();
    });
    this.#pods = reflector;
    reflector.start();
  }

  #podsChanged(pods: PodData[]): void {
    this.#podList = pods;
    const settings = new Map<string, PodAnnotations>();
    const endpoints = new Map<string, { endpoint: EndpointConfig; pod: PodData }>();
    for (const pod of pods) {
      const uid = pod.metadata.uid ?? '';
      const annotations = this.#podSettings.get(uid) ?? new PodAnnotations();
      annotations.take(pod.metadata.annotations ?? {});
      settings.set(uid, annotations);
      for (const endpoint of endpointsOf(pod, this.#shape?.ports ?? [], annotations.settings)) {
        const { text } = endpoint.address;
        const other = endpoints.get(text);
        // A pod that is going and its successor may have the same address for a while.
        if (other === undefined || isBetter(pod, endpoint, other)) endpoints.set(text, { endpoint, pod });
      }
    }
    this.#podSettings = settings;
    const list = [...endpoints.values()].map(({ endpoint }) => endpoint);
    if (list.length > LIMITS.pods) {
      this.#log.warn('too many endpoints', { ...this.#object, endpoints: list.length, max: LIMITS.pods });
    }
    this.#events.endpoints(list.slice(0, LIMITS.pods));
    this.#tellFaults();
  }

  #tellFaults(): void {
    const { kind, namespace, name } = this.#object;
    const objects: ObjectFaults[] = [];
    if (this.#data !== null) {
      const { faults } = this.#settings;
      objects.push({
        apiVersion: this.#apiVersion ?? '',
        kind,
        namespace,
        name,
        uid: this.#data.metadata.uid ?? '',
        faults,
      });
    }
    for (const { metadata } of this.#podList) {
      const { faults = [] } = this.#podSettings.get(metadata.uid ?? '') ?? {};
      objects.push({ apiVersion: 'v1', kind: 'Pod', namespace, name: metadata.name, uid: metadata.uid ?? '', faults });
    }
    this.#events.faults(objects);
  }

  state(): PoolSourceState {
    const pods = this.#podList.map(({ metadata }) => ({
      name: metadata.name,
      annotations: (this.#podSettings.get(metadata.uid ?? '')?.status ?? []).filter(({ value }) => value !== null),
    }));
    return {
      ...this.#object,
      apiVersion: this.#apiVersion,
      unusable: this.#unusable,
      selector: this.#shape?.selector ?? null,
      ports: this.#shape?.ports ?? [],
      annotations: this.#settings.status,
      pods: pods.filter(({ annotations }) => annotations.length > 0),
    };
  }
}

function isBetter(pod: PodData, endpoint: EndpointConfig, other: { endpoint: EndpointConfig; pod: PodData }): boolean {
  if (endpoint.ready !== other.endpoint.ready) return endpoint.ready;
  return pod.metadata.deletionTimestamp === undefined && other.pod.metadata.deletionTimestamp !== undefined;
}

function pathOf(apiVersion: string, namespace: string, resource: string): string {
  return `${apiVersion === 'v1' ? '/api' : '/apis'}/${apiVersion}/namespaces/${namespace}/${resource}`;
}
