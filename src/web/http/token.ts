import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import { ApiError } from "../errors.js";
import type { ConnectionLimit } from "./connectionLimit.js";

type Access = "full" | "readonly";

const accessHeader = "Pg-Task-Access";

export interface Tokens {
  readonly full: string;
  readonly readOnly: string | null;
}

export function randomToken(): string {
  return randomBytes(24).toString("base64url");
}

/** Takes the same time for all tokens. */
function isSameToken(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

function bearerToken(header: string | undefined): string | null {
  return /^Bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? null;
}

/** Returns null without a valid token. */
export type AccessReader = (context: Context) => Access | null;

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

/** Also refuses requests for which only the connections are left that are reserved for those without a token. */
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
