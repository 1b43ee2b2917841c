import type { MiddlewareHandler } from "hono";
import { isLoopback } from "../../shared/config/listenAddress.js";
import { WebProblem } from "../errors.js";
import { bearerToken, sameToken } from "./token.js";

/** What every answer carries; `scriptHashes` are those of inline elements that may stand in the page. */
export function securityHeaders(scriptHashes: readonly string[]): MiddlewareHandler {
  const policy = [
    "default-src 'none'",
    `script-src 'self' ${scriptHashes.map((hash) => `'${hash}'`).join(" ")}`.trim(),
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
  return async (context, next) => {
    await next();
    context.header("Content-Security-Policy", policy);
    context.header("X-Content-Type-Options", "nosniff");
    context.header("Referrer-Policy", "no-referrer");
    context.header("Cross-Origin-Opener-Policy", "same-origin");
    context.header("Cross-Origin-Resource-Policy", "same-origin");
    context.header("X-Frame-Options", "DENY");
  };
}

/**
 * Refuses what a page of somebody else's sends. On loopback a name that is not this machine's own
 * is one that was made to point here (DNS rebinding).
 *
 * @param listenHost the host that is listened on; empty is all addresses
 */
export function sameOriginOnly(listenHost: () => string): MiddlewareHandler {
  return async (context, next) => {
    const host = hostOf(`http://${context.req.header("host") ?? ""}`);
    if (host === null) throw new WebProblem("FORBIDDEN", "the request names no host");
    if (isLoopback(listenHost()) && !isLoopback(host.name)) {
      throw new WebProblem("FORBIDDEN", "this address is for this machine only: use 127.0.0.1");
    }
    const origin = context.req.header("origin");
    const site = context.req.header("sec-fetch-site");
    const foreign =
      (origin !== undefined && hostOf(origin)?.whole !== host.whole) ||
      (site === "cross-site" && context.req.header("sec-fetch-mode") !== "navigate");
    if (foreign) throw new WebProblem("FORBIDDEN", "requests of other sites are not answered");
    await next();
  };
}

function hostOf(url: string): { readonly whole: string; readonly name: string } | null {
  if (!URL.canParse(url)) return null;
  const { host, hostname } = new URL(url);
  return host === "" ? null : { whole: host, name: hostname.replace(/^\[(.*)\]$/, "$1") };
}

/** Lets those in who show the token. */
export function tokenRequired(token: () => string): MiddlewareHandler {
  return async (context, next) => {
    const given = bearerToken(context.req.header("authorization"));
    if (given === null || !sameToken(given, token())) {
      context.header("WWW-Authenticate", 'Bearer realm="pg-task"');
      throw new WebProblem(
        "UNAUTHORIZED",
        given === null ? "a token is needed" : "the token is not the right one",
      );
    }
    await next();
  };
}
