/** Why a request is not answered as asked, and the HTTP status that says so. */
export const problemStatus = {
  INVALID: 400,
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  CONFLICT: 409,
  BUSY: 503,
  TOO_SLOW: 503,
  UNAVAILABLE: 503,
  INTERNAL: 500,
} as const;

export type ProblemCode = keyof typeof problemStatus;

/** An answer that is a refusal; its message is for the one who asked. */
export class WebProblem extends Error {
  readonly code: ProblemCode;

  constructor(code: ProblemCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = "WebProblem";
    this.code = code;
  }
}
