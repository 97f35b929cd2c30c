// The HTTP face: five routes, one way to refuse. Everything they answer is made elsewhere. The route that gateways use can have a port
// of its own, so that a network or a mesh can guard it without looking into requests.
import fastify from 'fastify';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { createHash, timingSafeEqual } from 'node:crypto';
import { ControlPlaneError } from './errors.ts';
import type { ErrorCode } from './errors.ts';
import { LIMITS } from './limits.ts';
import type { Metrics } from './metrics.ts';

export interface HttpParts {
  token: string | null;
  metrics: Metrics;
  sync(body: Uint8Array): Buffer;
  state(): object;
  /** Null when ready, else what is waited for. */
  notReady(): string | null;
  /** Brings derived gauges up to date. */
  collect(): void;
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Digests are compared and not the texts, so that neither length nor content shows in the time taken. */
function authorised(request: FastifyRequest, expected: Buffer | null): boolean {
  if (expected === null) return true;
  const given = /^Bearer (\S+)$/i.exec(request.headers.authorization ?? '')?.[1] ?? '';
  return timingSafeEqual(digest(given), expected);
}

function asError(error: unknown): ControlPlaneError {
  if (error instanceof ControlPlaneError) return error;
  const status = (error as { statusCode?: number }).statusCode ?? 500;
  const message = error instanceof Error ? error.message : String(error);
  const code: ErrorCode =
    status === 413 ? 'WARMPATH_BODY_TOO_LARGE' : status < 500 ? 'WARMPATH_BODY_INVALID' : 'WARMPATH_INTERNAL';
  return new ControlPlaneError(code, code === 'WARMPATH_INTERNAL' ? 'an error inside' : message, { cause: error });
}

/** Which routes a port has. */
export type HttpFace = 'all' | 'sync' | 'admin';

export function buildHttp(
  parts: HttpParts,
  onInternal: (error: unknown) => void,
  face: HttpFace = 'all',
): FastifyInstance {
  const app = fastify({ bodyLimit: LIMITS.syncBodyBytes, keepAliveTimeout: 75_000, forceCloseConnections: true });

  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  app.setErrorHandler(async (error, request, reply) => {
    const known = asError(error);
    if (known.code === 'WARMPATH_INTERNAL') onInternal(error);
    if (request.routeOptions.url === '/v1/sync') parts.metrics.syncRefused.inc({ code: known.code });
    if (known.statusCode === 401) void reply.header('www-authenticate', 'Bearer');
    return reply.code(known.statusCode).send({ code: known.code, message: known.message });
  });
  app.setNotFoundHandler(() => {
    throw new ControlPlaneError('WARMPATH_ROUTE_UNKNOWN', 'there is no such route');
  });

  if (face !== 'admin') addSync(app, parts);
  if (face !== 'sync') addAdmin(app, parts);
  return app;
}

function addSync(app: FastifyInstance, parts: HttpParts): void {
  // The token is looked at before the body is read, so that a stranger cannot make the server hold megabytes.
  const expected = parts.token === null ? null : digest(parts.token);
  const guard = async (request: FastifyRequest): Promise<void> => {
    if (!authorised(request, expected)) {
      throw new ControlPlaneError('WARMPATH_TOKEN_INVALID', 'the bearer token is missing or wrong');
    }
  };
  app.post('/v1/sync', { onRequest: guard }, async (request: FastifyRequest, reply: FastifyReply) => {
    const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
    return reply.type('application/octet-stream').send(parts.sync(body));
  });
}

function addAdmin(app: FastifyInstance, parts: HttpParts): void {
  app.get('/v1/state', async () => parts.state());
  app.get('/healthz', async (_request, reply) => reply.type('text/plain').send('ok\n'));
  app.get('/readyz', async (_request, reply) => {
    const waiting = parts.notReady();
    return reply
      .code(waiting === null ? 200 : 503)
      .type('text/plain')
      .send(`${waiting ?? 'ready'}\n`);
  });
  app.get('/metrics', async (_request, reply) => {
    parts.collect();
    return reply.type(parts.metrics.registry.contentType).send(await parts.metrics.registry.metrics());
  });
}
