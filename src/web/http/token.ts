import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Context, MiddlewareHandler } from "hono";
import { ApiError } from "../errors.js";

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

/** Whether a request carries the right bearer token. */
export function hasToken(context: Context, token: string): boolean {
  const given = bearerToken(context.req.header("authorization"));
  return given !== null && isSameToken(given, token);
}

/** Rejects requests that do not carry the right bearer token. */
export function tokenRequired(token: () => string): MiddlewareHandler {
  return async (context, next) => {
    const given = bearerToken(context.req.header("authorization"));
    if (given === null || !isSameToken(given, token())) {
      context.header("WWW-Authenticate", 'Bearer realm="pg-task"');
      throw new ApiError("UNAUTHORIZED", given === null ? "a token is required" : "the token is wrong");
    }
    await next();
  };
}
