import { createServer, type RequestListener, type Server } from "node:http";
import type { MiddlewareHandler } from "hono";
import { ApiError } from "../errors.js";

export interface HttpLimits {
  readonly connections: number;
  /** For requests without a token, such as those to `/health`. */
  readonly reserved: number;
  /** Of the request line and the headers. */
  readonly headerBytes: number;
  readonly bodyBytes: number;
  /** How long a client may take, in ms. */
  readonly headersMs: number;
  readonly requestMs: number;
  /** How often the server looks for requests that take longer, in ms. */
  readonly checkMs: number;
}

export const httpLimits: HttpLimits = {
  connections: 256,
  reserved: 16,
  headerBytes: 16 * 1024,
  bodyBytes: 1024 * 1024,
  headersMs: 10_000,
  requestMs: 30_000,
  checkMs: 5_000,
};

export function createLimitedServer(limits: HttpLimits, listener: RequestListener): Server {
  return createServer(
    {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersMs,
      requestTimeout: limits.requestMs,
      connectionsCheckingInterval: limits.checkMs,
    },
    listener,
  );
}

/** The body is not read here. */
export function limitedBodies({ bodyBytes }: HttpLimits): MiddlewareHandler {
  return async (context, next) => {
    if (context.req.header("transfer-encoding") !== undefined) {
      throw new ApiError("LENGTH_REQUIRED", "a request with a body needs the header Content-Length");
    }
    if (Number(context.req.header("content-length") ?? 0) > bodyBytes) {
      throw new ApiError("TOO_LARGE", `the body of a request may have at most ${bodyBytes} bytes`);
    }
    await next();
  };
}
