import { toReport } from "../shared/errors.js";
import type { valueErrorSchema } from "./api/model.js";
import type { z } from "zod";

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

/** What is wrong with one value of a request, as in the example of RFC 9457. */
export type ValueError = z.infer<typeof valueErrorSchema>;

/** Code, message and errors are sent to the client. */
export class ApiError extends Error {
  readonly code: ApiErrorCode;
  readonly errors: readonly ValueError[] | undefined;

  constructor(
    code: ApiErrorCode,
    message: string,
    options: { readonly cause?: unknown; readonly errors?: readonly ValueError[] } = {},
  ) {
    super(message, options);
    this.name = "ApiError";
    this.code = code;
    this.errors = options.errors;
  }
}

export const reasonOf = (error: unknown): string =>
  error instanceof ApiError ? error.message : toReport(error).message;
