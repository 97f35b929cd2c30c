// The pools' secrets. Block keys are made with them, so that who does not know a secret can neither guess nor forge keys.
// Without a file they are random and die with the process, and with them the worth of every table the gateways hold; with
// a file (a mounted Kubernetes Secret, or one made here on the first start) they survive a restart.
import { createHmac, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { ControlPlaneError } from './errors.ts';

const SECRET_BYTES = 32;

function readOrMake(path: string): Buffer {
  try {
    const text = readFileSync(path);
    const hex = text.toString('latin1').trim();
    if (/^[0-9a-f]{64}$/i.test(hex)) return Buffer.from(hex, 'hex');
    if (text.length === SECRET_BYTES) return text;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return make(path);
    const message = `secretFile: ${path} cannot be read: ${(error as Error).message}`;
    throw new ControlPlaneError('WARMPATH_SECRET_FILE_UNREADABLE', message, { cause: error });
  }
  const message = `secretFile: ${path} holds neither 32 bytes nor 64 hexadecimal digits`;
  throw new ControlPlaneError('WARMPATH_SECRET_FILE_UNREADABLE', message);
}

function make(path: string): Buffer {
  const secret = randomBytes(SECRET_BYTES);
  try {
    writeFileSync(path, `${secret.toString('hex')}\n`, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    const message = `secretFile: ${path} does not exist and cannot be made: ${(error as Error).message}`;
    throw new ControlPlaneError('WARMPATH_SECRET_FILE_UNREADABLE', message, { cause: error });
  }
  return secret;
}

/** A function from pool name to that pool's 32 bytes. */
export function poolSecrets(file: string | null): (pool: string) => Uint8Array {
  const root = file === null ? randomBytes(SECRET_BYTES) : readOrMake(file);
  return (pool) => new Uint8Array(createHmac('sha256', root).update(`warmpath pool ${pool}`).digest());
}
