import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import { ApiError } from "../errors.js";
import type { ConnectionLimit } from "./connectionLimit.js";

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
export type AccessReader = (context: Context) => Access | null;

/** @param onWrong called for a request with a wrong token */
export function accessReader(tokens: () => Tokens, onWrong: (context: Context) => void): AccessReader {
  return (context) => {
    const { full, readOnly } = tokens();
    const given = bearerToken(context.req.header("authorization"));
    if (given === null) return null;
    if (isSameToken(given, full)) return "full";
    if (readOnly !== null && isSameToken(given, readOnly)) return "readonly";
    onWrong(context);
    return null;
  };
}

/**
 * Rejects requests that carry no valid token, requests that change something with a token that only reads, and requests
 * for which only the connections are left that are reserved for those without a token. Says in a header what the token
 * allows.
 */
export function tokenRequired(accessOf: AccessReader, connections: ConnectionLimit): MiddlewareHandler {
  return async (context, next) => {
    const access = accessOf(context);
    if (access === null) {
      const isMissing = bearerToken(context.req.header("authorization")) === null;
      context.header("WWW-Authenticate", 'Bearer realm="pg-task"');
      throw new ApiError("UNAUTHORIZED", isMissing ? "a token is required" : "the token is wrong");
    }
    const { incoming, outgoing }: HttpBindings = context.env;
    if (!connections.trust(incoming, outgoing)) throw new ApiError("BUSY", "too many connections are in use");
    context.header(accessHeader, access);
    if (access === "readonly" && !["GET", "HEAD"].includes(context.req.method)) {
      context.header("WWW-Authenticate", 'Bearer realm="pg-task", error="insufficient_scope"');
      throw new ApiError("FORBIDDEN", "this token allows only reading: changes need the token pg_http.token");
    }
    await next();
  };
}
