export const statusByCode = {
  INVALID: 400,
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  CONFLICT: 409,
  READ_ONLY: 409,
  LENGTH_REQUIRED: 411,
  TOO_LARGE: 413,
  BUSY: 503,
  TOO_SLOW: 503,
  UNAVAILABLE: 503,
  INTERNAL: 500,
} as const;

export type ApiErrorCode = keyof typeof statusByCode;

/** Code and message are sent to the client. */
export class ApiError extends Error {
  readonly code: ApiErrorCode;

  constructor(code: ApiErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = "ApiError";
    this.code = code;
  }
}
