// The secret of the block keys in a Kubernetes Secret, so that all replicas, and the next ones, make the same keys. Made when absent.
import { randomBytes } from 'node:crypto';
import type { ReplicaConfig } from '../config.ts';
import type { Log } from '../log.ts';
import { KubeError, reasonOf } from './api.ts';
import type { KubeApi } from './api.ts';
import type { KubeObject } from './reflector.ts';

interface SecretObject extends KubeObject {
  data?: Record<string, string>;
}

const KEY = 'secret';
const SECRET_BYTES = 32;
const RETRY_MS = 500;

/** The secret's bytes, however long it takes until the API server answers. */
export async function poolSecret(api: KubeApi, replica: ReplicaConfig, log: Log, signal: AbortSignal): Promise<Buffer> {
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

async function readOrMake(api: KubeApi, { namespace, name }: ReplicaConfig): Promise<Buffer> {
  const path = `/api/v1/namespaces/${namespace}/secrets`;
  const metadata = { name: `${name}-pools`, namespace };
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
  return bytes;
}
