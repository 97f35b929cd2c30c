// What has to outlive the control plane, in one Kubernetes Secret: the secret of the block keys, so that all replicas, and the next ones, make
// the same keys (made when absent), and the annotations of pools that are in force, so that a wrong one does not become the default at a restart.
import { randomBytes } from 'node:crypto';
import type { ReplicaConfig } from '../config.ts';
import type { Log } from '../log.ts';
import { KubeError, reasonOf } from './api.ts';
import type { KubeApi } from './api.ts';
import type { KubeObject } from './reflector.ts';

interface SecretObject extends KubeObject {
  data?: Record<string, string>;
}

/** Annotations by pool, as the pool's object would say them. */
export type PoolTexts = Record<string, Record<string, string>>;

export interface Kept {
  secret: Buffer;
  annotations: PoolTexts;
}

const KEY = 'secret';
const ANNOTATIONS_KEY = 'annotations';
const SECRET_BYTES = 32;
const RETRY_MS = 500;

/** What the Secret has, however long it takes until the API server answers. */
export async function readKept(api: KubeApi, replica: ReplicaConfig, log: Log, signal: AbortSignal): Promise<Kept> {
  for (let tries = 1; ; tries++) {
    try {
      return await readOrMake(api, replica);
    } catch (error) {
      signal.throwIfAborted();
      if (tries === 1) log.warn("the pools' secret is out of reach", { reason: reasonOf(error), error: String(error) });
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    signal.throwIfAborted();
  }
}

/** Keeps the annotations that are in force. Throws when somebody else has changed the Secret meanwhile, or it cannot be written. */
export async function keepAnnotations(api: KubeApi, replica: ReplicaConfig, annotations: PoolTexts): Promise<void> {
  const { path, metadata } = placeOf(replica);
  const secret = await api.request<SecretObject>('GET', `${path}/${metadata.name}`);
  const data = { ...secret.data, [ANNOTATIONS_KEY]: Buffer.from(JSON.stringify(annotations)).toString('base64') };
  await api.request('PUT', `${path}/${metadata.name}`, {}, { ...secret, apiVersion: 'v1', kind: 'Secret', data });
}

function placeOf({ namespace, name }: ReplicaConfig): { path: string; metadata: { name: string; namespace: string } } {
  return { path: `/api/v1/namespaces/${namespace}/secrets`, metadata: { name: `${name}-pools`, namespace } };
}

async function readOrMake(api: KubeApi, replica: ReplicaConfig): Promise<Kept> {
  const { path, metadata } = placeOf(replica);
  const read = async (): Promise<SecretObject> => api.request('GET', `${path}/${metadata.name}`);
  const secret = await read().catch(async (error: unknown) => {
    if (!(error instanceof KubeError) || error.status !== 404) throw error;
    const data = { [KEY]: randomBytes(SECRET_BYTES).toString('base64') };
    const made = { apiVersion: 'v1', kind: 'Secret', type: 'Opaque', metadata, data };
    return api.request<SecretObject>('POST', path, {}, made).catch(async (again: unknown) => {
      // Another replica was faster.
      if (again instanceof KubeError && again.status === 409) return read();
      throw again;
    });
  });
  const bytes = Buffer.from(secret.data?.[KEY] ?? '', 'base64');
  if (bytes.length !== SECRET_BYTES)
    throw new Error(`Secret ${metadata.name}: data.${KEY} has not ${SECRET_BYTES} bytes`);
  return { secret: bytes, annotations: annotationsOf(secret) };
}

/** What is not as it was written is as if it were not there. */
function annotationsOf(secret: SecretObject): PoolTexts {
  try {
    const found: unknown = JSON.parse(Buffer.from(secret.data?.[ANNOTATIONS_KEY] ?? '', 'base64').toString() || '{}');
    return Object.fromEntries(Object.entries(found ?? {}).map(([pool, texts]) => [pool, textsOf(texts)]));
  } catch {
    return {};
  }
}

function textsOf(found: unknown): Record<string, string> {
  const texts = Object.entries((found ?? {}) as Record<string, unknown>);
  return Object.fromEntries(texts.filter((entry): entry is [string, string] => typeof entry[1] === 'string'));
}
