import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Context, MiddlewareHandler } from "hono";
import { ApiError } from "../errors.js";

/** What a token allows: everything, or only reading. */
type Access = "full" | "readonly";

/** The header of the API's responses that says what the token of the request allows. */
const accessHeader = "Pg-Task-Access";

/** The tokens that requests may carry. */
export interface Tokens {
  readonly full: string;
  /** Allows only reading. Null if there is no such token. */
  readonly readOnly: string | null;
}

/** Returns a new token of 192 random bits. */
export function randomToken(): string {
  return randomBytes(24).toString("base64url");
}

/** Compares two tokens in constant time, whatever their lengths. */
function isSameToken(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

/** Returns the token in an `Authorization: Bearer …` header, or null if there is none. */
function bearerToken(header: string | undefined): string | null {
  return /^Bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? null;
}

/** Returns what the token of a request allows, or null if the request carries no valid token. */
export function accessOf(context: Context, { full, readOnly }: Tokens): Access | null {
  const given = bearerToken(context.req.header("authorization"));
  if (given === null) return null;
  if (isSameToken(given, full)) return "full";
  return readOnly !== null && isSameToken(given, readOnly) ? "readonly" : null;
}

/**
 * Rejects requests that carry no valid token, and requests that change something with a token that only reads. Says in
 * a header what the token allows.
 */
export function tokenRequired(tokens: () => Tokens): MiddlewareHandler {
  return async (context, next) => {
    const access = accessOf(context, tokens());
    if (access === null) {
      const isMissing = bearerToken(context.req.header("authorization")) === null;
      context.header("WWW-Authenticate", 'Bearer realm="pg-task"');
      throw new ApiError("UNAUTHORIZED", isMissing ? "a token is required" : "the token is wrong");
    }
    context.header(accessHeader, access);
    if (access === "readonly" && !["GET", "HEAD"].includes(context.req.method)) {
      context.header("WWW-Authenticate", 'Bearer realm="pg-task", error="insufficient_scope"');
      throw new ApiError("FORBIDDEN", "this token allows only reading: changes need the token pg_http.token");
    }
    await next();
  };
}
