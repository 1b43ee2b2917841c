import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { Context, MiddlewareHandler } from "hono";

const compress = promisify(gzip);

/** In bytes. Smaller bodies would hardly get smaller. */
const minBytes = 1_000;

export const etagOf = (body: Uint8Array): string =>
  `"${createHash("sha256").update(body).digest("base64url").slice(0, 22)}"`;

export const acceptsGzip = (context: Context): boolean => /\bgzip\b/.test(context.req.header("accept-encoding") ?? "");

/** Gives responses an ETag, answers with 304 if the client has the body, and compresses the body. Leaves out streams. */
export function compressed(): MiddlewareHandler {
  return async (context, next) => {
    await next();
    const { res: response } = context;
    const { status, body } = response;
    if (body === null || (response.headers.get("content-type") ?? "").startsWith("text/event-stream")) return;
    const headers = new Headers(response.headers);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const isGet = status === 200 && context.req.method === "GET";
    const etag = headers.get("etag") ?? (isGet ? etagOf(bytes) : null);
    if (etag !== null) headers.set("ETag", etag);
    headers.set("Vary", "Authorization, Accept-Encoding");
    if (isGet && context.req.header("if-none-match") === etag) {
      headers.delete("content-type");
      headers.delete("content-encoding");
      context.res = new Response(null, { status: 304, headers });
      return;
    }
    const compresses = bytes.length >= minBytes && !headers.has("content-encoding") && acceptsGzip(context);
    if (compresses) headers.set("Content-Encoding", "gzip");
    const sent = compresses ? new Uint8Array(await compress(bytes, { level: 4 })) : bytes;
    // Setting a response merges the headers of the one before.
    context.res = undefined;
    context.res = new Response(sent, { status, headers });
  };
}
