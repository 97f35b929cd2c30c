// Every failure the control plane can name, with a code that never changes. docs/ERRORS.md explains each; a test holds the
// two together. Codes are for programs, messages for people.
import { FRAME_ERRORS } from './engine/frames.ts';
import type { FrameErrorName } from './engine/frames.ts';

export const ERRORS = {
  WARMPATH_CONFIG_KEY_UNKNOWN: { status: 500 },
  WARMPATH_CONFIG_VALUE_INVALID: { status: 500 },
  WARMPATH_ENDPOINTS_FILE_UNREADABLE: { status: 500 },
  WARMPATH_SECRET_FILE_UNREADABLE: { status: 500 },
  WARMPATH_KUBECONFIG_UNREADABLE: { status: 500 },
  WARMPATH_TOKEN_INVALID: { status: 401 },
  WARMPATH_POOL_UNKNOWN: { status: 404 },
  WARMPATH_ROUTE_UNKNOWN: { status: 404 },
  WARMPATH_REPORT_EXPECTED: { status: 400 },
  WARMPATH_REPORT_REPEATED: { status: 400 },
  WARMPATH_BODY_INVALID: { status: 400 },
  WARMPATH_BODY_TOO_LARGE: { status: 413 },
  WARMPATH_GATEWAYS_TOO_MANY: { status: 503 },
  WARMPATH_NOT_READY: { status: 503 },
  WARMPATH_STANDBY: { status: 503 },
  WARMPATH_INTERNAL: { status: 500 },
  WARMPATH_FRAME_SHORT: { status: 400 },
  WARMPATH_FRAME_MAGIC: { status: 400 },
  WARMPATH_FRAME_VERSION: { status: 400 },
  WARMPATH_FRAME_KIND: { status: 400 },
  WARMPATH_FRAME_LENGTH: { status: 400 },
  WARMPATH_FRAME_CHECK: { status: 400 },
  WARMPATH_FRAME_FLAGS: { status: 400 },
  WARMPATH_FRAME_SECTION: { status: 400 },
  WARMPATH_FRAME_SECTION_LENGTH: { status: 400 },
  WARMPATH_FRAME_COUNT: { status: 400 },
  WARMPATH_FRAME_VALUE: { status: 400 },
  WARMPATH_FRAME_NOT_ALLOWED: { status: 400 },
  WARMPATH_FRAME_NO_GATEWAY: { status: 400 },
} as const satisfies Record<string, { status: number }>;

export type ErrorCode = keyof typeof ERRORS;

export class ControlPlaneError extends Error {
  readonly code: ErrorCode;
  readonly statusCode: number;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'ControlPlaneError';
    this.code = code;
    this.statusCode = ERRORS[code].status;
  }
}

/** The permanent code of what frameCheck() found wrong. */
export function frameErrorCode(name: FrameErrorName): ErrorCode {
  const code = `WARMPATH_FRAME_${name.toUpperCase().replaceAll('-', '_')}`;
  return code in ERRORS ? (code as ErrorCode) : 'WARMPATH_FRAME_VALUE';
}

export const FRAME_ERROR_CODES: ErrorCode[] = FRAME_ERRORS.filter((name) => name !== 'ok').map(frameErrorCode);

/** A configuration value that is refused: which key, what it was, and what would have been right. */
export function invalid(key: string, value: unknown, expected: string): ControlPlaneError {
  const shown = JSON.stringify(value) ?? String(value);
  return new ControlPlaneError('WARMPATH_CONFIG_VALUE_INVALID', `${key}: ${shown} is not ${expected}`);
}
