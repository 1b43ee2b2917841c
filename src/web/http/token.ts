import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import { isIPv6, type BlockList } from "node:net";
import { ApiError } from "../errors.js";
import { incomingOf, mountOf, noteUser, type Login } from "./mount.js";
import type { ConnectionLimit } from "./connectionLimit.js";

type Access = "full" | "readonly";

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

interface Visitor {
  readonly access: Access;
  /** Whom a proxy or the program has logged in. */
  readonly user: string | null;
}

/** Returns null without a valid token or login. */
export type AccessReader = (context: Context) => Visitor | null;

/** Where a proxy names the user whom it has logged in. */
export interface ProxyLogin {
  readonly header: string;
  readonly proxies: BlockList;
}

const maxUser = 200;

export function accessReader(
  tokens: () => Tokens,
  proxyLogin: () => ProxyLogin | null,
  onWrong: (context: Context) => void,
): AccessReader {
  return (context) => {
    const user = loginOf(context, proxyLogin());
    const { full, readOnly } = tokens();
    const given = bearerToken(context.req.header("authorization"));
    const name = user?.user ?? null;
    if (given !== null && isSameToken(given, full)) return { access: "full", user: name };
    if (given !== null && readOnly !== null && isSameToken(given, readOnly)) return { access: "readonly", user: name };
    if (user !== null) return { access: user.readOnly === true ? "readonly" : "full", user: user.user };
    if (given !== null) onWrong(context);
    return null;
  };
}

function loginOf(context: Context, proxyLogin: ProxyLogin | null): Login | null {
  const { login, isForeign } = mountOf(context);
  if (isForeign || proxyLogin === null) return login;
  const incoming = incomingOf(context);
  const address = incoming.socket.remoteAddress?.replace(/^::ffff:(?=[\d.]+$)/, "") ?? "";
  const isTrusted = proxyLogin.proxies.check(address, isIPv6(address) ? "ipv6" : "ipv4");
  // Several headers of the name are joined by commas: the proxy has then added its own to that of a client.
  const named = incoming.headersDistinct[proxyLogin.header.toLowerCase()] ?? [];
  const [user = ""] = named;
  return isTrusted && named.length === 1 && user !== "" ? { user: user.slice(0, maxUser) } : null;
}

/** Also refuses requests for which only the connections are left that are reserved for those without a token. */
export function tokenRequired(accessOf: AccessReader, connections: ConnectionLimit): MiddlewareHandler {
  return async (context, next) => {
    const visitor = accessOf(context);
    if (visitor === null) {
      const isMissing = bearerToken(context.req.header("authorization")) === null;
      context.header("WWW-Authenticate", 'Bearer realm="pg-task"');
      throw new ApiError("UNAUTHORIZED", isMissing ? "a token is required" : "the token is wrong");
    }
    const { access, user } = visitor;
    const { incoming, outgoing }: HttpBindings = context.env;
    const isLimited = !mountOf(context).isForeign;
    if (isLimited && !connections.trust(incoming, outgoing))
      throw new ApiError("BUSY", "too many connections are in use");
    context.header("Pg-Task-Access", access);
    if (user !== null) {
      noteUser(context, user);
      context.header("Pg-Task-User", encodeURIComponent(user));
    }
    if (access === "readonly" && !["GET", "HEAD"].includes(context.req.method)) {
      context.header("WWW-Authenticate", 'Bearer realm="pg-task", error="insufficient_scope"');
      throw new ApiError(
        "FORBIDDEN",
        user === null
          ? "this token allows only reading: changes need the token pg_http.token"
          : "this user may only read",
      );
    }
    await next();
  };
}
