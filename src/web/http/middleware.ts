import type { MiddlewareHandler } from "hono";
import { isLoopback } from "../../shared/config/listenAddress.js";
import { ApiError } from "../errors.js";

/**
 * Sets the security headers of every response.
 *
 * @param scriptHashes hashes of the inline scripts that the page is allowed to contain
 */
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
 * Rejects requests that pages of other sites send. If the server listens on a loopback address, also rejects requests
 * whose Host header does not name a loopback address, which protects against DNS rebinding.
 *
 * @param listenHost returns the host that the server listens on; empty for all addresses
 */
export function sameOriginOnly(listenHost: () => string): MiddlewareHandler {
  return async (context, next) => {
    const host = parseHost(`http://${context.req.header("host") ?? ""}`);
    if (host === null) throw new ApiError("FORBIDDEN", "the request has no Host header");
    if (isLoopback(listenHost()) && !isLoopback(host.name)) {
      throw new ApiError("FORBIDDEN", "this server answers only local requests: use 127.0.0.1");
    }
    const origin = context.req.header("origin");
    const site = context.req.header("sec-fetch-site");
    const isCrossSite =
      (origin !== undefined && parseHost(origin)?.nameAndPort !== host.nameAndPort) ||
      (site === "cross-site" && context.req.header("sec-fetch-mode") !== "navigate");
    if (isCrossSite) throw new ApiError("FORBIDDEN", "cross-site requests are not allowed");
    await next();
  };
}

function parseHost(url: string): { readonly nameAndPort: string; readonly name: string } | null {
  if (!URL.canParse(url)) return null;
  const { host, hostname } = new URL(url);
  return host === "" ? null : { nameAndPort: host, name: hostname.replace(/^\[(.*)\]$/, "$1") };
}
