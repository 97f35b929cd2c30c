// The HTTP face: five routes, one way to refuse. Everything they answer is made elsewhere. The route that gateways use is one of its own
// (sync-http.ts) and can have a port of its own, so that a network or a mesh can guard it without looking into requests.
import fastify from 'fastify';
import type { FastifyInstance } from 'fastify';
import { createServer } from 'node:http';
import { ControlPlaneError } from './errors.ts';
import { LIMITS } from './limits.ts';
import type { Metrics } from './metrics.ts';
import { asError, isSync, syncListener } from './sync-http.ts';

export interface HttpParts {
  token: string | null;
  metrics: Metrics;
  sync(body: Uint8Array): Buffer;
  /** An answer to sync has been sent. */
  sent(answer: Buffer): void;
  state(): object;
  /** Null when ready, else what is waited for. */
  notReady(): string | null;
  /** Brings derived gauges up to date. */
  collect(): Promise<void>;
}

/** Which routes a port has. */
export type HttpFace = 'all' | 'sync' | 'admin';

export function buildHttp(
  parts: HttpParts,
  onInternal: (error: unknown) => void,
  face: HttpFace = 'all',
): FastifyInstance {
  const refused = (error: ControlPlaneError, cause: unknown): void => {
    if (error.code === 'WARMPATH_INTERNAL') onInternal(cause);
    parts.metrics.syncRefused.inc({ code: error.code });
  };
  const sync = face === 'admin' ? null : syncListener({ ...parts, refused });
  const app = fastify({
    bodyLimit: LIMITS.syncBodyBytes,
    forceCloseConnections: true,
    serverFactory: (others) =>
      createServer({ keepAliveTimeout: 75_000 }, (request, response) => {
        if (sync !== null && isSync(request)) sync(request, response);
        else others(request, response);
      }),
  });

  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  app.setErrorHandler(async (error, _request, reply) => {
    const known = asError(error);
    if (known.code === 'WARMPATH_INTERNAL') onInternal(error);
    return reply.code(known.statusCode).send({ code: known.code, message: known.message });
  });
  app.setNotFoundHandler(() => {
    throw new ControlPlaneError('WARMPATH_ROUTE_UNKNOWN', 'there is no such route');
  });

  if (face !== 'sync') addAdmin(app, parts);
  return app;
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
  // Whoever asks while it is being made gets the same: gauges are set anew for it.
  let underWay: Promise<string> | undefined;
  const metricsText = async (): Promise<string> => {
    try {
      await parts.collect();
      return await parts.metrics.text();
    } finally {
      underWay = undefined;
    }
  };
  app.get('/metrics', async (_request, reply) => {
    underWay ??= metricsText();
    return reply.type(parts.metrics.registry.contentType).send(await underWay);
  });
}
