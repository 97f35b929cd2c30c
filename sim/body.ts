// The body of a request as JSON, and the errors that a real server answers before its engine sees the request. Errors of the framework have one
// shape for all APIs; what an API's own code refuses is worded as that API words errors.

import type { Api } from './intake.ts';

export type Body = Record<string, unknown>;

/** An answer that is an error, in the fields of vLLM's error object. */
export class BodyError extends Error {
  readonly status: number;
  readonly type: string;
  readonly param: string | null;
  /** Found by the framework, before the API's own code. */
  readonly isEarly: boolean;

  constructor(status: number, type: string, param: string | null, message: string, isEarly = false) {
    super(message);
    this.status = status;
    this.type = type;
    this.param = param;
    this.isEarly = isEarly;
  }

  /** What a client of that API gets. */
  answer(api: Api): object {
    const { message, type, param, status } = this;
    if (!this.isEarly && (api === 'messages' || api === 'count')) return { type: 'error', error: { type, message } };
    return { error: { message, type, param, code: status } };
  }
}

/** A body that the framework's validation refuses: each fault is one line. */
export function invalid(loc: string, faults: readonly string[]): BodyError {
  const count = faults.length === 1 ? '1 validation error' : `${faults.length} validation errors`;
  const text = `${count}:\n${faults.map((fault) => `  {${fault}}`).join('\n')}`;
  return new BodyError(400, 'Bad Request', loc, text, true);
}

export function refused(param: string, message: string): BodyError {
  return new BodyError(400, 'BadRequestError', param, message);
}

export function parseBody(raw: Buffer): Body {
  let value: unknown;
  try {
    value = JSON.parse(raw.toString('utf8'));
  } catch {
    const at = `body.${raw.length > 0 ? raw.length - 1 : 0}`;
    throw invalid(at, [
      `'type': 'json_invalid', 'loc': '${at}', 'msg': 'JSON decode error', ` +
        `'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}`,
    ]);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalid('body', [
      `'type': 'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary'`,
    ]);
  }
  return value as Body;
}

export function requireFields(body: Body, fields: readonly string[]): void {
  const missing = fields.filter((field) => !(field in body));
  if (missing.length === 0) return;
  const input = `<dict of ${Object.keys(body).length} items>`;
  throw invalid(
    `body.${missing[0]}`,
    missing.map((field) => `'type': 'missing', 'loc': 'body.${field}', 'msg': 'Field required', 'input': '${input}'`),
  );
}

/** The objects of a list that must not be empty. */
export function objectsOf(body: Body, field: string): Body[] {
  const value = body[field];
  const isUsable =
    Array.isArray(value) &&
    value.length > 0 &&
    (value as unknown[]).every((item) => typeof item === 'object' && item !== null);
  if (!isUsable) {
    throw invalid(`body.${field}`, [
      `'type': 'list_type', 'loc': 'body.${field}', 'msg': 'Input should be a valid list'`,
    ]);
  }
  return value as Body[];
}

export function whole(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : undefined;
}
