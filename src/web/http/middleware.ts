import { isIP } from "node:net";
import type { Context, MiddlewareHandler } from "hono";
import { isLoopback } from "../../shared/config/listenAddress.js";
import { ApiError } from "../errors.js";

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

export interface Reach {
  /** Empty for all addresses. */
  readonly listenHost: string;
  /** In lower case. */
  readonly hosts: readonly string[];
}

/** Whether only this machine reaches the server. */
export const isLocalOnly = ({ listenHost, hosts }: Reach): boolean => isLoopback(listenHost) && hosts.length === 0;

/**
 * Whether the server has this host name. A page of another site could let a name of its own point to this server (DNS
 * rebinding). An IP address is no name that anybody else controls.
 */
function answersTo(name: string, { listenHost, hosts }: Reach): boolean {
  if (isLoopback(name) || hosts.includes(name)) return true;
  if (isLoopback(listenHost)) return false;
  return hosts.length === 0 || isIP(name) !== 0;
}

export function sameOriginOnly(reachOf: (context: Context) => Reach): MiddlewareHandler {
  return async (context, next) => {
    const reach = reachOf(context);
    const host = parseHost(`http://${context.req.header("host") ?? ""}`);
    if (host === null) throw new ApiError("FORBIDDEN", "the request has no Host header");
    if (!answersTo(host.name, reach)) {
      throw new ApiError(
        "FORBIDDEN",
        isLocalOnly(reach)
          ? "this server answers only local requests: use 127.0.0.1, or name the host in pg_http.hosts"
          : `this server does not answer for the host ${host.name}: pg_http.hosts does not name it`,
      );
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
