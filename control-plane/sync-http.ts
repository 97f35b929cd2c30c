// POST /v1/sync on Node's own HTTP server: at a thousand a second what a framework does for each request costs as much as the answer. All other
// routes are few and go through http.ts.
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { ControlPlaneError } from './errors.ts';
import type { ErrorCode } from './errors.ts';
import { LIMITS } from './limits.ts';

export const SYNC_PATH = '/v1/sync';

export interface SyncParts {
  token: string | null;
  sync(body: Uint8Array): Buffer;
  /** The answer has left this process. */
  sent(answer: Buffer): void;
  refused(error: ControlPlaneError, cause: unknown): void;
}

/** Any error as one of ours. */
export function asError(error: unknown): ControlPlaneError {
  if (error instanceof ControlPlaneError) return error;
  const status = (error as { statusCode?: number }).statusCode ?? 500;
  const message = error instanceof Error ? error.message : String(error);
  const code: ErrorCode =
    status === 413 ? 'WARMPATH_BODY_TOO_LARGE' : status < 500 ? 'WARMPATH_BODY_INVALID' : 'WARMPATH_INTERNAL';
  return new ControlPlaneError(code, code === 'WARMPATH_INTERNAL' ? 'an error inside' : message, { cause: error });
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Digests are compared and not the texts, so that neither length nor content shows in the time taken. */
function authorised(request: IncomingMessage, expected: Buffer | null): boolean {
  if (expected === null) return true;
  const given = /^Bearer (\S+)$/i.exec(request.headers.authorization ?? '')?.[1] ?? '';
  return timingSafeEqual(digest(given), expected);
}

export function isSync({ method, url = '' }: IncomingMessage): boolean {
  return method === 'POST' && (url === SYNC_PATH || url.startsWith(`${SYNC_PATH}?`));
}

export function syncListener(parts: SyncParts): RequestListener {
  const expected = parts.token === null ? null : digest(parts.token);

  const refuse = (response: ServerResponse, cause: unknown): void => {
    const error = asError(cause);
    parts.refused(error, cause);
    const body = JSON.stringify({ code: error.code, message: error.message });
    response.writeHead(error.statusCode, {
      'content-type': 'application/json; charset=utf-8',
      'content-length': Buffer.byteLength(body),
      ...(error.statusCode === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    });
    response.end(body);
  };

  const answer = (body: Buffer, response: ServerResponse): void => {
    let bytes: Buffer;
    try {
      bytes = parts.sync(body);
    } catch (error) {
      refuse(response, error);
      return;
    }
    response.once('finish', () => parts.sent(bytes));
    response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': bytes.length });
    response.end(bytes);
  };

  return (request, response) => {
    // A connection that breaks has nobody left to be told so.
    response.on('error', () => undefined);
    // The token is looked at before the body is read, so that a stranger cannot make the server hold megabytes.
    if (!authorised(request, expected)) {
      refuse(response, new ControlPlaneError('WARMPATH_TOKEN_INVALID', 'the bearer token is missing or wrong'));
      return;
    }
    const tooLarge = (): void => {
      const message = `a body has at most ${LIMITS.syncBodyBytes} bytes`;
      refuse(response, new ControlPlaneError('WARMPATH_BODY_TOO_LARGE', message));
    };
    if (Number(request.headers['content-length']) > LIMITS.syncBodyBytes) {
      tooLarge();
      return;
    }
    const pieces: Buffer[] = [];
    let received = 0;
    const take = (piece: Buffer): void => {
      received += piece.length;
      if (received <= LIMITS.syncBodyBytes) {
        pieces.push(piece);
        return;
      }
      // What still comes is read and dropped.
      request.off('data', take).off('end', end).resume();
      pieces.length = 0;
      tooLarge();
    };
    const end = (): void => answer(pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces), response);
    request.on('data', take).on('end', end);
  };
}
